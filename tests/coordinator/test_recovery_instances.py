"""Instance ids while a group recovers: who had one last, when the data cannot tell."""

from __future__ import annotations

import pytest
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.requests import Claim

SESSION_MS = SETTINGS.session_timeout_ms


def static_holder(group: Group) -> Member:
    """One member with an instance id, which holds everything and has committed an offset."""
    a = group.join("a", instance_id="i")
    group.set_resources(a, names(2))
    a.hear()
    a.commit("r000", 500)
    a.holds["r000"].committed = 500
    return a


def committed(group: Group, name: str = "r000") -> int | None:
    """The committed offset on record."""
    return group.records().offsets.get(name)


def keeps_everything(group: Group, holder: Member) -> None:
    """It continues under its tokens, and its offset is known, also after the recovery."""
    tokens = {name: it.token for name, it in holder.holds.items()}
    assert len(tokens) == 2
    group.run(SESSION_MS + 500)
    assert {name: it.token for name, it in holder.holds.items()} == tokens
    assert set(group.holders().values()) == {holder.id}
    assert committed(group) == 500


def test_a_double_that_is_quicker_gives_way_to_the_holder(group: Group) -> None:
    """It was refused before the loss, and calls first after it: the holder was a member, and it never was."""
    a = static_holder(group)
    assert group.join("d", instance_id="i").last.status == "INSTANCE_IN_USE"
    group.lose_data()
    double = group.join("e", instance_id="i")
    assert double.last.status == "OK"
    assert a.heartbeat().status == "REJOIN"
    a2 = a.rejoin("a2", instance_id="i")
    assert a2.last.status == "OK"
    assert double.heartbeat().status == "ENDED"
    assert double.rejoin("e2", instance_id="i").last.status == "INSTANCE_IN_USE"
    keeps_everything(group, a2)


def test_a_double_that_is_slower_is_refused(group: Group) -> None:
    """During the recovery, and afterwards."""
    a = static_holder(group)
    group.lose_data()
    a.heartbeat()
    a2 = a.rejoin("a2", instance_id="i")
    double = group.join("d", instance_id="i")
    assert double.last.status == "INSTANCE_IN_USE"
    keeps_everything(group, a2)
    assert double.join(instance_id="i").status == "INSTANCE_IN_USE"


def test_whoever_has_claimed_is_not_displaced(group: Group) -> None:
    """Two that were members in different histories: the first to claim stays."""
    a = static_holder(group)
    group.lose_data()
    a.heartbeat()
    a2 = a.rejoin("a2", instance_id="i")
    rival = group.join("b", instance_id="i", previous="b0", claims=(Claim("r000", a2.holds["r000"].token + 5, 7),))
    assert rival.last.status == "INSTANCE_IN_USE"
    keeps_everything(group, a2)


def test_the_instance_that_a_backup_names_gives_way_to_its_successor(group: Group) -> None:
    """The process was replaced since the backup was made: the one that came back is the one that works."""
    a = static_holder(group)
    backup = group.backend.dump()
    a.leave(remain=True)
    b = group.join("b", instance_id="i")
    group.run(1_000, b)
    b.commit("r000", 500)
    b.holds["r000"].committed = 500
    group.forget_tokens()
    group.restore(backup)
    assert b.heartbeat().status == "REJOIN"
    b2 = b.rejoin("b2", instance_id="i")
    assert b2.last.status == "OK"
    del group.members["a"]
    keeps_everything(group, b2)


def test_a_static_group_that_starts_again_after_a_loss_is_up_after_one_recovery(group: Group) -> None:
    """None of its processes was a member before: each has its instance id at once, and resources after the recovery."""
    static_holder(group)
    group.members.clear()
    group.lose_data()
    started = [group.join(f"n{number}", instance_id=f"i{number}") for number in range(3)]
    assert [it.last.status for it in started] == ["OK"] * 3
    assert started[0].last.recovering_ms == SESSION_MS
    group.run(SESSION_MS)
    assert group.set_resources(started[0], names(3), version=2) == "DONE"
    group.beat()
    assert sorted(group.loads().values()) == [1, 1, 1]


