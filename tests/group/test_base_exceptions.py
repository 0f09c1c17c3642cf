"""What is no ``Exception``, such as pytest's ``Failed`` or a class of the program's own, ends the membership like one."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.consumers import SETTINGS, WITHIN_S
from tests.names import unique

from cobalance import BlockingConsumerGroup, BlockingGroup, ConsumerGroup, Group, MemberSettings
from cobalance.errors import UsageError
from cobalance.rabbitmq import Topic, create_topic
from cobalance.testing import Broker, Churn
from cobalance.threads.cancellation import is_cancellation

pytestmark = pytest.mark.both_loops


class Own(BaseException):
    """A class of the program's own, like gevent's ``Timeout``."""


def fail_test(*_: Any) -> None:
    pytest.fail("an assertion")


def raise_own(*_: Any) -> None:
    raise Own("mine")


def raise_group(*_: Any) -> None:
    raise BaseExceptionGroup("several", [Own("1"), Own("2")])


FAILURES: dict[str, tuple[Callable[..., None], type[BaseException]]] = {
    "pytest": (fail_test, pytest.fail.Exception),
    "own": (raise_own, Own),
    "group": (raise_group, BaseExceptionGroup),
}
WHERE = ["plain handler", "async handler", "on_failure", "async work", "on_assigned"]


def options() -> dict[str, Any]:
    return {"redis_url": f"memory://{unique('g')}", "settings": SETTINGS}


def queue_options() -> dict[str, Any]:
    return {"amqp_url": f"memory://{unique('m')}", **options()}


def publish(to: dict[str, Any]) -> str:
    """A topic with a message; returns its name."""
    broker = Broker(to["amqp_url"].removeprefix("memory://"))
    create_topic(broker.url, Topic("orders", 1))
    broker.publish("orders", "k", "1")
    return "orders"


def fail_first(_: Any) -> None:
    raise ValueError


def failing(where: str, fail: Callable[..., None]) -> Group:
    """A member whose code fails there."""

    async def fail_on_loop(it: Any) -> None:
        fail(it)

    if where == "async work":
        return Group("g", ["r"], work=fail_on_loop, **options())
    if where == "on_assigned":
        return Group("g", ["r"], on_assigned=fail, **options())
    given = queue_options()
    if where == "on_failure":
        return ConsumerGroup("g", publish(given), fail_first, on_failure=fail, **given)
    return ConsumerGroup("g", publish(given), fail if where == "plain handler" else fail_on_loop, **given)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.levelno == logging.ERROR]


@pytest.mark.anyio
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", FAILURES)
async def test_it_is_logged_kept_and_raised(kind: str, where: str, caplog: pytest.LogCaptureFixture) -> None:
    """By a program that goes on beside the group, which learns of it by ``failed``."""
    fail, error = FAILURES[kind]
    group = failing(where, fail)
    with pytest.raises(error) as raised:
        await stay(group)
    failed = group.failed
    assert isinstance(failed, error)
    assert f"group g: a {type(failed).__name__} in the program's code ends the membership" in said(caplog)
    # Of a group, trio makes another one of the same exceptions.
    assert getattr(raised.value, "exceptions", raised.value) == getattr(failed, "exceptions", failed)


def cancel_itself(*_: Any) -> None:
    """A client of a service that has an event loop of its own, whose task is cancelled."""

    async def call() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(WITHIN_S)

    asyncio.run(call())


def exit_generator(*_: Any) -> None:
    raise GeneratorExit


def raise_cancellations(*_: Any) -> None:
    raise BaseExceptionGroup("several", [asyncio.CancelledError()])


@pytest.mark.anyio
@pytest.mark.parametrize("fail", [cancel_itself, exit_generator, raise_cancellations])
async def test_what_passes_for_a_cancellation_in_a_thread_is_a_failure(
    fail: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody cancels a thread, so the group does not end without a word."""
    group = failing("on_assigned", fail)
    with pytest.raises(UsageError, match="in a thread"):
        await stay(group)
    assert isinstance(group.failed, UsageError)
    assert len(said(caplog)) == 1


@pytest.mark.parametrize("fail", [cancel_itself, exit_generator, raise_cancellations])
def test_what_passes_for_a_cancellation_in_blocking_work_is_a_failure(fail: Callable[..., None]) -> None:
    """It is raised on stopping."""
    with pytest.raises(UsageError, match="in a thread"):
        stay_in_threads(failing_in_threads("work", fail))


async def cancel_own_task(_: Any) -> None:
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
    await anyio.sleep_forever()


async def exit_on_loop(*_: Any) -> None:
    raise GeneratorExit


