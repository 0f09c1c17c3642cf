"""The resource list grows and shrinks under working members: nothing is lost or duplicated, with the fewest moves.

The histories are those of Apache Iggy's partition tests (4 to 6 and 8 to 14). They check the assignments; here every
message is counted as well, all of it uncommitted until a member has to let go.
"""

from __future__ import annotations

import pytest
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.messages import Messages
from tests.coordinator.sharing import check_shared, fewest, moved, tokens


def working(group: Group, resources: int, ids: str) -> tuple[Messages, list[Member]]:
    """Members that share everything, each resource with an uncommitted message."""
    members = group.joined(ids)
    group.set_resources(members[0], names(resources))
    group.drain()
    messages = Messages(group)
    messages.publish(names(resources), 2)
    messages.poll()
    return messages, members


def change_list(messages: Messages, wanted: tuple[str, ...], *members: Member) -> None:
    """Declares another list, while all members keep polling and then drain."""
    messages.group.set_resources(members[0], wanted)
    messages.publish(wanted)
    messages.poll(*members)
    messages.drain(*members)


@pytest.mark.parametrize("ids", ["ab", "abc"])
def test_growing_under_polls_loses_no_message(group: Group, ids: str) -> None:
    """3 become 6 while all members poll, without a commit in between: work continues, and every message is delivered
    once.
    """
    messages, members = working(group, 3, ids)
    held = tokens(*members)
    change_list(messages, names(6), *members)
    check_shared(group, *members)
    assert {len(member.holds) for member in members} == {6 // len(ids)}
    assert moved(held, tokens(*members)) == []
    messages.poll_all()
    messages.check_each_once()


def test_growing_page_by_page_under_polls_loses_no_message(group: Group) -> None:
    """The same list one page at a time, with polls of all members between the pages."""
    messages, members = working(group, 3, "ab")
    for count in range(4, 10):
        group.set_resources(members[count % 2], names(count))
        messages.publish(names(count))
        messages.poll(members[count % 2])
        group.beat()
        messages.poll()
    messages.drain()
    check_shared(group, *members)
    messages.poll_all()
    messages.check_each_once()
    assert not group.journal("forced", "expired", "abandoned")


def test_the_survivor_has_all_and_a_newcomer_takes_half(group: Group) -> None:
    """3 become 6, one of two disconnects, another one joins: the survivor has 6, then 3 and 3; three moved in all."""
    messages, (survivor, gone) = working(group, 3, "ab")
    change_list(messages, names(6), survivor, gone)
    gone.silent = True
    held = tokens(survivor)
    group.run(SETTINGS.session_timeout_ms + 1000, survivor)
    check_shared(group, survivor)
    assert len(survivor.holds) == 6
    assert moved(held, tokens(survivor)) == []
    newcomer = group.join("c")
    held = tokens(survivor)
    messages.drain(survivor, newcomer)
    check_shared(group, survivor, newcomer)
    assert len(moved(held, tokens(survivor, newcomer))) == 3
    messages.poll_all()
    assert messages.missing == []
    assert all("b" in messages.handed[again] for again in messages.again), "only what the dead one had not committed"


@pytest.mark.parametrize("rest", [names(3), names(6)[::2], names(6)[3:], ("r000", "r003", "r004")])
def test_shrinking_under_polls_keeps_one_each(group: Group, rest: tuple[str, ...]) -> None:
    """6 become 3, whichever three: one each, and only those move that must."""
    messages, members = working(group, 6, "abc")
    held = tokens(*members)
    change_list(messages, rest, *members)
    check_shared(group, *members)
    assert {len(member.holds) for member in members} == {1}
    assert len(moved(held, tokens(*members))) == fewest(held, group, *members)
    messages.poll_all()
    assert messages.again == []
    assert not [message for message in messages.missing if message[0] in rest]


def test_work_in_hand_on_a_deleted_resource_is_committed_before_it_goes(group: Group) -> None:
    """Uncommitted work does not vanish with its resource: the holder is asked, finishes and commits, and then it is
    gone.
    """
    messages, members = working(group, 6, "abc")
    group.set_resources(members[0], names(3))
    group.beat()
    assert set(group.holders()) == set(names(6))
    leaving = {name: member for member in members for name in member.pending}
    assert sorted(leaving) == list(names(6)[3:])
    for name, member in leaving.items():
        assert member.release(name, delivered=1, committed=0) == ("UNCOMMITTED",)
        assert group.holders()[name] == member.id
        assert messages.release(member, name) == ("OK",)
    assert group.records().offsets == dict.fromkeys(leaving, 1)
    check_shared(group, *members)
    assert messages.poll() == list(names(3))
    assert messages.again == []


def test_three_six_nine_and_a_join(group: Group) -> None:
    """Two rapid changes of the list and a new member, before anything was drained: 3 each, every message once."""
    messages, members = working(group, 3, "ab")
    for count in (6, 9):
        group.set_resources(members[0], names(count))
        messages.publish(names(count))
        messages.poll()
    members.append(group.join("c"))
    messages.poll()
    messages.drain()
    check_shared(group, *members)
    assert {len(member.holds) for member in members} == {3}
    messages.poll_all()
    messages.check_each_once()


def test_shrinking_and_growing_back_in_one_drain_moves_nothing(group: Group) -> None:
    """9 become 3 become 9 before anything was finished: the deletion is cancelled, and work continues as it was."""
    messages, members = working(group, 9, "abc")
    held = tokens(*members)
    group.set_resources(members[0], names(3))
    group.beat()
    group.set_resources(members[1], names(9))
    messages.drain()
    check_shared(group, *members)
    assert moved(held, tokens(*members)) == []
    messages.poll_all()
    messages.check_each_once()


def test_who_comes_after_the_growth_takes_its_share(group: Group) -> None:
    """3 become 6 at one member, then a second one joins: 3 each; it continues after what the holder committed."""
    messages, (first,) = working(group, 3, "a")
    change_list(messages, names(6), first)
    held = tokens(first)
    second = group.join("b")
    messages.drain()
    check_shared(group, first, second)
    assert len(first.holds) == len(second.holds) == 3
    assert len(moved(held, tokens(first, second))) == 3
    polled = messages.poll()
    assert sorted(polled) == sorted(set(polled))
    messages.poll_all()
    messages.check_each_once()


def test_growing_while_a_revocation_is_pending(group: Group) -> None:
    """4 of one member, 2 asked back for a new one, then 6: 3 each, and what need not move any more is cancelled."""
    messages, (first,) = working(group, 4, "a")
    second = group.join("b")
    first.hear()
    assert len(first.pending) == 2
    held = tokens(first)
    change_list(messages, names(6), first, second)
    check_shared(group, first, second)
    assert len(first.holds) == len(second.holds) == 3
    assert len(moved(held, tokens(first, second))) == 1
    assert len(group.journal("cancelled")) == 1
    messages.poll_all()
    messages.check_each_once()
