"""Sticky and even: the cases of Kafka's sticky assignor, played on the coordinator.

Kafka computes an assignment from what members say they own under which generation. Here they say it with claims and
tokens, or come to own it by the history itself; topics are prefixes of names. What Kafka asserts about one computation
is asserted about the group after it has drained: everything held once, loads within one, and no tenure ended that could
have continued.
"""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.claimed import Owned, claimed
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.sharing import check_shared, fewest, moved, tokens


def topics(**partitions: int) -> tuple[str, ...]:
    """All partitions of these topics."""
    return tuple(sorted(f"{topic}-{number:03}" for topic, count in partitions.items() for number in range(count)))


def shared(group: Group, ids: str, wanted: tuple[str, ...]) -> list[Member]:
    """Members that share a list."""
    members = group.joined(ids)
    group.set_resources(members[0], wanted)
    group.drain()
    check_shared(group, *members)
    return members


# -- from nothing ------------------------------------------------------------------------------------------------------


def test_without_a_list_there_is_nothing_to_assign(group: Group) -> None:
    """A member of a group without a list has nothing."""
    a = group.join("a")
    group.run(10_000)
    assert a.holds == {}
    assert a.heartbeat().status == "OK"


@pytest.mark.parametrize(
    "wanted",
    [(), topics(t=3), topics(t=1, u=2), topics(t=1, u=100)],
    ids=["nothing", "a topic", "two topics", "a large topic"],
)
def test_one_member_has_whatever_there_is(group: Group, wanted: tuple[str, ...]) -> None:
    """An empty list, a topic, two topics: all of it, and nothing else."""
    (a,) = group.joined("a")
    group.set_resources(a, wanted)
    group.drain()
    assert sorted(a.holds) == list(wanted)
    check_shared(group, a)


@pytest.mark.parametrize(
    ("ids", "wanted", "loads"),
    [
        ("ab", topics(t=1), [0, 1]),
        ("ab", topics(t=2), [1, 1]),
        ("ab", topics(t=3, u=3), [3, 3]),
        ("abcd", topics(t=2, u=1, v=2, w=1, x=2), [2, 2, 2, 2]),
        ("abcdefgh", topics(**{f"t{i:02}": i for i in range(1, 15)}), [13] * 7 + [14]),
    ],
    ids=["1 of 2", "2 of 2", "6 of 2", "8 of 4", "105 of 8"],
)
def test_members_of_one_list_share_it(group: Group, ids: str, wanted: tuple[str, ...], loads: list[int]) -> None:
    """Whatever topics the names belong to."""
    members = shared(group, ids, wanted)
    assert sorted(len(member.holds) for member in members) == loads


def test_what_is_not_on_the_list_is_not_assigned_though_claimed(backend: Backend) -> None:
    """A member that also claims partitions of another topic is left what is on the list, and nothing else."""
    owned = {"a": {"t-000": 7, "t-001": 8, "other-000": 9, "other-001": 10}}
    group, (a,) = claimed(backend, owned, topics(t=2))
    group.drain()
    assert {name: tenure.token for name, tenure in a.holds.items()} == {"t-000": 7, "t-001": 8}
    check_shared(group, a)


# -- from what members own -----------------------------------------------------------------------------------------------


def own(*numbers: int, token: int = 10) -> dict[str, int]:
    """Resources by number, all under one token."""
    return {f"r{number:03}": token for number in numbers}


CLAIMS: dict[str, tuple[Owned, int, dict[str, tuple[int, ...]]]] = {
    "who owns its floor may get its ceil": ({"a": own(0, 2), "b": own(1, 3)}, 5, {"a": (0, 2), "b": (1, 3)}),
    "all below their floor": ({"a": own(0), "b": own(1), "c": {}}, 5, {"a": (0,), "b": (1,)}),
    "one is full, one nearly, one empty": ({"a": own(0, 1), "b": own(2), "c": {}}, 4, {"a": (0, 1), "b": (2,)}),
    "uneven, and made even by what is new": (
        {"a": own(0, 1), "b": own(2, 3, 4), "c": own(5, 6, 7, 8), "d": {}}, 24,
        {"a": (0, 1), "b": (2, 3, 4), "c": (5, 6, 7, 8)},
    ),
    "a stale owner of the same": ({"a": own(0, 2, 4), "b": own(0, 2, 4, token=9)}, 6, {"a": (0, 2, 4)}),
    "an owner that proves nothing": ({"a": own(0, 2, 4), "b": own(0, 2, 4, token=1)}, 6, {"a": (0, 2, 4)}),
    "a stale owner of some of it": ({"a": own(0, 4, 1), "b": own(0, 4, 5, token=8)}, 6, {"a": (0, 1, 4), "b": (5,)}),
    "each to its highest token": (
        {"a": own(0, 3, 6), "b": own(1, 4, 7, token=9), "c": own(4, 6, 8, token=8)}, 9,
        {"a": (0, 3, 6), "b": (1, 4, 7), "c": (8,)},
    ),
    "owners of different ages, and a newcomer": (
        {"a": {}, "b": own(0, 6, 3, token=9), "c": own(11, 8, 4, token=8), "d": own(10, 1, 2, token=7)}, 12,
        {"b": (0, 3, 6), "c": (4, 8, 11), "d": (1, 2, 10)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CLAIMS)
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "the last first"])
def test_what_is_rightly_owned_stays(backend: Backend, case: str, order: int) -> None:
    """The highest token owns; the rest goes where it makes the group even, and no rightful tenure ends for it."""
    owned, count, stays = CLAIMS[case]
    group, members = claimed(backend, dict([*owned.items()][::order]), names(count))
    group.drain()
    check_shared(group, *members)
    for id_, numbers in stays.items():
        held = {name: tenure.token for name, tenure in group.members[id_].holds.items() if tenure.token <= 10}
        assert held == {f"r{number:03}": owned[id_][f"r{number:03}"] for number in numbers}
    assert not group.journal("revoking")


