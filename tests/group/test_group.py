"""The public group, on asyncio and trio, in memory and on a real Redis."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import attrs
import pytest

from cobalance import servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import (
    AuthenticationRefused,
    CobalanceError,
    EvictingPolicy,
    Fenced,
    GroupFailed,
    NotHeld,
    NotRedis,
    OffsetRegressed,
    Unreachable,
    UsageError,
)
from cobalance.group.group import Group
from cobalance.group.tenure import Tenure
from cobalance.settings import GroupSettings, MemberSettings

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(
    session_timeout_ms=10_000,
    heartbeat_interval_ms=250,
    revocation_timeout_ms=10_000,
    rejoin_grace_ms=3_000,
    gather_ms=0,
)
"""Whatever holds up a busy machine is over long before a session ends."""
BRIEF = attrs.evolve(SETTINGS, session_timeout_ms=3_000)
"""For tests that wait for the end of a session."""
QUICK_LEAVE = MemberSettings(drain_timeout_ms=2_000)
NAMES = ("r0", "r1", "r2", "r3")
WITHIN_S = 60.0

_count = itertools.count()


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://group-tests-{next(_count)}"
    return str(request.getfixturevalue("redis_url"))


@pytest.fixture
def make(url: str) -> Callable[..., Group]:
    """Creates members of a new group."""
    name = f"test-{time.time_ns()}"

    def make(resources: tuple[str, ...] | None = NAMES, *, settings: GroupSettings = SETTINGS, **options: Any) -> Group:
        options.setdefault("member", QUICK_LEAVE)
        return created(url, name, resources, settings=settings, **options)

    return make


def created(url: str, name: str, resources: tuple[str, ...] | None = NAMES, **options: Any) -> Group:
    """A member of a group that exists: one that its first member creates waits first for the claims of others."""
    transport = open_transport(url)
    try:
        Coordinator(transport, name).create(options["settings"])
    except CobalanceError:
        pass  # from an earlier member
    finally:
        transport.close()
    return Group(name, resources, redis_url=url, **options)


class Diary:
    """Records the calls of a member's callbacks and work, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, list[str]]] = []
        self._changed: anyio.Event | None = None

    def note(self, what: str, tenures: list[Tenure]) -> None:
        self.entries.append((what, [it.resource for it in tenures]))
        if self._changed is not None:
            self._changed.set()

    async def assigned(self, tenures: list[Tenure]) -> None:
        self.note("assigned", tenures)

    async def revoked(self, tenures: list[Tenure]) -> None:
        self.note("revoked", tenures)

    async def lost(self, tenures: list[Tenure]) -> None:
        self.note("lost", tenures)

    async def work(self, tenure: Tenure) -> None:
        """Work that ends when it is asked to."""
        self.note("begins", [tenure])
        await tenure.wait_draining()
        self.note("ends", [tenure])

    def options(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "on_assigned": self.assigned,
            "on_revoked": self.revoked,
            "on_lost": self.lost,
        }

    def of(self, resource: str) -> list[str]:
        """The entries of one resource."""
        return [what for what, names in self.entries if resource in names]

    def told(self, what: str) -> list[str]:
        """The resources of one kind of entry."""
        return sorted(name for kind, names in self.entries if kind == what for name in names)

    async def wait(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(WITHIN_S):
            while not condition():
                self._changed = anyio.Event()
                await self._changed.wait()


async def until(group: Group, condition: Callable[[], bool]) -> None:
    """Waits until the held resources satisfy a condition."""
    with anyio.fail_after(WITHIN_S):
        while not condition():
            await group.membership.changed.wait()


async def holds(group: Group, count: int) -> None:
    """Waits until it holds this many, none of them asked back."""
    await until(group, lambda: len(group.tenures) == count and all(it.active for it in group.tenures.values()))


# -- Kafka's contract ------------------------------------------------------------------------------------------------------


async def test_resources_are_shared_and_only_the_surplus_moves(make: Callable[..., Group]) -> None:
    """A second member gets half, and the rest stays untouched."""
    diary = Diary()
    async with make(**diary.options()) as a:
        await holds(a, 4)
        tokens = {name: it.token for name, it in a.tenures.items()}
        await diary.wait(lambda: diary.told("begins") == sorted(NAMES))
        async with make() as b:
            await holds(b, 2)
            await holds(a, 2)
            for name, tenure in a.tenures.items():
                assert tenure.token == tokens[name]
                assert diary.of(name) == ["assigned", "begins"]
            for name, tenure in b.tenures.items():
                assert tenure.token > tokens[name]
        await holds(a, 4)


async def test_callbacks_carry_additions_only_and_come_in_order(make: Callable[..., Group]) -> None:
    """Assigned before any work, revoked after it has stopped; nothing is announced twice."""
    diary = Diary()
    async with make(**diary.options()):
        await diary.wait(lambda: diary.told("begins") == sorted(NAMES))
        assert diary.told("assigned") == sorted(NAMES)
        async with make() as b:
            await holds(b, 2)
            moved = set(b.tenures)
        await diary.wait(lambda: diary.told("begins") == sorted([*NAMES, *moved]))
        assert diary.told("assigned") == sorted([*NAMES, *moved])
    for name in NAMES:
        once = ["assigned", "begins", "ends", "revoked"]
        assert diary.of(name) == (once * 2 if name in moved else once)
    assert diary.told("lost") == []


async def test_nothing_is_worked_before_on_assigned_has_returned(make: Callable[..., Group]) -> None:
    """However long that takes."""
    diary, may_go_on = Diary(), anyio.Event()

    async def slow(tenures: list[Tenure]) -> None:
        diary.note("assigned", tenures)
        await may_go_on.wait()
        diary.note("returned", tenures)

    async with make(("r0",), work=diary.work, on_assigned=slow):
        await diary.wait(lambda: "assigned" in diary.of("r0"))
        await anyio.lowlevel.checkpoint()
        assert diary.of("r0") == ["assigned"]
        may_go_on.set()
        await diary.wait(lambda: "begins" in diary.of("r0"))
    assert diary.of("r0") == ["assigned", "returned", "begins", "ends"]


async def test_on_revoked_may_commit_and_its_successor_starts_there(make: Callable[..., Group]) -> None:
    """The recommended pattern."""

    async def revoked(tenures: list[Tenure]) -> None:
        for tenure in tenures:
            await tenure.commit(17)

    async with make(("r0",), on_revoked=revoked) as a, make(("r0",)) as b:
        await holds(a, 1)
        await a.leave()
        await holds(b, 1)
        assert b.tenures["r0"].committed == 17


async def test_on_lost_means_that_it_is_too_late_to_commit(make: Callable[..., Group], url: str) -> None:
    """The resource has a new holder. The old tenure cannot commit, whatever this process holds by then."""
    refused: list[type] = []

    async def lost(tenures: list[Tenure]) -> None:
        for tenure in tenures:
            try:
                await tenure.commit(99)
            except CobalanceError as error:
                refused.append(type(error))

    async with make(("r0",), on_lost=lost) as a:
        await holds(a, 1)
        old = a.tenures["r0"]
        _end_session(url, a)
        await until(a, lambda: "r0" in a.tenures and a.tenures["r0"].token > old.token)
        await until(a, lambda: bool(refused))
        with pytest.raises(Fenced):
            await old.commit(100)
        assert refused == [Fenced]
        await a.commit("r0", 1)


async def test_a_tenure_begins_once_on_lost_of_the_one_before_has_returned(
    make: Callable[..., Group], url: str
) -> None:
    """A program that closes in ``on_lost`` what ``on_assigned`` has opened does not close it for the next tenure."""
    story: list[tuple[str, int]] = []
    loses, may_return = anyio.Event(), anyio.Event()

    async def assigned(tenures: list[Tenure]) -> None:
        story.extend(("assigned", it.token) for it in tenures)

    async def lost(tenures: list[Tenure]) -> None:
        loses.set()
        await may_return.wait()
        story.extend(("lost", it.token) for it in tenures)

    async with make(("r0",), on_assigned=assigned, on_lost=lost) as a:
        await holds(a, 1)
        old = a.tenures["r0"].token
        _end_session(url, a)
        await loses.wait()
        await until(a, lambda: "r0" in a.tenures)
        await a.membership.confirm_held()
        may_return.set()
        await until(a, lambda: len(story) == 3)
        assert story == [("assigned", old), ("lost", old), ("assigned", a.tenures["r0"].token)]


def _end_session(url: str, group: Group) -> None:
    """Makes the member leave behind its back; it learns of that with its next heartbeat."""
    from cobalance.coordinator.requests import Header, Leave, Request

    transport = open_transport(url)
    coordinator = Coordinator(transport, group.name)
    line = group.membership.engine.session.line
    header = Header(line.member, line._number + 1_000, line.incarnation, 0, 0)
    coordinator.execute(Request(header, Leave()))
    transport.close()


# -- tenures -----------------------------------------------------------------------------------------------------------------


async def test_a_tenure_has_a_token_and_a_scope(make: Callable[..., Group]) -> None:
    """Cancelling the scope gives up the resource. This process may get it again, under a higher token."""
    diary = Diary()
    async with make(("r0",), **diary.options()) as a:
        await holds(a, 1)
        first = a.tenures["r0"]
        first.scope.cancel()
        await until(a, lambda: "r0" in a.tenures and a.tenures["r0"].token > first.token)
        assert diary.told("lost") == ["r0"]
        assert not first.active


async def test_a_hung_handler_that_can_be_cancelled_is_cancelled_and_costs_its_resource(
    make: Callable[..., Group],
) -> None:
    """After ``max_processing_ms``. The member keeps its other tenures."""
    hung = anyio.Event()
    hangs = True

    async def work(tenure: Tenure) -> None:
        if hangs and tenure.resource == "r1":
            with tenure.processing():
                try:
                    await anyio.sleep_forever()
                finally:
                    hung.set()
        await tenure.wait_draining()

    member = MemberSettings(max_processing_ms=500, drain_timeout_ms=2_000)
    async with make(work=work, member=member) as a:
        await holds(a, 4)
        id_, token = a.member, a.tenures["r0"].token
        with anyio.fail_after(WITHIN_S):
            await hung.wait()
        hangs = False
        await holds(a, 4)
        assert (a.member, a.tenures["r0"].token) == (id_, token)


async def test_what_hangs_is_found_though_other_work_on_the_same_resource_ends(make: Callable[..., Group]) -> None:
    """Each block counts from its own beginning."""
    hung = anyio.Event()

    async def hang(tenure: Tenure) -> None:
        with tenure.processing():
            try:
                await anyio.sleep_forever()
            finally:
                hung.set()

    async def work(tenure: Tenure) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang, tenure)
            while True:
                with tenure.processing():
                    await anyio.lowlevel.checkpoint()

    async with make(("r0",), work=work, member=MemberSettings(max_processing_ms=200, drain_timeout_ms=2_000)):
        with anyio.fail_after(WITHIN_S):
            await hung.wait()


