"""An administrator's reset of committed offsets: only without members, journalled, and fencing former holders."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, Tenure, names

from cobalance.coordinator.transport import CALL_TIMEOUT_MS
from cobalance.errors import GroupActive, UnknownGroup, Unreachable


def idle_group(group: Group, offset: int = 10) -> tuple[Member, int]:
    """A group whose only member held r000, committed, and left; that member, and its token."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    token = a.holds["r000"].token
    a.commit("r000", offset)
    group.until_left(a)
    return a, token


def test_an_offset_is_set_lower_and_journalled(group: Group) -> None:
    """The only way in which a committed offset decreases. The journal has both values."""
    idle_group(group)
    group.coordinator.reset_offsets({"r000": 3})
    assert group.records().offsets == {"r000": 3}
    (entry,) = group.journal("reset")
    assert (entry["resource"], entry["committed"], entry["reason"]) == ("r000", "3", "was 10")


def test_the_next_holder_begins_at_the_new_offset(group: Group) -> None:
    """And commits from there on."""
    idle_group(group)
    group.coordinator.reset_offsets({"r000": -1})
    b = group.join("b")
    b.hear()
    assert b.holds["r000"].committed == -1
    assert b.commit("r000", 0) == "OK"


@pytest.mark.parametrize(
    "order",
    [
        lambda it: it.reset_offsets({"r000": 3}),
        lambda it: it.resume("r000"),
        lambda it: it.configure(gather_ms=7),
        lambda it: it.trust_offsets(),
        lambda it: it.delete(force=True),
    ],
    ids=["reset", "resume", "configure", "trust", "delete"],
)
def test_a_late_copy_of_an_administrators_call_does_nothing(group: Group, order: Any) -> None:
    """It was given up, and perhaps sent again; since then things have gone on, and nobody waits for its answer."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    a.release("r000", delivered=1, reason="halted:handler")
    sent: list[Any] = []
    call = group.backend.call

    def lose(*request: Any) -> Any:
        if request[0].name in {"reset_offsets", "resume", "configure", "delete"}:
            sent.append(request)
            raise Unreachable("no answer", outcome="unknown")
        return call(*request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.backend, "call", lose)
        with pytest.raises(Unreachable):
            order(group.coordinator)
    group.backend.now_ms += CALL_TIMEOUT_MS + 1
    group.tick()
    before = group.backend.dump()
    (late,) = sent
    reply = call(*late)
    assert isinstance(reply, list)
    assert reply[0] == b"LATE"
    assert group.backend.dump() == before
    order(group.coordinator)
    assert group.backend.dump() != before


def test_what_is_halted_is_resumed(group: Group) -> None:
    """It may be halted over its very offset. Members need not leave, since nobody works it."""
    a = group.join("a")
    group.set_resources(a, names(3))
    a.hear()
    for name in ("r000", "r001"):
        assert a.release(name, delivered=3, committed=1, reason="halted:OffsetUnknown") == ("OK",)
    with pytest.raises(GroupActive):
        group.coordinator.reset_offsets({"r000": 3, "r002": 3})
    assert group.coordinator.reset_offsets({"r000": 3}) == ["r000"]
    assert group.coordinator.resume("r000", "r001") == {"r000": "NOT_HALTED", "r001": "OK"}
    assert [it["resource"] for it in group.journal("resumed")] == ["r000", "r001"]
    group.drain()
    assert a.holds["r000"].committed == 3
    group.until_left(a)
    assert group.coordinator.reset_offsets({"r000": 4, "r001": 4}) == []


def test_a_group_with_members_is_left_alone(group: Group) -> None:
    """A member would continue from its position, and commit over the reset."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    a.commit("r000", 10)
    with pytest.raises(GroupActive, match=r"has members.* what is halted can be reset before that"):
        group.coordinator.reset_offsets({"r000": 3})
    assert group.records().offsets == {"r000": 10}
    assert group.journal("reset") == []


