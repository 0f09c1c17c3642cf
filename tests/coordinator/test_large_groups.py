"""Groups so large that unbounded work would show: Kafka's large assignments, call by call.

Kafka gives its assignor 30 s for 2,000 members and 1,000,000 partitions at once. Here no call may exceed its budget
however large the group is, which is checked by the moves of each call. With a fiftieth of Kafka's partitions and a
tenth of its members the suite stays quick; `make bench` measures what larger groups cost a Redis.
"""

from __future__ import annotations

from math import ceil, floor
from random import Random

import attrs
import pytest
from tests.coordinator.backends import MemoryBackend
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.sharing import check_shared, tokens

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Request
from cobalance.description import GroupDescription
from cobalance.member.declaration import Declaration

MOVES = 500
MOST_STEPS = 850_000
"""Of a call that makes 100 moves: a quarter more than the longest one in a group of equals."""


class Steps:
    """Counts the instructions of a Lua without a compiler, scripts and store alike: the same on every machine."""

    EACH = 100

    def __init__(self, store: MemoryStore) -> None:
        hook = b"steps = 0; debug.sethook(function() steps = steps + 1 end, '', %d)" % self.EACH
        self._lua = store._engine._runtime
        self._lua.execute(hook)

    def count(self) -> int:
        return int(self._lua.eval(b"steps")) * self.EACH


class LargeGroup(Group):
    """Checks its records only on request: after every call would take hours. The work of each call is counted."""

    def __init__(self, lua: str = "luajit21", moves: int = MOVES) -> None:
        backend = MemoryBackend(lua)
        super().__init__(backend, attrs.evolve(SETTINGS, moves_per_call=moves, journal_length=1_000))
        self.steps = Steps(backend.store)
        self.most_moves = self.most_steps = self.calls = 0
        self._versions = 0

    def execute(self, request: Request) -> CoordinatorReply:
        """Each move is an entry of the journal, and each entry a version."""
        before = self.steps.count()
        self.calls += 1
        reply = self.coordinator.execute(request)
        self.most_steps = max(self.most_steps, self.steps.count() - before)
        self.most_moves = max(self.most_moves, reply.version - self._versions)
        self._versions = reply.version
        return reply


class Counted(Coordinator):
    """A client whose calls count as the group's."""

    def __init__(self, group: LargeGroup) -> None:
        super().__init__(group.backend, "g")
        self._of = group

    def execute(self, request: Request) -> CoordinatorReply:
        return self._of.execute(request)


def large(
    resources: int, members: int, different: int = 1, group: LargeGroup | None = None
) -> tuple[LargeGroup, list[Member]]:
    """A large, shared group, with this many different capacities."""
    group = group or LargeGroup()
    joined = [group.join(f"m{number:04}", capacity=1 + number % different) for number in range(members)]
    declaration = Declaration()
    declaration.declare(1, tuple(f"r{number:06}" for number in range(resources)))
    while page := declaration.next_page(0):
        declaration.answered(page, joined[0].ask(page), 0)
    group.drain()
    return group, joined


@pytest.mark.thorough
def test_twenty_thousand_resources_of_two_hundred_members() -> None:
    """Shared, shared again for one more, and again without one: even, the fewest moves, no call above its budget."""
    group, members = large(20_000, 200)
    check_shared(group, *members)
    held = tokens(*members)
    members.append(group.join("new"))
    group.drain()
    check_shared(group, *members)
    now = tokens(*members)
    assert sum(held[name] != now[name] for name in held) == 20_000 // 201
    gone = members.pop(77)
    held = tokens(*members)
    group.until_left(gone)
    group.drain()
    check_shared(group, *members)
    assert held.items() <= tokens(*members).items()
    assert group.most_moves <= MOVES + 1, "one entry may tell what caused the moves"
    group.check()


@pytest.mark.thorough
def test_looking_at_a_large_group_takes_few_short_calls() -> None:
    """Ten thousand resources of a hundred members: no page costs more than a call that makes thirty moves."""
    group, members = large(10_000, 100, group=LargeGroup("lua51"))
    group.most_steps, before = 0, group.calls
    found = GroupDescription.read(Counted(group))
    assert (len(found.resources), len(found.members), found.state) == (10_000, len(members), "Stable")
    assert {it.name: (it.owner, it.token) for it in found.resources} == tokens(*members)
    assert group.calls - before <= 31
    assert group.most_steps < MOST_STEPS / 3