async def test_a_thread_that_hangs_costs_its_resource_and_not_the_member(make: Callable[..., Group]) -> None:
    """It cannot be cancelled. Another member gets the resource while it still hangs."""
    import threading

    go_on = threading.Event()

    async def work(tenure: Tenure) -> None:
        if tenure.resource == "r0":
            with tenure.processing():
                await anyio.to_thread.run_sync(go_on.wait)
        await tenure.wait_draining()

    member = MemberSettings(max_processing_ms=400, drain_timeout_ms=1_000)
    async with make(("r0", "r1"), work=work, member=member) as a:
        id_ = a.member
        try:
            await until(a, lambda: "r0" not in a.tenures and "r1" in a.tenures)
            async with make(("r0", "r1")) as b:
                await until(b, lambda: "r0" in b.tenures)
                assert a.member == id_
        finally:
            go_on.set()


async def test_a_handler_that_blocks_the_event_loop_for_three_sessions_costs_nothing(
    make: Callable[..., Group],
) -> None:
    """Heartbeats come from a separate thread: the member id and the tenures stay the same."""
    async with make(settings=BRIEF) as a, make(settings=BRIEF, member=MemberSettings(capacity=0)) as watcher:
        await holds(a, 4)
        id_, tokens = a.member, {name: it.token for name, it in a.tenures.items()}
        until_ = time.monotonic() + 1
        while time.monotonic() < until_:
            pass  # a handler that computes without awaiting,
        time.sleep(3 * BRIEF.session_timeout_ms / 1000)  # noqa: ASYNC251 -- and blocks, which takes nobody's processor
        state = await watcher.describe()
        assert [row.owner for row in state.resources] == [id_] * 4
        await anyio.lowlevel.checkpoint()
        assert a.member == id_
        assert {name: it.token for name, it in a.tenures.items()} == tokens
        await a.commit("r0", 1)


