"""Groups that change while every resource is being worked: even afterwards, with the fewest moves, every message once.

The histories are those of Apache Iggy's distribution tests (7 and 28 to 33), which have nothing in flight there.
"""

from __future__ import annotations

import pytest
from tests.coordinator.driver import Group, Member, names
from tests.coordinator.messages import Messages
from tests.coordinator.sharing import check_shared, fewest, moved, tokens


def working(group: Group, resources: int, members: int) -> tuple[Messages, list[Member]]:
    """Members that share everything, each resource busy with an uncommitted message."""
    joined = [group.join(f"m{number:02}") for number in range(members)]
    group.set_resources(joined[0], names(resources))
    group.drain()
    messages = Messages(group)
    messages.publish(names(resources), 3)
    keep_busy(messages, *joined)
    return messages, joined


def keep_busy(messages: Messages, *members: Member) -> None:
    """Gives everything they hold one more message."""
    messages.poll(*members)
    for member in members:
        member.heartbeat(*((name, tenure.token, True) for name, tenure in sorted(member.holds.items())))


@pytest.mark.parametrize(
    ("resources", "before", "after"),
    [(16, 1, 16), (12, 1, 4), (10, 1, 4), (16, 2, 8), (24, 1, 8)],
)
def test_joins_while_everything_is_in_flight(group: Group, resources: int, before: int, after: int) -> None:
    """All new members join before anything is committed; each resource moves at most once, and only as many as
    necessary.
    """
    messages, members = working(group, resources, before)
    held = tokens(*members)
    for number in range(before, after):
        members.append(group.join(f"m{number:02}"))
        group.beat()
        keep_busy(messages, *members)
    messages.drain()
    check_shared(group, *members)
    assert len(moved(held, tokens(*members))) == fewest(held, group, *members) == len(group.journal("revoking"))
    messages.poll_all()
    messages.check_each_once()


def test_six_resources_spread_over_members_that_come_one_by_one(group: Group) -> None:
    """Six resources, one member after the other until there are six: even after each join, always with the fewest
    moves.
    """
    messages, members = working(group, 6, 1)
    for number in range(1, 6):
        held = tokens(*members)
        members.append(group.join(f"m{number:02}"))
        messages.publish(names(6))
        keep_busy(messages, *members)
        messages.drain()
        check_shared(group, *members)
        assert len(moved(held, tokens(*members))) == fewest(held, group, *members)
    assert {len(member.holds) for member in members} == {1}
    messages.poll_all()
    messages.check_each_once()


def test_four_become_two_become_four(group: Group) -> None:
    """Two leave while all four are working, two others join: the survivors' work continues, and everything is even
    again each time.
    """
    messages, members = working(group, 16, 4)
    *leavers, third, fourth = members
    held = tokens(third, fourth)
    for leaver in leavers:
        assert leaver.leave() == "DRAINING"
    keep_busy(messages, third, fourth)
    messages.drain()
    assert [leaver.leave() for leaver in leavers] == ["LEFT", "LEFT"]
    check_shared(group, third, fourth)
    assert moved(held, tokens(third, fourth)) == []
    held = tokens(third, fourth)
    members = [third, fourth, group.join("m04"), group.join("m05")]
    keep_busy(messages, *members)
    messages.drain()
    check_shared(group, *members)
    assert len(moved(held, tokens(*members))) == 8
    messages.poll_all()
    messages.check_each_once()


def test_joins_leaves_and_crashes_one_after_the_other_in_one_drain(group: Group) -> None:
    """A storm of all kinds of churn, all during unfinished work, still ends even."""
    messages, members = working(group, 24, 3)
    for number in range(3, 9):
        members.append(group.join(f"m{number:02}"))
        group.beat()
        keep_busy(messages, *(member for member in members if not member.silent))
        if number % 2:
            members[number - 3].leave()
        else:
            members[number - 1].silent = True
    alive = [member for member in members if not member.silent and member.last.status == "OK" and not member.is_over]
    for _ in range(group.settings.session_timeout_ms // 1000 + 1):
        group.backend.now_ms += 1000
        messages.drain(*alive)
    for member in alive:
        if group.records().members[member.id].status == "leaving":
            assert member.leave() == "LEFT"
    staying = [member for member in alive if not member.is_over]
    messages.drain(*staying)
    assert [member.id for member in staying] == ["m01", "m06", "m08"]
    check_shared(group, *staying)
    messages.poll_all()
    assert messages.missing == []
    crashed = {member.id for member in members if member.silent}
    assert all(crashed & set(messages.handed[again]) for again in messages.again), "only the dead are repeated"
