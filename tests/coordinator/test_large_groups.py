"""Groups of a size at which work that is not bounded would show: Kafka's large assignments, call by call.

Kafka gives its assignor 30 s for 2,000 members and 1,000,000 partitions in one piece. Here no call may do more than its
budget however large the group is, and that is what is checked: by the moves each call makes. Sizes are a
fiftieth of Kafka's so that the suite stays quick; what larger ones cost a Redis is measured by `cobalance bench`.
"""

from __future__ import annotations

from random import Random

import attrs
from tests.coordinator.backends import MemoryBackend
from tests.coordinator.driver import SETTINGS, Group, Member
from tests.coordinator.sharing import check_shared, tokens

from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Request
from cobalance.declaration import Declaration

MOVES = 500


class LargeGroup(Group):
    """Its records are looked at when a test says so: after every call would take hours. What each call did is counted."""

    def __init__(self) -> None:
        super().__init__(MemoryBackend("luajit21"), attrs.evolve(SETTINGS, moves_per_call=MOVES, journal_length=1_000))
        self.most_moves = 0
        self._versions = 0

    def execute(self, request: Request) -> CoordinatorReply:
        """Each move is an entry of the journal, and each entry a version."""
        reply = self.coordinator.execute(request)
        self.most_moves = max(self.most_moves, reply.version - self._versions)
        self._versions = reply.version
        return reply


def large(resources: int, members: int) -> tuple[LargeGroup, list[Member]]:
    """A large group, shared out."""
    group = LargeGroup()
    joined = [group.join(f"m{number:04}") for number in range(members)]
    declaration = Declaration()
    declaration.declare(1, tuple(f"r{number:06}" for number in range(resources)))
    while page := declaration.next_page(0):
        declaration.answered(page, joined[0].ask(page), 0)
    group.drain()
    return group, joined


def test_twenty_thousand_resources_of_two_hundred_members() -> None:
    """Shared out, shared out again for one more, and again without one: even, the fewest moves, no call above its budget."""
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


def test_fifty_of_two_hundred_go_at_once() -> None:
    """A quarter of the members crashes: the others keep what they have, and share what was left behind."""
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