def test_a_claim_of_what_was_removed_does_not_turn_its_offset_back(group: Group) -> None:
    """Its offset outlives it, but the token does not: an older tenure knows nothing newer."""
    a = static_holder(group)
    old = a.holds["r000"].token - 1
    group.set_resources(a, names(2)[1:])
    group.drain()
    assert "r000" not in group.records().resources
    group.backend.identity = "another-server"
    group.forget_tokens()
    a.heartbeat()
    a.rejoin("a2", instance_id="i")
    late = group.join("x", previous="x0", claims=(Claim("r000", old, 300),))
    assert late.last.results == ("KEPT",)
    assert committed(group) == 500


def test_a_kept_member_whose_heir_has_gone_is_inherited_by_the_next_one(group: Group) -> None:
    """The recovery puts off inheriting, so the first heir leaves before it; the instance id stays the second one's."""
    a = static_holder(group)
    a.leave(remain=True)
    group.backend.identity = "another-redis"
    first = group.join("b", instance_id="i")
    first.leave()
    second = group.join("c", instance_id="i")
    assert group.join("d", instance_id="i").last.status == "INSTANCE_IN_USE"
    group.run(SESSION_MS + 500)
    assert group.loads() == {"c": 2}
    group.run(SETTINGS.rejoin_grace_ms)
    assert second.heartbeat().status == "OK"
    assert group.join("d2", instance_id="i").last.status == "INSTANCE_IN_USE"


def test_an_heir_whose_list_is_not_known_keeps_nobody_waiting(group: Group) -> None:
    """Its program cannot look for its queues: when the grace is over, others have what was kept."""
    a = static_holder(group)
    b = group.join("b")
    a.leave(remain=True)
    group.join("c", instance_id="i", subscription="another")
    group.run(SETTINGS.rejoin_grace_ms + 2 * SESSION_MS)
    assert [it["reason"] for it in group.journal("expired_member")] == ["grace"]
    assert len(b.holds) == 2


def test_all_that_were_kept_one_after_the_other_are_inherited_by_the_last(group: Group) -> None:
    """Two heirs are kept before they inherit, and one leaves: what the first kept is the last one's after the recovery."""
    a = static_holder(group)
    a.leave(remain=True)
    group.backend.identity = "another-redis"
    group.join("b", instance_id="i").leave(remain=True)
    group.join("c", instance_id="i").leave()
    group.join("d", instance_id="i").leave(remain=True)
    group.join("e", instance_id="i")
    group.run(SESSION_MS + 500)
    assert group.loads() == {"e": 2}


