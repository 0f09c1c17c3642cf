"""Release and commit: what is accepted, from which member, and the effect of giving up."""

from __future__ import annotations

from tests.coordinator.driver import SETTINGS, Group, Member, Tenure, names

AVOID_MS = 3 * SETTINGS.session_timeout_ms


def holder(group: Group, count: int = 1) -> Member:
    """A member that holds everything."""
    a = group.join("a")
    group.set_resources(a, names(count))
    a.hear()
    return a


def test_a_release_is_refused_while_more_was_delivered_than_committed(group: Group) -> None:
    """Unfinished work is not handed over by mistake."""
    a = holder(group)
    assert a.release("r000", delivered=5, committed=4) == ("UNCOMMITTED",)
    assert group.holders() == {"r000": "a"}
    assert a.release("r000", delivered=5, committed=5) == ("OK",)


def test_one_call_commits_and_frees(group: Group) -> None:
    """The next holder starts from the offset that came with the release."""
    a = holder(group)
    a.commit("r000", 10)
    b = group.join("b")
    a.leave()
    a.release("r000", offset=42)
    b.hear()
    assert b.holds["r000"].committed == 42


def test_a_release_does_not_lower_the_offset(group: Group) -> None:
    """It is refused as a whole, so that nothing is freed with a wrong offset."""
    a = holder(group)
    a.commit("r000", 10)
    assert a.release("r000", offset=9) == ("REGRESSED",)
    assert group.holders() == {"r000": "a"}
    assert group.records().offsets == {"r000": 10}


def test_a_committed_offset_never_falls(group: Group) -> None:
    """An equal one is fine, a lower one refused."""
    a = holder(group)
    assert a.commit("r000", 10) == "OK"
    assert a.commit("r000", 10) == "OK"
    assert a.commit("r000", 9) == "REGRESSED"
    assert group.records().offsets == {"r000": 10}


def test_the_lowest_offset_says_that_there_is_a_start_to_find(group: Group) -> None:
    """Then comes -1, before the first; no lower one is taken, and nobody turns back to it."""
    a = holder(group)
    assert [a.commit("r000", it) for it in (-3, -2, -2, -1, -2)] == ["REGRESSED", "OK", "OK", "OK", "REGRESSED"]
    assert group.records().offsets == {"r000": -1}


def test_only_the_present_tenure_may_commit_or_release(group: Group) -> None:
    """Another member, another token, or an unknown resource is fenced."""
    a = holder(group)
    b = group.join("b")
    token = a.holds["r000"].token
    assert b.commit("r000", 1, token) == "FENCED"
    assert a.commit("r000", 1, token - 1) == "FENCED"
    assert a.commit("nothing", 1, token) == "FENCED"
    b.holds["r000"] = Tenure(token)
    assert b.release("r000") == ("FENCED",)
    assert group.holders() == {"r000": "a"}


def test_commits_go_on_while_a_revocation_is_pending(group: Group) -> None:
    """That is the purpose of draining."""
    a = holder(group, 2)
    group.join("b")
    a.hear()
    assert a.commit(a.pending[0], 3) == "OK"


def test_a_batch_is_judged_one_by_one(group: Group) -> None:
    """One bad item does not affect the others."""
    a = holder(group, 2)
    good = a.holds["r000"].token
    a.holds["r001"] = Tenure(1)
    assert a.release("r000", "r001") == ("OK", "FENCED")
    assert group.records().resources["r000"].token > good