async def test_work_that_never_awaits_sees_that_its_tenure_is_lost(make: Callable[..., Group], url: str) -> None:
    """Though the event loop cannot hear of it meanwhile."""
    saw: list[bool] = []
    over = anyio.Event()

    async def work(tenure: Tenure) -> None:
        if not saw:
            _end_session(url, group)
            until_ = time.monotonic() + WITHIN_S
            while tenure.active and time.monotonic() < until_:
                pass  # as a program does that computes without awaiting
            saw.append(not tenure.active)
            over.set()
        await tenure.wait_draining()

    async with make(("r0",), work=work) as group:
        await over.wait()
    assert saw == [True]


async def test_who_has_left_is_told_who_describes_the_group(make: Callable[..., Group]) -> None:
    """Its connection is closed; another needs no membership."""
    async with make() as group:
        assert (await group.describe()).members
    with pytest.raises(UsageError, match="GroupAdmin"):
        await group.describe()


# -- commits -----------------------------------------------------------------------------------------------------------------


async def test_commits_are_stored_and_never_fall(make: Callable[..., Group]) -> None:
    """Many concurrent ones are fine. A lower one is an error and changes nothing."""
    async with make(("r0",)) as a, anyio.create_task_group() as tasks:
        await holds(a, 1)
        for offset in range(1, 50):
            tasks.start_soon(a.commit, "r0", 50)
            del offset
        await a.commit("r0", 50)
        with pytest.raises(OffsetRegressed, match="higher committed offset than 3"):
            await a.commit("r0", 3)
        with pytest.raises(NotHeld, match="does not hold 'elsewhere'"):
            await a.commit("elsewhere", 1)