def test_fifty_of_two_hundred_go_at_once() -> None:
    """A quarter of the members crashes: the others keep what they have, and share the rest."""
    group, members = large(440, 200)
    random = Random(50)
    for member in random.sample(members, 50):
        member.silent = True
    staying = [member for member in members if not member.silent]
    held = tokens(*staying)
    group.run(SETTINGS.session_timeout_ms + 1000)
    group.drain(*staying)
    check_shared(group, *staying)
    assert held.items() <= tokens(*staying).items()
    assert {len(member.holds) for member in staying} == {2, 3}
    group.check()


@pytest.mark.parametrize("different", [1, 20, 300])
@pytest.mark.thorough
def test_no_call_is_longer_for_many_different_capacities(different: int) -> None:
    """Dealt to 300 members, one more joins, one leaves: each has the floor or ceiling of its exact share, and no call
    takes more steps than in a group of equals, except for counting the capacities once.
    """
    group, members = large(3_000, 300, different, LargeGroup("lua51", moves=100))
    members.append(group.join("new", capacity=different))
    group.drain()
    group.until_left(members.pop(0))
    group.drain()
    loads, weight = group.loads(), sum(1 + number % different for number in range(1, 300)) + different
    for number, member in enumerate(members, 1):
        share = 3_000 * (1 + number % different if member.id != "new" else different) / weight
        assert floor(share) <= loads[member.id] <= ceil(share)
    assert group.most_steps < MOST_STEPS + 100 * different
    group.check()


@pytest.mark.thorough
def test_what_is_on_trial_is_not_looked_at_again_and_again() -> None:
    """Every handler of 200 members has failed once, so no member has anything that may move to one with much room: no
    call is longer for that, it is reported as settled, and the next calls cost as little as before. Once the trials are
    over it gets its share.
    """
    group, members = large(400, 200, group=LargeGroup("lua51", moves=20))
    for member in members:
        member.release(*member.holds, reason="failed")
    group.drain()
    assert {it.rank for it in group.records().resources.values()} == {"0"}
    name = min(members[0].holds)
    group.most_steps = 0
    members[0].commit(name, 1)
    alone = group.most_steps
    new = group.join("new", capacity=1_000)
    group.tick()
    assert group.most_steps < MOST_STEPS / 5
    group.check()
    group.most_steps = 0
    members[0].commit(name, 2)
    assert group.most_steps < 1.5 * alone
    group.backend.now_ms += SETTINGS.session_timeout_ms // 4
    group.run(3 * SETTINGS.session_timeout_ms)
    group.drain()
    assert len(new.holds) in (333, 334)
    group.check()


@pytest.mark.thorough
def test_no_call_is_longer_for_many_different_lists() -> None:
    """Thirty-two, one of which is long, and one shared by half of the others: a member joins, leaves, or a list has no member
    to work it.
    """
    group = LargeGroup("lua51", moves=100)
    joined = []
    for number in range(32):
        it = group.join(f"m{number}", subscription=str(number), capacity=number % 3)
        own = names(1_000) if number % 2 else (f"own-{number}",)
        group.set_resources(it, own, version=1)
        joined.append(it)
    group.drain()
    for it in joined[:16]:
        it.silent = True
    group.run(2 * SETTINGS.session_timeout_ms)
    group.drain()
    worked = sum(holder is not None for holder in group.holders().values())
    assert worked == 1_000 + sum(number % 3 > 0 for number in range(16, 32, 2))
    assert group.most_steps < MOST_STEPS


def test_a_short_list_is_known_soon_in_a_large_group() -> None:
    """Other due work does not use up every call on the way."""
    group = LargeGroup(moves=100)
    a = group.join("a", subscription="long")
    group.set_resources(a, names(2_000), version=1)
    group.drain()
    b = group.join("b", subscription="short")
    before = group.calls
    assert group.set_resources(b, ("other",), version=1) == "DONE"
    assert group.calls - before < 60
