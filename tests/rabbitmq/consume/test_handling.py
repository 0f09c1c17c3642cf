"""Failing handlers: retries in order, then a dead letter, a halted partition, or the end of the membership."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import attrs
import pytest
from tests.consumers import PATIENT, SETTINGS, WITHIN_S, Place, Seen, bodies_in, new_topic, place, until

from cobalance import BlockingConsumerGroup
from cobalance.errors import UsageError
from cobalance.group.tenure import Tenure
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio

SOON = Retries(2, first_ms=5, last_ms=10)
LATE = Retries(2, first_ms=600_000, last_ms=600_000)


Wrap = Callable[[Callable[[Delivery], Any]], Any]


def as_function(handle: Callable[[Delivery], Any]) -> Any:
    """Runs it in a thread; what it records is recorded on the event loop."""
    loop = anyio.lowlevel.current_token()

    def handler(delivery: Delivery) -> None:
        anyio.from_thread.run_sync(handle, delivery, token=loop)

    return handler


def as_coroutine(handle: Callable[[Delivery], Any]) -> Any:
    """Runs it on the event loop."""

    async def handler(delivery: Delivery) -> None:
        handle(delivery)

    return handler


@pytest.fixture(params=[as_coroutine, as_function], ids=["async", "sync"])
def wrap(request: pytest.FixtureRequest) -> Wrap:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.both_loops
async def test_a_failed_message_is_tried_again_before_the_next(here: Place, wrap: Wrap) -> None:
    """Messages are retried in place, so that order holds; each has all of its retries."""
    seen = Seen()

    def handle(delivery: Delivery) -> None:
        body = seen.note(delivery)
        if seen.bodies.count(body) < 3:
            raise ValueError(body)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        async with here.member(topic, wrap(handle), retries=SOON):
            assert await seen.wait(9) == ["1"] * 3 + ["2"] * 3 + ["3"] * 3
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []


async def test_a_cancelled_task_that_a_handler_awaits_is_a_failure_of_its_message(here: Place) -> None:
    """If it counted as a cancellation of ours, the tenure would end silently and the message be redelivered forever."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "1" and len(seen.bodies) < 3:
            others = asyncio.ensure_future(asyncio.sleep(60))
            others.cancel()
            await others

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        async with here.member(topic, handle, retries=SOON):
            assert await seen.wait(4) == ["1", "1", "1", "2"]
    assert here.journal("abandoned") == []


async def end_itself(how: str) -> None:
    """Ends the current task, as a time limit of the program's own may."""
    task = asyncio.current_task()
    assert task is not None
    if how == "by GeneratorExit":
        raise GeneratorExit
    if how == "later":
        asyncio.get_running_loop().call_soon(task.cancel)
        await anyio.sleep_forever()
    task.cancel()
    if how == "at once":
        await anyio.sleep_forever()


HOW_WORKED: dict[str, dict[str, Any]] = {
    "in order": {},
    "by key": {"order": "key", "key": lambda it: it.body},
    "parked": {"retries": Retries(3, first_ms=1, mode="park")},
    "batch": {"batch": Batch(3, within_ms=50)},
}