def test_an_heir_that_comes_in_time_inherits_also_when_the_grace_ends_in_a_recovery(group: Group) -> None:
    """Inheriting waits for the end of the recovery, so the end of the grace waits for inheriting."""
    a = static_holder(group)
    b = group.join("b", capacity=0)
    a.leave(remain=True)
    group.run(SETTINGS.rejoin_grace_ms - SESSION_MS // 2)
    group.backend.identity = "another-redis"
    b.heartbeat()
    b.rejoin("b2", capacity=0)
    group.join("c", instance_id="i")
    group.run(2 * SESSION_MS)
    assert group.loads() == {"b2": 0, "c": 2}
    assert [it["member"] for it in group.journal("inherited")] == ["a", "a"]


def static_group(group: Group) -> dict[str, str | None]:
    """Two members of instances i and j that name their resources themselves; returns which instance has which."""
    for member, instance in (("a", "i"), ("b", "j")):
        it = group.join(member, instance_id=instance, subscription="s")
        group.set_resources(it, names(6), version=1)
    group.drain()
    return instances(group, a="i", b="j")


def instances(group: Group, **of: str) -> dict[str, str | None]:
    """Resource → the instance whose process has it."""
    return {name: of.get(owner or "") for name, owner in group.holders().items()}


def come_back(group: Group, grace_left_ms: int) -> tuple[Member, Member]:
    """All are stopped; Redis fails over while the grace runs, and both heirs come then, in the other order."""
    for it in tuple(group.members.values()):
        it.leave(remain=True)
    group.members.clear()
    group.backend.now_ms += SETTINGS.rejoin_grace_ms - grace_left_ms
    group.backend.identity = "another-redis"
    d = group.join("d", instance_id="j", subscription="s")
    c = group.join("c", instance_id="i", subscription="s")
    assert [group.set_resources(it, names(6), version=1) for it in (c, d)] == ["RECOVERING"] * 2
    return c, d


@pytest.mark.parametrize("grace_left_ms", [1_000, SESSION_MS, SESSION_MS + 100], ids=["in it", "with it", "behind it"])
def test_heirs_that_name_their_resources_inherit_when_the_grace_ends_about_the_end_of_a_recovery(
    group: Group, grace_left_ms: int
) -> None:
    """Their list counts as known when it has been sent again after the recovery: the grace waits for that."""
    before = static_group(group)
    heirs = come_back(group, grace_left_ms)
    group.run(SESSION_MS + SETTINGS.heartbeat_interval_ms)
    assert heirs[0].last.recovering_ms == 0
    assert [group.set_resources(it, names(6), version=1) for it in heirs] == ["DONE", "CURRENT"]
    group.run(SETTINGS.heartbeat_interval_ms)
    group.drain()
    assert instances(group, c="i", d="j") == before
    assert sorted(it["member"] for it in group.journal("inherited")) == ["a"] * 3 + ["b"] * 3
    assert group.journal("expired_member") == []


def test_an_heir_that_comes_when_the_grace_is_over_but_the_recovery_is_not_inherits(group: Group) -> None:
    """What is kept is given to nobody before the recovery ends, so nobody is too late until then."""
    before = static_group(group)
    c, d = come_back(group, 1_000)
    c.leave()
    group.run(SESSION_MS // 2, d)
    e = group.join("e", instance_id="i", subscription="s")
    group.run(SESSION_MS, d, e)
    assert group.set_resources(d, names(6), version=1) == "DONE"
    group.run(SETTINGS.heartbeat_interval_ms, d, e)
    group.drain(d, e)
    assert instances(group, e="i", d="j") == before


def test_heirs_that_never_say_what_they_can_work_are_waited_for_one_session_timeout_after_a_recovery(
    group: Group,
) -> None:
    """Then others have what was kept."""
    static_group(group)
    come_back(group, 1_000)
    group.run(2 * SESSION_MS - SETTINGS.heartbeat_interval_ms)
    assert group.journal("expired_member") == []
    group.run(2 * SETTINGS.heartbeat_interval_ms)
    assert [it["reason"] for it in group.journal("expired_member")] == ["grace"] * 2


def test_the_grace_ends_soon_when_the_heir_it_waits_for_goes(group: Group) -> None:
    """Nobody has come for what is kept any more."""
    static_group(group)
    c, d = come_back(group, 1_000)
    group.run(SESSION_MS)
    c.leave()
    group.run(SETTINGS.heartbeat_interval_ms, d)
    assert [it["member"] for it in group.journal("expired_member")] == ["a"]


def test_nothing_is_asked_back_after_a_recovery_for_an_heir_that_will_inherit(group: Group) -> None:
    """What it can work is known when its list has been sent again; until then it keeps nothing, and is owed nothing."""
    for member, instance in (("a", "i"), ("b", "j"), ("c", "k")):
        group.set_resources(group.join(member, instance_id=instance, subscription="s"), names(9), version=1)
    group.drain()
    before, revoked = instances(group, a="i", b="j", c="k"), group.journal("revoking")
    a, b = group.members["a"], group.members["b"]
    group.members["c"].leave(remain=True)
    group.backend.identity = "another-redis"
    assert a.heartbeat().status == "REJOIN"
    heirs = [a.rejoin("a2", instance_id="i", subscription="s"), b.rejoin("b2", instance_id="j", subscription="s")]
    heirs.append(group.join("d", instance_id="k", subscription="s"))
    group.run(SESSION_MS + SETTINGS.heartbeat_interval_ms)
    assert [group.set_resources(it, names(9), version=1) for it in heirs] == ["DONE", "CURRENT", "CURRENT"]
    group.run(SETTINGS.heartbeat_interval_ms)
    group.drain()
    assert instances(group, a2="i", b2="j", d="k") == before
    assert group.journal("revoking") == revoked