def test_giving_up_raises_the_token_and_avoids_the_giver(group: Group) -> None:
    """A hung handler's resource goes to another member, though the giver has fewer."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    name = min(a.holds)
    token = a.holds[name].token
    assert a.release(name, delivered=5, committed=1, reason="hung") == ("OK",)
    b.hear()
    assert b.holds[name].token > token + 1  # once for the giving up, once for the grant
    assert group.journal("abandoned")[0]["reason"] == "hung"
    group.drain()
    assert group.loads() == {"a": 2, "b": 2}
    group.run(AVOID_MS - 1000)
    assert group.holders()[name] == "b"


def test_the_avoidance_ends(group: Group) -> None:
    """After a while the giver may have it again."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    name = min(a.holds)
    a.release(name, reason="hung")
    group.drain()
    group.run(AVOID_MS + 1000)
    b.leave()
    group.drain()
    assert group.holders()[name] == "a"


def test_who_is_alone_gets_it_back(group: Group) -> None:
    """Better the giver than no member: at once, and under a new token."""
    a = holder(group)
    token = a.holds["r000"].token
    a.release("r000", reason="hung")
    a.hear()
    assert a.holds["r000"].token > token


def test_standbys_and_those_kept_for_a_grace_are_no_company(group: Group) -> None:
    """Members that cannot be assigned anything do not keep the giver from getting it back."""
    a = holder(group)
    group.join("s", capacity=0)
    parked = group.join("p", instance_id="one")
    parked.leave(remain=True)
    a.release("r000", reason="hung")
    assert group.holders() == {"r000": "a"}


def test_a_pinned_resource_is_not_bounced(group: Group) -> None:
    """The member that took it over has one too many, and gives back another one instead."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    name = min(a.holds)
    a.release(name, reason="hung")
    b.hear()
    assert len(b.pending) == 1
    assert name not in b.pending
    group.drain()
    assert group.loads() == {"a": 2, "b": 2}


def test_only_pinned_ones_wait_until_they_may_move(group: Group) -> None:
    """One resource, given up by one of two: the other keeps it; the group rests and is even again."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    (only,) = a.holds
    b.hear()
    for name in (only,):
        a.release(name, reason="hung")
    b.hear()
    other = next(name for name in b.holds if name != only)
    b.release(other, reason="hung")
    group.drain()
    assert group.loads() == {"a": 1, "b": 1}
    group.run(AVOID_MS + 2000)
    group.drain()
    assert all(record.rank != "0" for record in group.records().resources.values())


def test_a_leaver_that_gives_up_is_not_given_it_back(group: Group) -> None:
    """Its drain timed out: what it could not finish stays free until another member joins."""
    a = holder(group)
    a.leave()
    a.hear()
    a.release("r000", reason="drain timeout".replace(" ", "_"))
    assert group.holders() == {"r000": None}
    assert a.leave() == "LEFT"


def test_pinned_and_removed_and_back_again_is_not_pinned_for_ever(group: Group) -> None:
    """A pin ends with its avoidance, whatever happened to the resource meanwhile."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    (name,) = a.holds
    a.release(name, reason="hung")
    b.hear()
    rest = tuple(other for other in names(2) if other != name)
    group.run(AVOID_MS - 2000)
    assert group.records().resources[name].rank == "0"
    group.set_resources(b, rest)
    group.run(3000)
    assert group.records().resources[name].status == "pending"
    group.set_resources(b, names(2))
    group.drain()
    assert group.records().resources[name].rank == "2"


def test_tokens_lie_above_the_last_the_time_and_the_members_highest(group: Group) -> None:
    """`max(last + 1, highest reported + 1, now in µs)`."""
    a = holder(group)
    now_us = group.backend.now_ms * 1000
    first = a.holds["r000"].token
    assert first >= now_us
    a.release("r000")
    a.hear()
    assert a.holds["r000"].token > first
    far = now_us + 10**12
    group.join("b", floor_token=far)
    a.release("r000")
    group.beat()
    assert group.records().resources["r000"].token > far


def test_tokens_rise_although_the_clock_steps_back(group: Group) -> None:
    """A wrong clock cannot issue an old token."""
    a = holder(group)
    for _ in range(3):
        before = a.holds["r000"].token
        group.step_clock(-50_000)
        a.release("r000")
        a.hear()
        assert a.holds["r000"].token > before
