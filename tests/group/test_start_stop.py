"""A group that one task starts and another one stops, as fixtures and lifespans do."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
from tests.consumers import new_topic, place
from tests.names import unique

from cobalance import BlockingConsumerGroup, BlockingGroup, BlockingTenure, Delivery, Group, Topic, run
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.open import open_transport
from cobalance.errors import Fenced, GroupFailed, MembershipError, NotHeld, TopicMissing, Unreachable, UsageError
from cobalance.group.instance_file import InstanceFile
from cobalance.group.tenure import Tenure
from cobalance.settings import GroupSettings, MemberSettings
from cobalance.threads.portal import EventLoopThread

pytestmark = pytest.mark.both_loops

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0
)
QUICK = MemberSettings(drain_timeout_ms=2_000)
NAMES = ("r0", "r1")
WITHIN_S = 60.0
NOWHERE = "redis://127.0.0.1:1/0"


def of_new_group() -> Callable[..., Group]:
    """Makes members of a group in memory that is not there yet."""
    options: dict[str, Any] = {"redis_url": f"memory://{unique('new')}", "settings": SETTINGS, "member": QUICK}
    return lambda names=NAMES, **more: Group("g", names, **(options | more))


@pytest.fixture
def make() -> Callable[..., Group]:
    return of_new_group()


async def in_another_task(call: Callable[[], Any]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)


@pytest.mark.anyio
async def test_another_task_may_stop_what_one_has_started(make: Callable[..., Group]) -> None:
    """Nothing of the group outlives it, and another member gets everything at once."""
    group = make()
    await in_another_task(group.start)
    assert {it.resource for it in await group.wait_held(*NAMES)} == set(NAMES)
    await in_another_task(group.stop)
    with pytest.raises(NotHeld):
        await group.wait_held()
    async with make() as other:
        with anyio.fail_after(SETTINGS.session_timeout_ms / 2_000):
            await other.wait_held(*NAMES)
    await group.stop()  # calling it again does no harm


def test_each_step_of_a_fixture_is_a_task(make: Callable[..., Group]) -> None:
    """As with pytest-asyncio."""

    async def fixture() -> AsyncIterator[Group]:
        group = make()
        await group.start()
        yield group
        await group.stop()

    with asyncio.Runner() as runner:
        steps = fixture()

        async def step() -> Group:
            return await anext(steps)

        async def use(group: Group) -> int:
            return len(await group.wait_held(*NAMES))

        group = runner.run(step())
        assert runner.run(use(group)) == 2
        with pytest.raises(StopAsyncIteration):
            runner.run(_as_it_ends(step))
    assert not group.tenures


async def _as_it_ends(step: Callable[[], Any]) -> None:
    try:
        await step()
    except RuntimeError as error:  # asyncio's way to report it in a task
        raise error.__cause__ or error from None


@pytest.mark.anyio
async def test_a_lifespan_serves_while_it_is_a_member(make: Callable[..., Group]) -> None:
    """An application that starts and stops it in its lifespan, and is cancelled around that."""
    held: list[int] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[Group]:
        group = make()
        await group.start()
        try:
            yield group
        finally:
            with anyio.CancelScope(shield=True):
                await group.stop()

    with anyio.CancelScope() as application:
        async with lifespan() as group:
            held.append(len(await group.wait_held(*NAMES)))
            application.cancel()
            await anyio.sleep_forever()
    assert held == [2]
    assert not group.tenures


@pytest.mark.anyio
async def test_what_ends_it_between_is_raised_logged_and_kept(
    make: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    """By stop(), once. The task that started it is not cancelled."""

    async def work(tenure: Tenure) -> None:
        raise LookupError(tenure.resource)

    group = make(["r0"], work=work)
    await group.start()
    await group.wait_left()
    assert isinstance(group.failed, LookupError)
    assert [it.levelno for it in caplog.records if "LookupError" in it.message] == [logging.ERROR]
    with pytest.raises(LookupError, match="r0"):
        await group.stop()
    await group.stop()
    assert isinstance(group.failed, LookupError)


@pytest.mark.anyio
async def test_who_is_refused_hears_of_it(make: Callable[..., Group]) -> None:
    """By start() if possible; stop() is harmless then."""
    async with make(resources_version=1):
        group = make(("r0", "other"), resources_version=1)
        with pytest.raises(GroupFailed, match="same list"):
            await group.start()
        await group.stop()
    group = make(redis_url=NOWHERE)
    with pytest.raises(Unreachable):
        await group.start()
    await group.stop()


@pytest.mark.anyio
async def test_a_group_is_entered_once(make: Callable[..., Group]) -> None:
    """Either way."""
    group = make()
    await group.stop()  # nothing to stop
    await group.start()
    with pytest.raises(UsageError, match="once"):
        await group.start()
    with pytest.raises(UsageError, match="once"):
        await group.__aenter__()
    await group.stop()
    with pytest.raises(UsageError, match="once"):
        await group.start()
    async with make() as other:
        with pytest.raises(UsageError, match="once"):
            await other.start()


@pytest.mark.anyio
async def test_stop_is_not_for_a_block(make: Callable[..., Group]) -> None:
    """Leaving the block is."""
    async with make() as group:
        with pytest.raises(UsageError, match="leave the `async with`"):
            await group.stop()


@pytest.mark.anyio
async def test_a_start_that_is_cancelled_while_it_connects_leaves_the_instance(
    make: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file was locked by then; a later member of this process may lock it."""
    taken, goes_on, take = threading.Event(), threading.Event(), InstanceFile.take

    def take_slowly(file: InstanceFile, coordinator: Coordinator) -> str:
        former = take(file, coordinator)
        taken.set()
        goes_on.wait(WITHIN_S)
        return former

    async with make():
        pass
    monkeypatch.setattr(InstanceFile, "take", take_slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(make(member=attrs.evolve(QUICK, instance_id="i")).start)
        assert await anyio.to_thread.run_sync(taken.wait, WITHIN_S)
        tasks.cancel_scope.cancel()
    later = InstanceFile(Coordinator(MemoryTransport(MemoryStore()), "g"), "i")

    def is_locked() -> bool:
        later.write("m")
        return later._file is not None

    assert not is_locked()
    goes_on.set()
    with anyio.fail_after(WITHIN_S):
        while not is_locked():  # noqa: ASYNC110 -- another thread closes it
            await anyio.sleep(0.01)
    later.close()


@pytest.fixture
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of instances are the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("redis://a", "redis://b", False),
        ("redis://a", "redis://a:6380", False),
        ("redis://a", "redis://user:pass@a:6379/0", True),
        ("unix:///run/a", "unix:///run/b", False),
        ("redis+sentinel://a,b/s", "redis+sentinel://a,c/s", False),
        ("redis+sentinel://a,b/s", "redis+sentinel://a,b/t", False),
        ("redis+sentinel://a,b/s", "redis+sentinel://:pass@a,b/s", True),
        ("redis+cluster://a,b", "redis+cluster://a,c", False),
        ("redis+cluster://a,b", "redis+cluster://:pass@a,b", True),
    ],
)
def test_the_file_of_an_instance_is_that_of_its_server(
    one: str, other: str, are_one: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Environments on one machine may have a server each. That a lock was refused is logged, once."""
    caplog.set_level(logging.INFO)
    first, second = (InstanceFile(Coordinator(open_transport(url), "g"), "i") for url in (one, other))
    for file in (first, second, second):
        file.write("m")
    assert (second._file is None) is are_one
    assert caplog.text.count("another process has it") == are_one
    first.close()
    second.write("m")
    assert second._file is not None
    second.close()


@pytest.mark.usefixtures("own_files")
def test_the_file_of_an_instance_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each process has an id of its own, they would fill the folder. A lock that is got just then is of no file, and not
    taken for one; and what records a member that may have been killed stays.
    """

    def files() -> list[Path]:
        return [*tmp_path.glob("cobalance-*/*")]

    first, second, third = (InstanceFile(Coordinator(MemoryTransport(MemoryStore()), "g"), "i") for _ in range(3))
    assert first._lock() == ""
    first.close()
    assert files() == []
    first.write("m.1")
    flock, ends = fcntl.flock, [first.close]

    def locked_late(file: int, how: int) -> None:
        if ends:
            ends.pop()()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", locked_late)
    second.write("m.2")
    third.write("m.3")
    assert third._file is None
    (file,) = files()
    assert file.read_text().startswith("m.2 ")
    assert second._file is not None
    os.close(second._file)  # it is killed
    assert third._lock() == "m.2"
    third.close()
    assert files() == [file]


def test_a_file_that_cannot_be_had_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The member works without."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    caplog.set_level(logging.INFO)
    name = f"memory://{unique('new')}"
    with BlockingGroup("g", NAMES, redis_url=name, settings=SETTINGS, member=attrs.evolve(QUICK, instance_id="i")):
        pass
    assert caplog.text.count("No such file") == 1


@pytest.mark.parametrize(("key_prefix", "database"), [("staging", 0), ("cobalance", 1)])
def test_environments_do_not_share_the_file_of_an_instance(
    redis_admin_url: str, key_prefix: str, database: int
) -> None:
    """Their groups may have the same names, and their processes may run on one machine."""
    name, member = unique("files"), attrs.evolve(QUICK, instance_id="i")
    server = redis_admin_url.rpartition("/")[0]
    here = BlockingGroup(name, NAMES, redis_url=f"{server}/0", settings=SETTINGS, member=member)
    there = BlockingGroup(
        name, NAMES, redis_url=f"{server}/{database}", key_prefix=key_prefix, settings=SETTINGS, member=member
    )
    with here, there:
        files = [it._group._connector._file for it in (here, there)]
        assert all(file is not None and file._file is not None for file in files)


@pytest.mark.anyio
async def test_a_start_that_is_cancelled_leaves_nothing(make: Callable[..., Group]) -> None:
    """Nothing would stop it."""
    group = make(redis_url=NOWHERE, connect_timeout_s=60)
    with anyio.move_on_after(0.1) as scope:
        await group.start()
    assert scope.cancelled_caught
    with anyio.fail_after(WITHIN_S):
        await group.stop()


@pytest.mark.anyio
async def test_work_that_stops_its_own_group_is_told(make: Callable[..., Group]) -> None:
    """It would wait for itself."""
    refused = anyio.Event()

    async def work(tenure: Tenure) -> None:
        with pytest.raises(UsageError, match="wait for itself"):
            await group.stop()
        refused.set()
        await tenure.wait_draining()

    group = make(work=work)
    await group.start()
    await refused.wait()
    await group.stop()


def test_a_loop_that_ends_gives_everything_back(make: Callable[..., Group]) -> None:
    """Even if the group was not stopped."""

    async def forget() -> None:
        group = make()
        await group.start()
        await group.wait_held(*NAMES)

    asyncio.run(forget())

    async def take_over() -> None:
        async with make() as group:
            with anyio.fail_after(SETTINGS.session_timeout_ms / 2_000):
                await group.wait_held(*NAMES)

    asyncio.run(take_over())


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_start_and_stop_it() -> None:
    """One thread starts, another one stops. An exception in work is raised by stop()."""
    begun = threading.Event()

    def work(tenure: BlockingTenure) -> None:
        begun.set()
        tenure.wait_draining()

    options: dict[str, Any] = {
        "redis_url": f"memory://{unique('new')}",
        "settings": SETTINGS,
        "member": QUICK,
    }
    group = BlockingGroup("g", NAMES, work=work, **options)
    thread = threading.Thread(target=group.start)
    thread.start()
    thread.join(WITHIN_S)
    assert begun.wait(WITHIN_S)
    with pytest.raises(UsageError, match="once"):
        group.start()
    group.stop()
    group.stop()

    def fail(_: BlockingTenure) -> None:
        raise LookupError("r0")

    failing = BlockingGroup("g", ["r0"], work=fail, **options)
    failing.start()
    failing.wait_left(WITHIN_S)
    assert isinstance(failing.failed, LookupError)
    with pytest.raises(LookupError):
        failing.stop()


@pytest.fixture
def make_blocking() -> Callable[..., BlockingGroup]:
    options: dict[str, Any] = {
        "redis_url": f"memory://{unique('new')}",
        "settings": SETTINGS,
        "member": QUICK,
    }
    return lambda **more: BlockingGroup("g", NAMES, **(options | more))


@pytest.mark.parametrize("moment", ["__enter__", "begin"])
def test_a_signal_handler_may_stop_what_is_just_beginning(
    make_blocking: Callable[..., BlockingGroup], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """In the thread that starts it, which hears of it by MembershipError."""
    group, call = make_blocking(), getattr(EventLoopThread, moment)

    def interrupted(*args: Any) -> Any:
        result = call(*args)
        monkeypatch.undo()
        group.stop()  # as a handler would
        return result

    monkeypatch.setattr(EventLoopThread, moment, interrupted)
    with pytest.raises(MembershipError):
        group.start()


def test_each_thread_that_stops_it_waits_for_the_end(make_blocking: Callable[..., BlockingGroup]) -> None:
    """Though another one was faster."""
    draining, finish, ended = threading.Event(), threading.Event(), threading.Event()

    def work(tenure: BlockingTenure) -> None:
        tenure.wait_draining()
        draining.set()
        finish.wait(WITHIN_S)
        ended.set()

    group = make_blocking(work=work, member=MemberSettings(drain_timeout_ms=60_000))
    group.start()
    group.wait_held()
    first = threading.Thread(target=group.stop)
    first.start()
    assert draining.wait(WITHIN_S)
    timer = threading.Timer(0.2, finish.set)
    timer.start()
    group.stop()
    assert ended.is_set()
    first.join(WITHIN_S)
    assert not first.is_alive()


@pytest.mark.parametrize("verb", ["leave", "stop"])
def test_a_thread_stops_what_another_one_is_starting(make_blocking: Callable[..., BlockingGroup], verb: str) -> None:
    """It does not become a member behind the back of its stopper."""
    waits, said = threading.Event(), list[str]()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "It is waited for" in record.getMessage():
                waits.set()

    def start() -> None:
        with pytest.raises(MembershipError) as refused:
            group.start()
        said.append(str(refused.value))

    group = make_blocking(redis_url=NOWHERE, connect_timeout_s=3_600)
    heard, log = Heard(), logging.getLogger("cobalance")
    log.addHandler(heard)
    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    assert waits.wait(WITHIN_S)
    log.removeHandler(heard)
    getattr(group, verb)()
    starting.join(WITHIN_S)
    assert "before it was entered" in said[0]


AFTERWARDS: list[tuple[str, Callable[[BlockingGroup], object], type[Exception] | None]] = [
    ("wait_left", lambda group: group.wait_left(), None),
    ("leave", lambda group: group.leave(), None),
    ("stop", lambda group: group.stop(), None),
    ("resume", lambda group: group.resume(), None),
    ("wait_held", lambda group: group.wait_held(), NotHeld),
    ("commit", lambda group: group.commit("r0", 1), NotHeld),
    ("pause", lambda group: group.pause("r0"), NotHeld),
    ("leadership", lambda group: group.leadership("r0").__enter__(), NotHeld),
    ("describe", lambda group: group.describe(), UsageError),
]


@pytest.mark.parametrize(("call", "error"), [it[1:] for it in AFTERWARDS], ids=[it[0] for it in AFTERWARDS])
def test_a_stopped_group_answers_as_one_that_was_left(
    make_blocking: Callable[..., BlockingGroup],
    call: Callable[[BlockingGroup], object],
    error: type[Exception] | None,
) -> None:
    """Its event loop is gone, of which a program with threads knows nothing."""
    group = make_blocking()
    group.start()
    group.wait_held()
    group.stop()
    with nullcontext() if error is None else pytest.raises(error):
        call(group)


def test_so_do_its_tenures(make_blocking: Callable[..., BlockingGroup]) -> None:
    """In threads of the program's own."""
    with make_blocking() as group:
        tenure = group.wait_held()[0]
    assert tenure.wait_draining()
    with pytest.raises(Fenced):
        tenure.commit(1)


def test_a_group_that_was_never_entered_is_not_waited_for(amqp_url: str) -> None:
    """Nor does a missing topic keep anybody waiting for the end."""
    group = BlockingConsumerGroup(
        "g", "no-such-topic", lambda _: None, amqp_url=amqp_url, redis_url=f"memory://{unique('new')}"
    )
    with pytest.raises(TopicMissing):
        group.start()
    group.wait_left(timeout=WITHIN_S)
    with pytest.raises(NotHeld):
        group.wait_held(timeout=WITHIN_S)


def test_a_program_that_forgets_to_stop_ends() -> None:
    """Others treat it as crashed."""
    program = """
from cobalance import BlockingGroup
group = BlockingGroup("g", ["r"], redis_url="memory://forgetful")
group.start()
group.wait_held()
print("held")
"""
    ended = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=30, check=False)
    assert (ended.stdout, ended.returncode) == ("held\n", 0), ended.stderr


def test_run_elsewhere_says_what_to_do(make: Callable[..., Group]) -> None:
    """Other threads get no signals, and a notebook already runs a loop."""
    errors: list[UsageError] = []

    def in_a_thread() -> None:
        with pytest.raises(UsageError, match=r"main thread only.*BlockingConsumerGroup") as caught:
            run(make())
        errors.append(caught.value)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join(WITHIN_S)
    assert len(errors) == 1

    async def in_a_notebook() -> None:
        with pytest.raises(UsageError, match=r"await group\.start\(\)"):
            run(make())

    asyncio.run(in_a_notebook())


# -- consumers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, 2) as it:
        yield it


class Seen:
    """Records deliveries to plain handlers, from any thread."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self._changed = threading.Condition()

    def note(self, delivery: Delivery) -> None:
        with self._changed:
            self.bodies.append(delivery.body.decode())
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.bodies) >= count, WITHIN_S), self.bodies


def test_consuming_without_an_event_loop(amqp_url: str, topic: Topic) -> None:
    """A plain handler in threads, plain callbacks; a second member gets what the first one left."""
    seen, told, joined = Seen(), list[str](), threading.Event()

    def assigned(tenures: list[BlockingTenure]) -> None:
        told.extend(it.resource for it in tenures)
        joined.set()

    with place(amqp_url) as it:
        options: dict[str, Any] = {
            "amqp_url": amqp_url,
            "redis_url": it.redis_url,
            "settings": SETTINGS,
            "member": QUICK,
        }
        it.publish(topic, "a", "b")
        with BlockingConsumerGroup(it.group, topic, seen.note, on_assigned=assigned, **options) as group:
            assert joined.wait(WITHIN_S)
            seen.wait(2)
            assert set(group.tenures) == set(topic.queue_names)
        assert set(told) == set(topic.queue_names)
        it.publish(topic, "c")

        def by_hand(delivery: Delivery) -> None:
            seen.note(delivery)
            other.ack(delivery)

        other = BlockingConsumerGroup(it.group, topic, by_hand, ack="manual", **options)
        other.start()
        seen.wait(3)
        other.stop()
        assert seen.bodies == ["a", "b", "c"]


def test_a_plain_handler_that_fails_is_raised_by_stop(amqp_url: str, topic: Topic) -> None:
    """If the error policy says so, or on an exit."""
    ends: dict[str, BaseException] = {"failed": LookupError("m"), "exit": SystemExit(3)}
    with place(amqp_url) as it:
        for body, error in ends.items():
            started = threading.Event()

            def fail(_: Delivery, error: BaseException = error, started: threading.Event = started) -> None:
                started.wait()
                raise error

            it.publish(topic, body)
            group = BlockingConsumerGroup(
                it.group,
                topic,
                fail,
                amqp_url=amqp_url,
                redis_url=it.redis_url,
                settings=SETTINGS,
                retries=0,
                on_error="raise",
            )
            group.start()
            started.set()
            group.wait_left(WITHIN_S)
            assert group.failed is error
            with pytest.raises(type(error)):
                group.stop()


def test_an_async_handler_needs_an_event_loop() -> None:
    """It would never be awaited."""

    async def handle(_: Delivery) -> None: ...

    with pytest.raises(UsageError, match="use ConsumerGroup"):
        BlockingConsumerGroup("g", "t", handle)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_callbacks_may_be_plain_functions(amqp_url: str, topic: Topic) -> None:
    """They run in a thread, like plain handlers."""
    told: list[tuple[str, bool]] = []
    main = threading.get_ident()

    def note(what: str) -> Callable[[list[Tenure]], None]:
        return lambda tenures: told.extend((what, threading.get_ident() == main) for _ in tenures)

    with place(amqp_url) as it:
        async with it.member(topic, lambda _: None, on_assigned=note("assigned"), on_revoked=note("revoked")) as group:
            await group.wait_held(*topic.queue_names)
    assert sorted(told) == [("assigned", False)] * 2 + [("revoked", False)] * 2


@pytest.mark.anyio
async def test_a_plain_callback_may_fail(make: Callable[..., Group]) -> None:
    """Like an async one."""

    def refuse(_: list[Tenure]) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        async with make(on_assigned=refuse) as group:
            await group.wait_left()


# -- before it is entered ----------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("verb", ["declare", "describe", "leave", "member", "wait_held", "wait_joined", "wait_left"])
async def test_a_group_that_is_not_entered_says_so(make: Callable[..., Group], verb: str) -> None:
    """A program that forgets start() finds out."""
    group = make(resources_version=1)
    with pytest.raises(UsageError, match=r"group g is not entered: .* start\(\)"):
        await getattr(group, verb)(*([NAMES, 2] if verb == "declare" else []))


@pytest.mark.parametrize("verb", ["describe", "leave", "member", "wait_held", "wait_left"])
def test_a_group_for_threads_says_so_too(verb: str) -> None:
    """In the same words."""
    group = BlockingGroup("g", NAMES, redis_url="memory://not-entered", work=lambda _: None)
    with pytest.raises(UsageError, match=r"group g is not entered: .* start\(\)"):
        getattr(group, verb)()