def test_too_many_with_a_ceiling_lose_one(backend: Backend) -> None:
    """2 and 2 and a new member: one of them may keep its two, one resource moves, and it is one of theirs."""
    owned = {"a": own(0, 2), "b": own(1, 3), "c": {}}
    group, members = claimed(backend, owned, names(4))
    group.drain()
    check_shared(group, *members)
    kept = [name for member in members for name, tenure in member.holds.items() if tenure.token == 10]
    assert len(kept) == 3
    assert len(group.journal("revoking")) == 1
    (newcomers,) = members[2].holds
    assert newcomers not in kept


def test_two_claims_under_one_token_make_one_owner(backend: Backend) -> None:
    """This cannot happen among correct members: one keeps it, the other hears of it, nothing is worked twice."""
    group, (a, b, c) = claimed(backend, {"a": own(0, 1), "b": own(0, 2), "c": {}}, names(3))
    assert [member.works_on("r000") for member in (a, b, c)].count(True) == 1
    group.drain()
    check_shared(group, a, b, c)
    assert {len(member.holds) for member in (a, b, c)} == {1}
    (stays,), (other,) = a.holds, c.holds
    assert {stays, other} == {"r000", "r001"}
    assert a.holds[stays].token == 10
    assert c.holds[other].token > 10
    assert list(b.holds) == ["r002"]


@pytest.mark.parametrize("order", tuple(permutations((1, 2, 3))), ids=str)
def test_three_claims_of_three_ages_make_one_owner(backend: Backend, order: tuple[int, int, int]) -> None:
    """The same resource claimed by three, whichever claim is newest: one holder, the highest token, one or two each."""
    first, second, third = order
    owned = {"a": own(0, 2, token=first), "b": own(1, 2, 3, token=second), "c": own(2, 4, 5, token=third), "d": own(6)}
    group, members = claimed(backend, owned, names(7))
    workers = {member.id for member in members if member.works_on("r002")}
    assert workers == {"abc"[order.index(3)]}
    group.drain()
    check_shared(group, *members)
    assert {len(member.holds) for member in members} == {1, 2}


# -- from one assignment to the next ---------------------------------------------------------------------------------------


def test_one_more_and_one_fewer(group: Group) -> None:
    """3 at one; 2 and 1 when another one joins; 3 again at that one when the first has left."""
    (a,) = shared(group, "a", names(3))
    held = tokens(a)
    b = group.join("b")
    group.drain()
    check_shared(group, a, b)
    assert len(moved(held, tokens(a, b))) == 1
    (kept,) = held = tokens(b)
    group.until_left(a)
    group.drain()
    check_shared(group, b)
    assert tokens(b)[kept] == held[kept]


def test_two_more_and_two_fewer(group: Group) -> None:
    """7 on two, then on four, then on the two that joined last: three move, then only what the leaving ones had."""
    a, b = shared(group, "ab", topics(t=3, u=4))
    held = tokens(a, b)
    c, d = group.joined("cd")
    group.drain()
    check_shared(group, a, b, c, d)
    assert len(moved(held, tokens(a, b, c, d))) == 3
    held = tokens(c, d)
    group.until_left(a)
    group.until_left(b)
    group.drain()
    check_shared(group, c, d)
    assert sorted(len(member.holds) for member in (c, d)) == [3, 4]
    assert moved(held, tokens(c, d)) == []