@pytest.mark.parametrize("how", ["at once", "later", "on returning", "by GeneratorExit"])
@pytest.mark.parametrize("way", HOW_WORKED)
async def test_a_handler_whose_task_the_program_cancels_has_failed(
    here: Place, way: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It alone: the message is tried again, no other comes twice, and the membership goes on."""
    begun, done, failed_once = list[str](), Seen(), anyio.Event()

    async def handle(given: Any) -> None:
        deliveries = given if way == "batch" else [given]
        begun.extend(it.body.decode() for it in deliveries)
        if begun[-1] == "1" and way == "by key":
            await failed_once.wait()  # beside the one that fails
        if "2" in begun[-len(deliveries) :] and not failed_once.is_set():
            failed_once.set()
            await end_itself(how)
            return
        for it in deliveries:
            done.note(it)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(1, 7))
        async with here.member(topic, handle, **{"retries": SOON} | HOW_WORKED[way]) as group:
            await done.wait(6)
            here.publish(topic, 7)
            assert sorted(await done.wait(7)) == [*"1234567"]
            assert (group.failed, group.health.live) == (None, True)
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert sorted(begun) == sorted([*"1234567", *("123" if way == "batch" else "2")])
    assert ("raised GeneratorExit" if how == "by GeneratorExit" else "was cancelled by the program") in caplog.text
    assert here.journal("abandoned") == []


@pytest.mark.parametrize("way", ["in order", "batch"])
async def test_a_task_that_the_program_cancels_too_late_ends_the_membership(
    here: Place, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler that it was meant for has returned. The log says why, and a probe sees that."""
    tasks, seen = list[Any](), Seen()

    async def handle(given: Any) -> None:
        tasks.append(asyncio.current_task())
        seen.note(given[0] if way == "batch" else given)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        group = here.member(topic, handle, **HOW_WORKED[way])
        await group.start()
        await seen.wait(1)
        await until(lambda: bodies_in(here.amqp_url, topic.queue_names[0]) == [])
        tasks[0].cancel()
        await group.wait_left()
        with pytest.raises(UsageError, match="was cancelled by the program"):
            await group.stop()
    assert isinstance(group.failed, UsageError)
    assert (group.health.state, group.health.live) == ("failed", False)
    assert "ends the membership: the group's task that runs the program's code was cancelled" in caplog.text


@pytest.mark.both_loops
async def test_what_fails_too_often_is_dead_lettered_and_the_next_goes_on(
    here: Place, wrap: Wrap, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the message, but not its contents if exceptions are not to be logged."""
    seen = Seen()

    def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "2":
            raise ValueError("a secret")

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        with caplog.at_level(logging.WARNING):
            options = {"retries": SOON, "on_error": "dead_letter", "log_exceptions": False}
            async with here.member(topic, wrap(handle), **options):
                assert await seen.wait(5) == ["1", "2", "2", "2", "3"]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert "message m2 of" in caplog.text
    assert "ValueError" in caplog.text
    assert "a secret" not in caplog.text


@pytest.mark.both_loops
async def test_a_pause_between_tries_ends_when_the_partition_is_asked_back(here: Place, wrap: Wrap) -> None:
    """The next holder gets the message, first in line as before."""
    first, second = Seen(), Seen()
    broken = True

    def fail(delivery: Delivery) -> None:
        if first.note(delivery) == "1" and broken:
            raise ValueError

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        async with here.member(topic, wrap(fail), retries=LATE):
            await first.wait(1)
        with anyio.fail_after(60):
            async with here.member(topic, wrap(second.note)):
                assert await second.wait(3) == ["1", "2", "3"]
    assert first.bodies == ["1"]
    assert here.journal("forced", "abandoned") == []


@pytest.mark.both_loops
async def test_a_halted_partition_waits_for_an_operator(
    here: Place, wrap: Wrap, caplog: pytest.LogCaptureFixture
) -> None:
    """No other member runs into the message, other partitions go on, and work resumes at that message."""
    seen, other = Seen(), Seen()
    broken = threading.Event()
    broken.set()

    def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "2" and broken.is_set():
            raise ValueError("a secret")

    with new_topic(here.amqp_url, 2) as topic:
        halted = topic.queue_names[0]
        here.publish(topic, 1, 2, 3)
        options = {"retries": SOON, "on_error": "halt", "log_exceptions": False}
        async with here.member(topic, wrap(handle), **options), here.member(topic, wrap(handle), **options):
            await until(lambda: here.resources()[halted].halted)
            assert seen.bodies == ["1", "2", "2", "2"]
            assert here.resources()[halted].halted == "ValueError"
            assert here.resources()[halted].owner is None
            here.publish(topic, 4, partition=1)
            assert await seen.wait(5) == ["1", "2", "2", "2", "4"]
            broken.clear()
            assert here.coordinator.resume(halted) == {halted: "OK"}
            assert (await seen.wait(7))[5:] == ["2", "3"]
        assert bodies_in(here.amqp_url, halted) == []
    assert [entry.reason for entry in here.journal("abandoned")] == ["halted:ValueError"]
    assert f"cobalance group resume {here.group} {halted}" in caplog.text
    assert "a secret" not in caplog.text
    assert other.bodies == []


@pytest.mark.both_loops
@pytest.mark.parametrize(
    ("name", "halted"),
    [("", "Exception"), ("a\nb c:d,e|f@=", "a_b_c_d_e_f_"), ("Überlauf", "Überlauf"), ("A" * 5_000, "A" * 100)],
    ids=["empty", "several words", "not English", "long"],
)
async def test_a_partition_is_halted_whatever_the_exception_is_called(here: Place, name: str, halted: str) -> None:
    """The coordinator takes one word for it, and would only pause the partition otherwise."""

    async def fail(_: Delivery) -> None:
        raise type(name, (Exception,), {})("x")

    with new_topic(here.amqp_url) as topic:
        (queue,) = topic.queue_names
        here.publish(topic, 1)
        async with here.member(topic, fail, retries=0, on_error="halt", log_exceptions=False):
            await until(lambda: here.resources()[queue].halted)
            assert here.resources()[queue].halted == halted
            assert await anyio.to_thread.run_sync(here.coordinator.resume, queue) == {queue: "OK"}


@pytest.mark.both_loops
async def test_raising_ends_the_membership_and_keeps_the_message(here: Place, wrap: Wrap) -> None:
    """The exception ends the membership if configured, and a supervisor decides."""
    seen = Seen()

    def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "2":
            raise ValueError("two")

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        with pytest.raises(ValueError, match="two"):
            async with here.member(topic, wrap(handle), retries=SOON, on_error="raise") as member:
                await member.wait_left()
        assert seen.bodies == ["1", "2", "2", "2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["2", "3"]


def as_batches(wrap: Wrap, handle: Callable[[list[Delivery]], Any]) -> Any:
    """The same for lists; the functions above do not look at what they pass on."""
    return wrap(handle)  # type: ignore[arg-type]


@pytest.mark.both_loops
async def test_a_batch_is_in_order_and_no_longer_than_asked(here: Place, wrap: Wrap) -> None:
    """A full batch is handed over at once, an incomplete one when its time is up."""
    seen, sizes = Seen(), []

    def handle(deliveries: list[Delivery]) -> None:
        sizes.append(len(deliveries))
        for delivery in deliveries:
            seen.note(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(10))
        async with here.member(topic, as_batches(wrap, handle), batch=Batch(4, within_ms=2_000)):
            assert await seen.wait(10) == [str(number) for number in range(10)]
        assert sizes == [4, 4, 2]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []


@pytest.mark.both_loops
async def test_a_batch_that_fails_is_opened_to_find_the_message(here: Place, wrap: Wrap) -> None:
    """Only the failing message is given up; the others are processed, in order."""
    processed: list[str] = []
    lists = Seen()

    def handle(deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            lists.note(delivery)
        bodies = [delivery.body.decode() for delivery in deliveries]
        if "2" in bodies:
            raise ValueError
        processed.extend(bodies)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(4), 9)
        options = {"retries": Retries(1, first_ms=1), "on_error": "dead_letter"}
        async with here.member(topic, as_batches(wrap, handle), batch=Batch(4, within_ms=50), **options):
            await lists.wait(4 + 4 + 4 + 1)
        assert processed == ["0", "1", "3", "9"]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []


@pytest.mark.parametrize("queue_type", ["classic", pytest.param("quorum", marks=pytest.mark.thorough)])
async def test_a_batch_goes_on_counting_though_its_channel_is_lost(here: Place, queue_type: str) -> None:
    """What has arrived meanwhile is no part of it, and at the last try each message is alone."""
    calls = list[list[str]]()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.append([it.body.decode() for it in deliveries])
        if "0" in calls[-1]:
            raise ValueError

    options = {"batch": Batch(9, within_ms=50), "retries": LATE, "on_error": "dead_letter"}
    with new_topic(here.amqp_url, queue_type=queue_type) as topic:
        here.publish(topic, 0, 1)
        async with here.member(topic, handle, **options) as member:
            for number in (2, 3):
                await until(lambda number=number: len(calls) == number - 1)
                here.publish(topic, number)
                member.partitions.connection.submit(lambda: 1 / 0)
            await until(lambda: sum(map(len, calls)) == 8)
        assert calls[:4] == [["0", "1"], ["0", "1"], ["0"], ["1"]]
        assert [it for call in calls[4:] for it in call] == ["2", "3"]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["0"]


async def test_a_batch_without_retries_is_opened_though_its_channel_is_lost(here: Place) -> None:
    """A handler that runs until then would otherwise hold its partition up for ever."""
    calls, may_fail = list[list[str]](), anyio.Event()

    async def handle(deliveries: list[Delivery]) -> None:
        calls.append([it.body.decode() for it in deliveries])
        if calls == [["0", "1"]]:
            await may_fail.wait()
        if "0" in calls[-1]:
            raise ValueError

    options = {"batch": Batch(2, within_ms=60_000), "retries": 0, "on_error": "dead_letter"}
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 0, 1)
        async with here.member(topic, handle, **options) as member:
            await until(lambda: calls)
            member.partitions.connection.submit(lambda: 1 / 0)
            await until(lambda: all(it.stopping for it in member.partitions.workers.values()))
            may_fail.set()
            await until(lambda: len(calls) == 3)
        assert calls == [["0", "1"], ["0"], ["1"]]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["0"]


@pytest.mark.both_loops
async def test_a_drain_finishes_the_running_batch(here: Place) -> None:
    """The batch is acknowledged as a whole; messages that were not begun stay in the queue."""
    begun, finish = anyio.Event(), anyio.Event()
    seen = Seen()

    async def handle(deliveries: list[Delivery]) -> None:
        begun.set()
        await finish.wait()
        for delivery in deliveries:
            seen.note(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 0, 1, 2)
        group = here.member(topic, handle, batch=Batch(3), prefetch=3)
        async with anyio.create_task_group() as tasks, group:
            await begun.wait()
            tasks.start_soon(group.leave)
            await group.tenures[topic.queue_names[0]].wait_draining()
            finish.set()
            await group.wait_left()
        assert seen.bodies == ["0", "1", "2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert [entry.kind for entry in here.journal("released", "abandoned", "forced")] == ["released"]


@pytest.mark.both_loops
@pytest.mark.parametrize("first_asked", ["by the leave", "by a join"])
async def test_a_deadline_that_is_moved_forward_is_heard(here: Place, first_asked: str) -> None:
    """Only half of the shorter time is for what has arrived: the leave ends well, and nothing is forced."""
    begun, asked, finish = anyio.Event(), anyio.Event(), anyio.Event()

    async def handle(_: Delivery) -> None:
        begun.set()
        await finish.wait()

    async def note(tenure: Tenure) -> None:
        await tenure.wait_draining()
        asked.set()

    is_long = first_asked == "by a join"
    with new_topic(here.amqp_url, partitions=2 if is_long else 1) as topic:
        for partition in range(topic.partitions):
            here.publish(topic, 0, 1, 2, partition=partition)
        options = {
            "settings": attrs.evolve(SETTINGS, revocation_timeout_ms=60_000 if is_long else 6_000),
            "member": MemberSettings(drain_timeout_ms=6_000 if is_long else 60_000),
        }
        group, other = here.member(topic, handle, **options), here.member(topic, handle, **options)
        async with anyio.create_task_group() as tasks, group:
            await begun.wait()
            roster: Any = group.membership.roster
            workers = [roster.find(it.resource, it.token).worker for it in group.tenures.values()]
            async with other:
                if is_long:
                    for tenure in group.tenures.values():
                        tasks.start_soon(note, tenure)
                    await asked.wait()
                tasks.start_soon(group.leave)
                await until(lambda: all(it.stopping for it in workers), within_s=5)
                finish.set()
                await group.wait_left()
    assert here.journal("forced", "abandoned") == []


class Blocking:
    """A plain handler that blocks in its first message until it is released."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self.go_on = threading.Event()
        self.most_at_a_time = self._running = 0

    def handle(self, delivery: Delivery) -> None:
        self._running += 1
        self.most_at_a_time = max(self.most_at_a_time, self._running)
        self.begun.append((delivery.token, delivery.body.decode()))
        if len(self.begun) == 1:
            self.go_on.wait()
        self._running -= 1


@pytest.mark.both_loops
async def test_a_hung_thread_keeps_its_partition_until_it_has_ended(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be stopped, so no other member begins while it may still end."""
    blocking, other = Blocking(), Seen()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        async with here.member(topic, blocking.handle, member=MemberSettings(max_processing_ms=300)):
            try:
                await until(lambda: "ran for longer than" in caplog.text)
                async with here.member(topic, as_coroutine(other.note)):
                    await until(lambda: here.coordinator.state()["members"] == "2")
                    assert other.bodies == []
                    blocking.go_on.set()
            finally:
                blocking.go_on.set()
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert here.journal("abandoned") == []


@pytest.mark.both_loops
async def test_a_hung_thread_that_does_not_end_is_named(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """After the drain timeout the next holder begins; log and journal say that the thread may still be running."""
    blocking, other = Blocking(), Seen()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        own = MemberSettings(max_processing_ms=300, drain_timeout_ms=200)
        async with here.member(topic, blocking.handle, member=own, settings=SETTINGS):
            try:
                await until(lambda: "it is hung" in caplog.text)
                async with here.member(topic, as_coroutine(other.note)):
                    assert await other.wait(1) == ["1"]
            finally:
                blocking.go_on.set()
    assert f"'{topic.queue_names[0]}' was told to stop (hung) and has not" in caplog.text
    assert {entry.reason for entry in here.journal("abandoned")} <= {"overlap", "hung"}
    assert here.journal("abandoned")[0].reason == "overlap"


@pytest.mark.both_loops
async def test_a_process_never_begins_a_partition_beside_its_own_hung_thread(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """When it is granted the partition again, under a higher token, it waits for the thread."""
    blocking = Blocking()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        own = MemberSettings(max_processing_ms=300, drain_timeout_ms=200)
        async with here.member(topic, blocking.handle, member=own, settings=SETTINGS):
            try:
                await until(lambda: caplog.text.count("it is hung") > 1)
                assert len(blocking.begun) == 1
                blocking.go_on.set()
                await until(lambda: [body for _, body in blocking.begun] == ["1", "1", "2"])
            finally:
                blocking.go_on.set()
    assert blocking.most_at_a_time == 1


@pytest.mark.both_loops
async def test_a_thread_begins_nothing_more_once_its_tenure_was_cancelled(here: Place) -> None:
    """The current message still counts, but the thread begins none of the others that it was handed."""
    blocking = Blocking()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        async with here.member(topic, blocking.handle) as member:
            try:
                await until(lambda: blocking.begun)
                member.tenures[topic.queue_names[0]].scope.cancel()
                await anyio.wait_all_tasks_blocked()
                assert here.journal("abandoned") == []
            finally:
                blocking.go_on.set()
            await until(lambda: len(blocking.begun) == 3)
            here.publish(topic, 4)
            await until(lambda: "4" in [body for _, body in blocking.begun])
    tokens = sorted({token for token, _ in blocking.begun})
    assert [body for token, body in blocking.begun if token == tokens[0]] == ["1"]
    assert [body for token, body in blocking.begun if token == tokens[1]] == ["2", "3", "4"]
    assert blocking.most_at_a_time == 1


class Neither(Exception):
    """Neither true nor false, like an array of NumPy's."""

    def __bool__(self) -> bool:
        raise TypeError("neither")


class Empty(Exception):
    """False, like an empty list."""

    def __len__(self) -> int:
        return 0


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", [Neither, Empty])
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_an_exception_that_is_not_true_is_a_failure_as_any_other(
    here: Place, kind: type[Exception], is_plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends no membership, and its traceback is logged without secrets."""

    def fail(_: Delivery) -> None:
        raise kind("cannot reach redis://:s3cret@host")

    async def fail_async(delivery: Delivery) -> None:
        fail(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, "1")
        handler = fail if is_plain else fail_async
        async with here.member(topic, handler, retries=0, on_error="halt") as member:
            await until(lambda: here.resources()[topic.queue_names[0]].halted)
            assert member.failed is None
        assert here.resources()[topic.queue_names[0]].halted == kind.__name__
    told = [it for it in caplog.records if it.name == "cobalance.rabbitmq" and it.levelno == logging.ERROR]
    assert ["in fail\n" in str(it.exc_text) for it in told] == [True]
    assert "s3cret" not in caplog.text + str([it.exc_info for it in told])


WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "by key": {"order": "key", "key": lambda it: it.body},
    "parked": {"retries": Retries(2, mode="park", key=lambda it: it.body)},
}


@pytest.mark.both_loops
@pytest.mark.parametrize("how", ["leave", "stop"])
@pytest.mark.parametrize("where", ["handler", "on_failure"])
@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
async def test_leaving_where_it_would_wait_for_itself_is_refused(
    here: Place, options: dict[str, Any], where: str, how: str
) -> None:
    """In whichever task the program's code runs."""
    refused = anyio.Event()

    async def leave() -> None:
        with pytest.raises(UsageError, match="wait for itself"):
            await getattr(member, how)()
        refused.set()

    async def handle(_: Delivery) -> None:
        if where == "handler":
            await leave()
        elif not refused.is_set():
            raise ZeroDivisionError

    async def on_failure(_: Delivery, __: Exception) -> None:
        await leave()

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, "x")
        member = here.member(topic, handle, on_failure=on_failure, **{"retries": SOON, **options})
        await member.start()
        await refused.wait()
        await member.stop()


@pytest.mark.parametrize("where", ["handler", "on_failure"])
@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_leaving_in_a_thread_where_it_would_wait_for_itself_is_refused(
    amqp_url: str, options: dict[str, Any], where: str
) -> None:
    """The same without async."""
    refused = threading.Event()

    def leave() -> None:
        with pytest.raises(UsageError, match="wait for itself"):
            member.leave()
        refused.set()

    def handle(_: Delivery) -> None:
        if where == "handler":
            leave()
        elif not refused.is_set():
            raise ZeroDivisionError

    with place(amqp_url) as here, new_topic(amqp_url) as topic:
        here.publish(topic, "x")
        member = BlockingConsumerGroup(
            here.group,
            topic,
            handle,
            amqp_url=amqp_url,
            redis_url=here.redis_url,
            settings=PATIENT,
            on_failure=lambda _, __: leave(),
            **{"retries": SOON, **options},
        )
        with member:
            assert refused.wait(WITHIN_S)
