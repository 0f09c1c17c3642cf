"""A logging configuration that raises costs its log lines: it ends no member, and hides no failure."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from tests.consumers import WITHIN_S, Place, Seen, new_topic
from tests.names import unique
from tests.streams import cut

from cobalance import Delivery, Group, Tenure

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

LOGGERS = ("cobalance", "cobalance.coordinator", "cobalance.group", "cobalance.rabbitmq")


def broken(*_: Any, **__: Any) -> Any:
    raise LookupError("of the logging configuration")


class BrokenHandler(logging.Handler):
    """Raises, as handlers of Python's own do not."""

    handle = broken


@contextmanager
def broken_filters() -> Iterator[None]:
    for name in LOGGERS:
        logging.getLogger(name).addFilter(broken)
    yield
    for name in LOGGERS:
        logging.getLogger(name).removeFilter(broken)


@contextmanager
def broken_handler() -> Iterator[None]:
    handler = BrokenHandler()
    logging.root.addHandler(handler)
    yield
    logging.root.removeHandler(handler)


@contextmanager
def broken_factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(broken)
    yield
    logging.setLogRecordFactory(before)


WAYS = {"filters": broken_filters, "a handler": broken_handler, "the factory of records": broken_factory}


@pytest.fixture(params=WAYS)
def broken_log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Logging raises while the test runs. The exceptions that reached Python's hook."""
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logging.getLogger("cobalance").setLevel(logging.INFO)
    with WAYS[request.param]():
        yield told
    logging.getLogger("cobalance").setLevel(logging.NOTSET)


async def test_a_failure_is_stored_and_raised_though_it_cannot_be_logged(broken_log: list[Any]) -> None:
    """That which logging raises does not take its place."""

    async def work(_: Tenure) -> None:
        raise ValueError("of the program")

    group = Group("g", ["r"], redis_url=f"memory://{unique('log')}", work=work)
    await group.start()
    with anyio.fail_after(WITHIN_S):
        await group.wait_left()
    assert isinstance(group.failed, ValueError)
    with pytest.raises(ValueError, match="of the program"):
        await group.stop()
    assert any(isinstance(it, LookupError) for it in broken_log)


async def test_a_member_goes_on_that_cannot_log(here: Place, broken_log: list[Any]) -> None:
    """Its handler fails once, and its connection is lost: both are logged on the event loop."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "bad" and seen.bodies.count("bad") == 1:
            raise ValueError

    with new_topic(here.amqp_url) as topic:
        async with here.member(topic, handle) as group:
            await group.wait_held()
            here.publish(topic, "bad")
            await seen.wait(2)
            cut(group.partitions.connection)
            here.publish(topic, "after")
            while "after" not in await seen.wait(len(seen.bodies) + 1):
                pass
            assert group.failed is None
    assert broken_log


def test_a_line_names_the_place_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    """And not the place that contains what logging raises."""
    logging.getLogger("cobalance.rabbitmq").warning("here")
    (record,) = caplog.records
    assert (record.pathname, record.funcName) == (__file__, sys._getframe().f_code.co_name)