def test_a_topic_more_and_a_topic_fewer(group: Group) -> None:
    """3 on two; a second topic of 3 moves nothing; without the first one again within one, and only what must moves."""
    a, b = shared(group, "ab", topics(t=3))
    held = tokens(a, b)
    group.set_resources(a, topics(t=3, u=3))
    group.drain()
    check_shared(group, a, b)
    assert len(a.holds) == len(b.holds) == 3
    assert moved(held, tokens(a, b)) == []
    held = tokens(a, b)
    group.set_resources(a, topics(u=3))
    group.drain()
    check_shared(group, a, b)
    assert len(moved(held, tokens(a, b))) == fewest(held, group, a, b)


@pytest.mark.parametrize(("resources", "members"), [(20, 9), (105, 8), (190, 19)])
def test_one_comes_and_one_goes(backend: Backend, resources: int, members: int) -> None:
    """The fewest moves for a new member; only its own for one that leaves."""
    group = Group(backend)
    joined = [group.join(f"m{number:02}") for number in range(members)]
    group.set_resources(joined[0], names(resources))
    group.drain()
    held = tokens(*joined)
    joined.append(group.join("new"))
    group.drain()
    check_shared(group, *joined)
    assert len(moved(held, tokens(*joined))) == _least(held, resources, members + 1)
    leaver = joined.pop(members // 2)
    held = tokens(*joined)
    group.until_left(leaver)
    group.drain()
    check_shared(group, *joined)
    assert moved(held, tokens(*joined)) == []


def _least(held: dict[str, tuple[str, int]], resources: int, members: int) -> int:
    """Floors for all, as many ceilings as there are to those that have them: the oracle would try too many choices
    here.
    """
    floor, extras = divmod(resources, members)
    loads = [sum(owner == id_ for owner, _ in held.values()) for id_ in {owner for owner, _ in held.values()}]
    keep = sum(min(load, floor) for load in loads) + min(extras, sum(load > floor for load in loads))
    return resources - keep


def test_who_has_one_keeps_it_when_the_first_member_goes(group: Group) -> None:
    """3 on four: the first leaves, the remaining three have one each, and it is the one they had."""
    members = shared(group, "abcd", names(3))
    held = tokens(*members[1:])
    group.until_left(members[0])
    group.drain()
    check_shared(group, *members[1:])
    assert {len(member.holds) for member in members[1:]} == {1}
    assert moved(held, tokens(*members[1:])) == []


def test_a_deleted_topic_among_others_is_all_that_goes(group: Group) -> None:
    """One member with three topics, one of which is deleted: it has the other 101, under the tokens it had."""
    (a,) = shared(group, "a", topics(t=1, u=5, v=100))
    held = tokens(a)
    group.set_resources(a, topics(t=1, v=100))
    group.drain()
    assert sorted(a.holds) == list(topics(t=1, v=100))
    assert moved(held, tokens(a)) == []
    check_shared(group, a)


def test_when_the_only_topic_is_deleted_its_member_stays_with_nothing(group: Group) -> None:
    """It is still a member, and gets the next list."""
    (a,) = shared(group, "a", topics(t=3))
    group.set_resources(a, ())
    group.drain()
    assert not a.holds
    assert not group.holders()
    assert a.heartbeat().status == "OK"
    group.set_resources(a, topics(t=3))
    group.drain()
    assert len(a.holds) == 3


# -- in rounds -------------------------------------------------------------------------------------------------------------


def churn(group: Group) -> list[Member]:
    """Members come and go and the list changes, thirty times, while only every other one completes its drains."""
    members, leaving = shared(group, "abc", names(11)), []
    for step in range(30):
        if step % 5 == 4:
            leaving.append(members.pop(step % len(members)))
            leaving[-1].leave()
        elif step % 3 == 0:
            members.append(group.join(f"n{step}"))
        group.set_resources(members[0], names(8 + step % 7))
        group.beat()
        for member in members[step % 2 :: 2]:
            member.release_pending()
    group.drain()
    for member in leaving:
        group.until_left(member)
    return members


def test_nothing_is_granted_while_it_is_asked_back(group: Group) -> None:
    """Two rounds: between a revocation and the next grant the holder has answered, or its time was up."""
    churn(group)
    seen: dict[str, str] = {}
    for entry in group.journal("revoking", "granted", "released", "cancelled", "forced", "expired", "withdrawn"):
        before, seen[entry["resource"]] = seen.get(entry["resource"], ""), entry["kind"]
        assert entry["kind"] != "granted" or before not in ("revoking", "cancelled", "granted"), entry
    assert {"revoking", "cancelled", "released"} <= {entry["kind"] for entry in group.journal()}


@pytest.mark.thorough
def test_rounds_until_nothing_is_asked_back_end_even_and_at_rest(group: Group) -> None:
    """After any churn: even, and settling again changes nothing."""
    members = churn(group)
    group.drain()
    check_shared(group, *members)
    held = tokens(*members)
    group.run(20 * SETTINGS.heartbeat_interval_ms)
    assert not group.tick().more
    assert tokens(*members) == held
