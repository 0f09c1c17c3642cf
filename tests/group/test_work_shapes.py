"""What is accepted as a group's ``work``: everything that is async in the end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.names import unique

from cobalance import Group, Tenure
from cobalance.errors import UsageError
from cobalance.settings import GroupSettings

pytestmark = pytest.mark.both_loops

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0
)

called: list[object] = []


def plain(tenure: Tenure) -> None:
    called.append(tenure)


async def asynchronous(tenure: Tenure, *_: object) -> None:
    called.append(tenure)


def untyped(tenure):  # type: ignore[no-untyped-def]
    """Its kind is unknown before it is called."""
    called.append(tenure)


def returning(tenure: Tenure) -> Any:
    return asynchronous(tenure)


def generator(tenure: Tenure) -> Any:
    """A generator, which is never iterated."""
    yield tenure


async def async_generator(tenure: Tenure) -> Any:
    yield tenure


@functools.wraps(asynchronous)
def wrapper(tenure: Tenure) -> Any:
    return asynchronous(tenure)


class Service:
    async def __call__(self, tenure: Tenure) -> None:
        called.append(tenure)

    async def method(self, tenure: Tenure) -> None:
        called.append(tenure)

    def plain(self, tenure: Tenure) -> None:
        called.append(tenure)


def group(work: Any, *names: str) -> Group:
    return Group("g", names or ["r"], redis_url=f"memory://{unique('work')}", settings=SETTINGS, work=work)


@pytest.mark.parametrize(
    "work", [generator, async_generator, functools.partial(generator), plain, functools.partial(plain), Service().plain]
)
def test_what_is_surely_not_async_is_refused(work: Any) -> None:
    """When the group is created, with advice."""
    with pytest.raises(UsageError, match="BlockingGroup"):
        group(work)


ASYNC: list[Callable[..., Any]] = [
    asynchronous,
    functools.partial(asynchronous),
    returning,
    lambda tenure: asynchronous(tenure),  # noqa: PLW0108 -- the lambda is what is tested
    wrapper,
    Service(),
    Service().method,
]


@pytest.mark.anyio
@pytest.mark.parametrize("work", ASYNC)
async def test_what_is_async_in_the_end_is_taken(work: Any) -> None:
    """However it is written."""
    called.clear()
    async with group(work) as it:
        await it.wait_held("r")
    assert len(called) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("work", [untyped, functools.partial(untyped)])
async def test_what_turns_out_not_to_be_is_called_once(work: Any) -> None:
    """The group ends, with a reason."""
    called.clear()
    with pytest.raises(UsageError, match="BlockingGroup"):
        async with group(work, "r", "s", "t"):
            await anyio.sleep_forever()
    assert len(called) == 1