def test_a_member_that_went_silent_counts_until_its_session_is_over(group: Group) -> None:
    """It may be cut off from Redis and still working."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    group.backend.now_ms += 100 * SETTINGS.session_timeout_ms
    with pytest.raises(GroupActive):
        group.coordinator.reset_offsets({"r000": 3})
    for _ in range(4):  # the group has to be called meanwhile, or the silence may have been an outage
        group.backend.now_ms += SETTINGS.heartbeat_interval_ms
        group.tick()
    group.coordinator.reset_offsets({"r000": 3})
    assert group.records().offsets == {"r000": 3}


def test_a_member_kept_for_its_return_counts_too(group: Group) -> None:
    """Its instance id will return to what it held."""
    a = group.join("a", instance_id="pod-0")
    group.set_resources(a, names(1))
    a.hear()
    assert a.leave(remain=True) == "LEFT"
    with pytest.raises(GroupActive):
        group.coordinator.reset_offsets({"r000": 3})


def test_a_group_that_is_recovering_is_left_alone(group: Group) -> None:
    """Members may be about to claim what they hold, with its offsets."""
    idle_group(group)
    group.backend.identity = "another-redis"
    with pytest.raises(GroupActive, match="who holds what"):
        group.coordinator.reset_offsets({"r000": 3})
    assert group.records().offsets == {"r000": 10}


def test_who_held_it_before_can_neither_commit_nor_claim(group: Group) -> None:
    """A frozen holder that wakes up after the reset must not undo it, not even by a later loss of data."""
    a, token = idle_group(group)
    group.coordinator.reset_offsets({"r000": 3})
    group.backend.identity = "another-redis"
    a.holds["r000"] = Tenure(token, committed=10)
    a.silent = a.is_over = False
    back = a.rejoin("a2")
    assert back.last.results == ("LOST",)
    assert group.records().offsets == {"r000": 3}


def test_a_resource_that_nobody_listed_yet_can_be_given_an_offset(group: Group) -> None:
    """The start of a new group is decided before its first member starts."""
    group.coordinator.reset_offsets({"r000": 41})
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    assert a.holds["r000"].committed == 41


def test_an_offset_of_a_resource_nobody_lists_is_dropped_in_the_end(group: Group) -> None:
    """A mistyped name does not cost anything for long."""
    group.coordinator.reset_offsets({"typo": 41})
    group.backend.now_ms += 8 * 24 * 3_600_000
    group.tick()
    assert group.records().offsets == {}


def test_there_must_be_a_group(backend: Backend) -> None:
    """A mistyped group is not created by resetting it."""
    with pytest.raises(UnknownGroup):
        Group(backend, create=False).coordinator.reset_offsets({"r000": 3})


def offsets_known(group: Group) -> bool:
    """What a member without an offset hears."""
    return group.coordinator.state()["offsets_known"] == "1"


def test_a_group_created_as_new_knows_its_offsets_until_redis_loses_data(group: Group) -> None:
    """A missing offset then means that nothing was ever committed."""
    assert offsets_known(group)
    idle_group(group)
    assert offsets_known(group)
    group.backend.identity = "another-redis"
    group.tick()
    assert not offsets_known(group)


def at_another_server(group: Group, *, forget: str = "", seen: int = 0) -> None:
    """Two members share four resources; the server turns out to be another one, and they claim what they hold, except
    for one.
    """
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    b.seen += seen
    group.backend.identity = "another-redis"
    for member in (a, b):
        member.holds.pop(forget, None)
        assert member.heartbeat().status == "REJOIN"
        member.rejoin(f"{member.id}2")
    assert not offsets_known(group)
    group.run(SETTINGS.session_timeout_ms + 1000)


def test_offsets_are_known_again_once_everything_was_claimed_as_it_stood(group: Group) -> None:
    """The other server had everything: a member that has committed something still holds it, or had done so before the
    recorded grant.
    """
    at_another_server(group)
    assert offsets_known(group)


def test_what_is_not_claimed_leaves_them_unknown(group: Group) -> None:
    """Its last holder may have committed what is lost."""
    at_another_server(group, forget="r002")
    assert not offsets_known(group)


def test_whoever_has_seen_more_leaves_them_unknown(group: Group) -> None:
    """The other server lacks what it saw, however little that was, and whatever was written since."""
    at_another_server(group, seen=1)
    assert not offsets_known(group)


def test_a_claim_counts_once(group: Group) -> None:
    """However often its process rejoins meanwhile."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    b.silent = True
    group.backend.identity = "another-redis"
    a.heartbeat()
    a.rejoin("a2").rejoin("a3")
    group.run(SETTINGS.session_timeout_ms + 1000)
    assert not offsets_known(group)


def test_an_administrator_may_vouch_for_the_offsets(group: Group) -> None:
    """After checking them, or setting them."""
    idle_group(group)
    group.backend.identity = "another-redis"
    group.tick()
    group.coordinator.trust_offsets()
    assert offsets_known(group)
    group.run(SETTINGS.session_timeout_ms + 1000)
    group.tick()
    assert offsets_known(group)


def test_a_group_made_by_its_first_member_does_not(backend: Backend) -> None:
    """An empty Redis cannot distinguish a new group from a lost one."""
    group = Group(backend, create=False)
    group.join("a")
    assert not offsets_known(group)