async def test_a_commit_after_the_end_is_refused_and_does_not_hang(make: Callable[..., Group]) -> None:
    """It raises NotHeld or Fenced."""
    async with make(("r0",)) as a:
        await holds(a, 1)
        tenure = a.tenures["r0"]
    with anyio.fail_after(WITHIN_S):
        with pytest.raises(Fenced):
            await tenure.commit(1)
        with pytest.raises(NotHeld):
            await a.commit("r0", 1)


# -- leaving -----------------------------------------------------------------------------------------------------------------


async def test_leaving_drains_and_hands_over(make: Callable[..., Group]) -> None:
    """Running work is finished. The successor starts within milliseconds."""
    finished: list[str] = []

    async def work(tenure: Tenure) -> None:
        await tenure.wait_draining()
        await anyio.lowlevel.checkpoint()
        finished.append(tenure.resource)

    async with make() as b:
        async with make(work=work) as a:
            await holds(a, 2)
            await a.leave()
            assert len(finished) == 2
        await holds(b, 4)


@pytest.mark.parametrize("how", ["move_on_after", "cancel_scope"])
async def test_outer_cancellation_drains_all_the_same(make: Callable[..., Group], how: str) -> None:
    """Cancelling the scope around the ``async with`` cancels the body, but not the handover."""
    diary = Diary()
    with anyio.CancelScope() as scope:
        async with make(("r0",), **diary.options()) as a:
            await diary.wait(lambda: "begins" in diary.of("r0"))
            if how == "cancel_scope":
                scope.cancel()
            else:
                scope.deadline = anyio.current_time()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert diary.of("r0") == ["assigned", "begins", "ends", "revoked"]
    assert a.membership.over.is_set()