@pytest.mark.parametrize("fail", [cancel_own_task, exit_on_loop])
@pytest.mark.parametrize("where", ["work", "on_assigned"])
def test_code_that_ends_its_task_does_not_end_the_membership_silently(
    where: str, fail: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A cancellation by the program is a failure, like any other exception."""
    group = Group("g", ["r"], **options() | {where: fail})
    with pytest.raises(UsageError):
        asyncio.run(stay(group))
    assert isinstance(group.failed, UsageError)
    assert (group.health.state, group.health.live) == ("failed", False)
    (line,) = said(caplog)
    assert ("was cancelled by the program" if fail is cancel_own_task else "raised GeneratorExit") in line


@pytest.mark.anyio
async def test_on_failure_that_exits_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The message is dealt with, and the membership goes on."""
    given, done = queue_options(), anyio.Event()

    async def handle(_: Any) -> None:
        if "on_failure failed" in caplog.text:
            done.set()
        else:
            raise ValueError

    group = ConsumerGroup("g", publish(given), handle, on_failure=exit_on_loop, **given)
    async with group:
        with anyio.fail_after(WITHIN_S):
            await done.wait()
    assert group.failed is None
    assert "raised GeneratorExit" in caplog.text


def test_the_end_of_the_event_loop_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """It cancels all tasks, also those of handlers, whose messages stay in the queue."""
    given, begun = queue_options(), asyncio.Event()

    async def handle(_: Any) -> None:
        begun.set()
        await anyio.sleep_forever()

    async def main() -> None:
        group = ConsumerGroup("g", publish(given), handle, retries=0, on_error="dead_letter", **given)
        await group.start()
        await begun.wait()

    asyncio.run(main())
    broker = Broker(given["amqp_url"].removeprefix("memory://"))
    assert broker.ready("orders-0") == [b"1"]
    assert said(caplog) == []


async def stay(group: Group) -> None:
    await group.start()
    with anyio.fail_after(WITHIN_S):
        await group.wait_left()
    await group.stop()


def failing_in_threads(where: str, fail: Callable[..., None]) -> BlockingGroup | BlockingConsumerGroup:
    if where == "work":
        return BlockingGroup("g", ["r"], work=fail, **options())
    if where == "on_assigned":
        return BlockingGroup("g", ["r"], on_assigned=fail, **options())
    given = queue_options()
    if where == "on_failure":
        return BlockingConsumerGroup("g", publish(given), fail_first, on_failure=fail, **given)
    return BlockingConsumerGroup("g", publish(given), fail, **given)


@pytest.mark.parametrize("where", ["handler", "on_failure", "work", "on_assigned"])
@pytest.mark.parametrize("kind", FAILURES)
def test_threads_raise_it_too(kind: str, where: str, caplog: pytest.LogCaptureFixture) -> None:
    """And not that their event loop is gone."""
    fail, error = FAILURES[kind]
    group = failing_in_threads(where, fail)
    with pytest.raises(error) as raised:
        stay_in_threads(group)
    assert raised.value is group.failed
    assert f"group g: a {type(raised.value).__name__} in the program's code ends the membership" in said(caplog)


def stay_in_threads(group: BlockingGroup | BlockingConsumerGroup) -> None:
    group.start()
    group.wait_left(WITHIN_S)
    group.stop()


@pytest.mark.parametrize("kind", [*FAILURES, "exit"])
def test_entering_raises_it_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the code fails before the program goes on."""
    enter = Group._enter_group

    async def enter_slowly(group: Group) -> None:
        await enter(group)
        await anyio.sleep_forever()  # cancelled by the failure

    monkeypatch.setattr(Group, "_enter_group", enter_slowly)
    fail, error = (sys.exit, SystemExit) if kind == "exit" else FAILURES[kind]
    group = BlockingGroup("g", ["r"], on_assigned=fail, **options())
    with pytest.raises(error) as raised:
        group.start()
    assert raised.value is group.failed


@pytest.mark.parametrize("face", [ConsumerGroup, BlockingConsumerGroup])
def test_on_failure_of_a_hung_handler_may_raise_it(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is called while the handler still runs."""
    let_go, given = threading.Event(), queue_options()

    def on_failure(*_: Any) -> None:
        let_go.set()
        raise_own()

    async def wait_left(group: ConsumerGroup) -> None:
        async with group:
            await group.wait_left()

    def be_member(group: Any) -> None:
        if face is ConsumerGroup:
            anyio.run(wait_left, group)
        else:
            with group:
                group.wait_left(WITHIN_S)

    group = face(
        "g",
        publish(given),
        lambda _: let_go.wait(WITHIN_S) and None,
        on_failure=on_failure,
        member=MemberSettings(max_processing_ms=100, drain_timeout_ms=100),
        **given,
    )
    with pytest.raises(Own):
        be_member(group)
    assert type(group.failed) is Own
    assert "group g: a Own in the program's code ends the membership" in said(caplog)


def test_a_test_may_fail_in_a_handler() -> None:
    """Of a member of ``cobalance.testing``: the test hears why."""
    broker = Broker(unique("m"))
    broker.create_topic("orders", 1)
    churn = Churn(unique("g"), broker)
    member = churn.join("orders", fail_test)
    broker.publish("orders", "k", "1")
    churn.until(lambda: member.group.failed is not None, WITHIN_S)
    with pytest.raises(pytest.fail.Exception, match="an assertion"):
        member.stop()


RUN = """
from cobalance import Group, run

class Own(BaseException): ...

async def work(tenure):
    raise Own("mine")

run(Group("g", ["r"], work=work, redis_url="memory://run"), backend={backend!r})
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_run_raises_it_as_it_is(backend: str, tmp_path: Path) -> None:
    """Without an exception group around it."""
    program = tmp_path / "program.py"
    program.write_text(RUN.format(backend=backend))
    ended = subprocess.run([sys.executable, program], text=True, capture_output=True, timeout=60, check=False)
    assert ended.stderr.rstrip().endswith("\nOwn: mine"), ended.stderr
    assert "ExceptionGroup" not in ended.stderr


@pytest.mark.anyio
async def test_a_cancellation_is_none() -> None:
    """Nor are several. What comes with one is a failure."""
    cancelled = anyio.get_cancelled_exc_class()
    found: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except cancelled as error:
            found.append(error)
            raise
    assert is_cancellation(found[0])
    assert is_cancellation(BaseExceptionGroup("", [found[0], BaseExceptionGroup("", found)]))
    assert not is_cancellation(BaseExceptionGroup("", [found[0], ValueError()]))
    assert not is_cancellation(Own())
    assert is_cancellation(GeneratorExit())