async def test_an_exception_in_the_body_drains_and_propagates_as_it_is(make: Callable[..., Group]) -> None:
    """Users know nothing of our tasks, so there is no exception group around it."""
    diary = Diary()

    async def fail() -> None:
        async with make(("r0",), **diary.options()):
            await diary.wait(lambda: "begins" in diary.of("r0"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert diary.of("r0") == ["assigned", "begins", "ends", "revoked"]


@pytest.mark.parametrize("where", ["work", "on_assigned", "on_revoked"])
async def test_an_exception_in_work_or_a_callback_leaves_gracefully_and_propagates(
    make: Callable[..., Group], where: str
) -> None:
    """The body is cancelled, everything else is drained, and the exception soon propagates unchanged."""
    diary = Diary()

    async def fail(_: Any) -> None:
        raise LookupError(where)

    async def be_member() -> None:
        async with make(**(diary.options() | {where: fail})) as a:
            if where == "on_revoked":
                await holds(a, 4)
                raise KeyError("the body's own")
            await anyio.sleep_forever()

    with anyio.fail_after(WITHIN_S), pytest.raises(KeyError if where == "on_revoked" else LookupError):
        await be_member()
    async with make() as b:
        await holds(b, 4)


async def test_two_groups_in_one_process_do_not_know_each_other(url: str) -> None:
    """Same resources and server, different groups."""
    one, two = (created(url, f"g{time.time_ns()}-{n}", settings=SETTINGS) for n in "ab")
    async with one, two:
        await holds(one, 4)
        await holds(two, 4)


async def test_eager_mode_stops_everything_at_every_change(make: Callable[..., Group]) -> None:
    """The baseline: one join interrupts everything."""
    eager = attrs.evolve(SETTINGS, mode="eager")
    diary = Diary()
    async with make(settings=eager, **diary.options()) as a:
        await holds(a, 4)
        async with make(settings=eager) as b:
            await holds(b, 2)
            await holds(a, 2)
            assert diary.told("revoked") == sorted(NAMES)


# -- leadership --------------------------------------------------------------------------------------------------------------


async def test_leadership_is_handed_over_by_leaving_the_block(make: Callable[..., Group]) -> None:
    """There is one leader at a time. When it steps down, another one leads."""
    leads: list[tuple[str, int]] = []

    async def lead_once(name: str, group: Group, led: anyio.Event) -> None:
        async with group.leadership("leader") as tenure:
            leads.append((name, tenure.token))
            led.set()

    async with make(("leader",)) as a, make(("leader",)) as b, anyio.create_task_group() as tasks:
        led = anyio.Event()
        async with a.leadership() as first:
            tasks.start_soon(lead_once, "b", b, led)
            await anyio.lowlevel.checkpoint()
            assert leads == []
            assert first.active
        with anyio.fail_after(WITHIN_S):
            await led.wait()
        assert [name for name, _ in leads] == ["b"]
        assert leads[0][1] > first.token


async def test_a_leader_that_leaves_the_block_while_alone_may_lead_again(make: Callable[..., Group]) -> None:
    """Under a higher token: the tenure being given up is not mistaken for the role."""
    async with make(("leader",)) as a:
        tokens = []
        for _ in range(3):
            with anyio.fail_after(WITHIN_S):
                async with a.leadership() as tenure:
                    await anyio.lowlevel.checkpoint()
                    tokens.append(tenure.token)
        assert len(tokens) == 3
        assert tokens == sorted(set(tokens))


async def test_a_leader_is_cancelled_when_the_role_is_asked_back(make: Callable[..., Group]) -> None:
    """The role is released only after its block has ended."""
    steps: list[str] = []
    async with make(("leader",)) as a, make(("leader",)) as b, anyio.create_task_group() as tasks:

        async def lead() -> None:
            async with a.leadership():
                steps.append("leads")
                tasks.start_soon(a.leave)
                try:
                    await anyio.sleep_forever()
                finally:
                    assert b.tenures == {}
                    steps.append("ends")

        tasks.start_soon(lead)
        await holds(b, 1)
        assert steps == ["leads", "ends"]


# -- trouble -----------------------------------------------------------------------------------------------------------------


async def test_lists_that_disagree_are_refused_on_entering(make: Callable[..., Group]) -> None:
    """Lists of the same version. The error comes before the body begins, and disturbs no member."""
    async with make(resources_version=1) as a:
        await holds(a, 4)
        tokens = {name: it.token for name, it in a.tenures.items()}
        with pytest.raises(GroupFailed, match="give all members the same list"):
            async with make(("r0", "other"), resources_version=1):
                raise AssertionError("the body must not run")
        await holds(a, 4)
        assert set(a.tenures) == set(tokens)


async def test_members_work_only_what_they_name(make: Callable[..., Group]) -> None:
    """A rolling update adds one resource and drops another. The last member that names a resource takes it along when
    it leaves.
    """
    async with make(("r0", "r1", "r2")) as new:
        async with make(("r0", "r1", "old")) as old:
            await holds(old, 2)
            await holds(new, 2)
            assert "old" in old.tenures
            assert "r2" in new.tenures
        await new.wait_held("r0", "r1", "r2")
        assert {row.name for row in new.membership.coordinator.resources()} == {"r0", "r1", "r2"}


async def test_a_list_without_a_version_is_for_good(make: Callable[..., Group]) -> None:
    """Only a list with a version can be changed."""
    async with make() as a:
        with pytest.raises(UsageError, match="give resources_version"):
            a.declare(["r9"], 2)
    async with make(resources_version=1) as a:
        a.declare(["r9"], 2)
        await a.wait_held("r9")


async def test_a_failure_that_several_wait_for_is_reported_once(
    make: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    """It reaches the block and the code of every resource."""

    async def work(_: Tenure) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await b.wait_held()

    async def fail(a: Group) -> None:
        async with b:
            await holds(b, 2)
            a.declare([*NAMES, "r9", "r10"], 2)
            await holds(a, 3)
            b.declare([*NAMES, "r8"], 2)
            await b.wait_left()

    b = make(resources_version=1, work=work)
    async with make(resources_version=1) as a:
        with pytest.raises(GroupFailed):
            await fail(a)
    assert len([it for it in caplog.records if it.levelname == "ERROR"]) == 1


async def test_a_double_instance_id_is_refused_on_entering(make: Callable[..., Group]) -> None:
    """After waiting for as long as a crashed predecessor could have left it behind."""
    member = MemberSettings(instance_id="pod-0", drain_timeout_ms=1_000)
    async with make(settings=BRIEF, member=member) as a:
        await holds(a, 4)
        with pytest.raises(GroupFailed, match="instance id 'pod-0' belongs to another live process"):
            async with make(settings=BRIEF, member=member):
                raise AssertionError("the body must not run")
        await holds(a, 4)


async def test_a_static_restart_keeps_everything(make: Callable[..., Group]) -> None:
    """With an instance id, leaving means remaining, unless it is said to be permanent."""
    member = MemberSettings(instance_id="pod-0", drain_timeout_ms=1_000)
    async with make() as a:
        async with make(member=member) as b:
            await holds(b, 2)
            await holds(a, 2)
            kept, others = set(b.tenures), {name: it.token for name, it in a.tenures.items()}
        async with make(member=member) as b:
            await holds(b, 2)
            assert set(b.tenures) == kept
            assert {name: it.token for name, it in a.tenures.items()} == others
            await b.leave(remain=False)
        await holds(a, 4)


async def test_names_are_checked_before_anything_happens() -> None:
    """Braces, blanks and glob characters would break keys."""
    for bad in ("a b", "{a}", "a*", ""):
        with pytest.raises(UsageError):
            Group(bad)
        with pytest.raises(UsageError):
            Group("g", [bad])


async def test_an_unreachable_server_is_a_clear_error_on_entering() -> None:
    """It says what failed, where, and what to do."""
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1\b"):
        async with Group("g", NAMES, redis_url="redis://127.0.0.1:1/0"):
            raise AssertionError("the body must not run")


async def test_a_server_that_is_no_redis_is_a_clear_error(rabbitmq_server: servers.RabbitMQServer) -> None:
    place = rabbitmq_server.url.rpartition("@")[2].partition("/")[0]
    with pytest.raises(NotRedis):
        async with Group("g", NAMES, redis_url=f"redis://{place}/0"):
            raise AssertionError("the body must not run")


async def test_a_wrong_password_is_a_clear_error_without_the_password(private_redis: servers.OwnRedis) -> None:
    """No message and no chained error contains it."""
    import redis

    with redis.Redis.from_url(private_redis.url) as client:
        client.config_set("requirepass", "right-one")
    with pytest.raises(AuthenticationRefused) as caught:
        async with Group("g", NAMES, redis_url=private_redis.url.replace("://", "://:wrong-one@")):
            raise AssertionError("the body must not run")
    error: BaseException | None = caught.value
    while error is not None:
        assert "wrong-one" not in repr(error) + str(error)
        error = error.__cause__ or error.__context__


async def test_an_evicting_redis_is_a_clear_error(private_redis: servers.OwnRedis) -> None:
    """It could drop parts of the group."""
    import redis

    with redis.Redis.from_url(private_redis.url) as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(EvictingPolicy, match="noeviction"):
        async with Group("g", NAMES, redis_url=private_redis.url):
            raise AssertionError("the body must not run")


async def test_a_redis_that_loses_its_data_interrupts_nobody(private_redis: servers.OwnRedis) -> None:
    """Killed and restarted empty: the member claims what it holds."""
    diary = Diary()
    async with created(private_redis.url, "g", settings=SETTINGS, member=QUICK_LEAVE, **diary.options()) as a:
        await holds(a, 4)
        tokens = {name: it.token for name, it in a.tenures.items()}
        await anyio.to_thread.run_sync(private_redis.kill)
        await anyio.to_thread.run_sync(private_redis.start)
        with anyio.fail_after(WITHIN_S):
            await a.commit("r0", 5)
        assert a.member.endswith(".2")
        assert {name: it.token for name, it in a.tenures.items()} == tokens
        assert diary.told("lost") == []


CRASHING = """
    import sys, anyio
    from cobalance.group.group import Group
    async def main():
        async with Group(sys.argv[2], ["r0", "r1", "r2", "r3"], redis_url=sys.argv[1]) as group:
            await group.wait_held()
            print("holding", flush=True)
            await anyio.sleep_forever()
    anyio.run(main)
"""


async def test_a_killed_process_is_healed_within_its_session(redis_url: str) -> None:
    """L3: within the session timeout plus a heartbeat, with some tolerance for busy machines."""
    name = f"crash-{time.time_ns()}"
    async with created(redis_url, name, settings=BRIEF, member=QUICK_LEAVE) as a:
        await holds(a, 4)
        child = await anyio.to_thread.run_sync(_start_member, redis_url, name)
        try:
            await holds(a, 2)
            child.send_signal(signal.SIGKILL)
            killed = time.monotonic()
            await holds(a, 4)
            assert time.monotonic() - killed < 8
        finally:
            child.kill()
            await anyio.to_thread.run_sync(child.communicate)


def _start_member(url: str, name: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CRASHING), url, name], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "holding\n"
    return child


# -- asyncio's own cancellation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_task_cancel_drains_and_a_second_one_aborts(make: Callable[..., Group]) -> None:
    """``task.cancel()`` ignores shields: the first one leaves gracefully, the second gives up what is unfinished."""
    diary = Diary()
    leaving = asyncio.Event()

    async def stubborn(tenure: Tenure) -> None:
        diary.note("begins", [tenure])
        await tenure.wait_draining()
        leaving.set()
        await asyncio.sleep(3_600)

    async def member() -> None:
        async with make(("r0",), **(diary.options() | {"work": stubborn}), member=MemberSettings()):
            await asyncio.sleep(3_600)

    task = asyncio.create_task(member())
    await diary.wait(lambda: "begins" in diary.of("r0"))
    task.cancel()
    await asyncio.wait_for(leaving.wait(), WITHIN_S)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, WITHIN_S)
    assert diary.told("lost") == ["r0"]
