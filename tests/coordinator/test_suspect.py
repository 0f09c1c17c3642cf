"""A member whose process is seen to be dead: its session ends early if a broker guards what it holds, and never if it
shows a sign of life.
"""

from __future__ import annotations

import pytest
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.client import Sight
from cobalance.coordinator.requests import Header, Request, Suspect, Vouch

WITHIN_MS = 10
PAUSE_MS = 4


def channel(group: Group, member: str) -> str:
    return group.coordinator.channel(member)


def vouch(group: Group, member: str, connection: str | None = "amqp-1", number: int = 0) -> str:
    """As its engine does once its listener is connected."""
    return group.execute(Request(Header(member, number), Vouch(connection))).results[0]


def vouching(group: Group, ids: str, **join: str) -> list[Member]:
    """Members that listen and vouch, with six resources."""
    members = [group.join(it, instance_id=f"{join['instance']}-{it}" if join else None) for it in ids]
    group.set_resources(members[0], names(6))
    group.drain()
    for it in members:
        group.backend.watch(channel(group, it.id))
        assert vouch(group, it.id) == "VOUCHED"
    return members


def look(
    group: Group, member: str, before: Sight | None = None, *, within_ms: int = 0, connection: str = "amqp-1"
) -> Sight:
    seen, last_look_ms = (before.seen, before.now_ms) if before else ("", 0)
    group.backend.now_ms += PAUSE_MS if before else 0
    return group.coordinator.suspect(
        Suspect(member=member, connection=connection, seen=seen, last_look_ms=last_look_ms, within_ms=within_ms)
    )


def die(group: Group, member: str) -> None:
    """The kernel closes its connections."""
    group.backend.unwatch(channel(group, member))
    group.members[member].silent = True


def test_a_dead_members_session_ends_at_the_last_look(group: Group) -> None:
    """What it held goes to the others at once, under higher tokens; nothing else moves."""
    a, b, c = vouching(group, "abc")
    tokens = {name: it.token for name, it in a.holds.items()}
    kept = {**b.holds, **c.holds}
    die(group, "a")
    first = look(group, "a")
    assert first.verdict == "SILENT"
    assert set(group.holders().values()) == {"a", "b", "c"}
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "ENDED"
    group.drain()
    now = {**b.holds, **c.holds}
    assert sorted(now) == list(names(6))
    assert all(now[name].token > token for name, token in tokens.items())
    assert {name: now[name].token for name in kept} == {name: it.token for name, it in kept.items()}


def test_the_journal_says_why(group: Group) -> None:
    """The member expired, because it had crashed."""
    vouching(group, "ab")
    die(group, "a")
    look(group, "a", look(group, "a"), within_ms=WITHIN_MS)
    assert [(it["member"], it["reason"]) for it in group.journal("expired_member")] == [("a", "crashed")]
    assert {it["reason"] for it in group.journal("expired")} == {"crashed"}


def test_looking_changes_nothing(group: Group) -> None:
    """Only the last look of a row writes, and only if it ends the session."""
    vouching(group, "ab")
    before = group.backend.dump()
    look(group, "a")
    die(group, "a")
    first = look(group, "a")
    look(group, "a", first)
    at_once = Suspect(member="a", connection="amqp-1", seen=first.seen, last_look_ms=group.backend.now_ms)
    assert group.coordinator.suspect(at_once).verdict == "SILENT"
    group.backend.now_ms += WITHIN_MS
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "SILENT"
    assert group.backend.dump() == before


def test_a_listener_keeps_its_member_alive(group: Group) -> None:
    """A member that has lost its broker alone keeps everything; it is asked to call."""
    vouching(group, "ab")
    group.backend.hints()
    assert look(group, "a").verdict == "ALIVE"
    assert group.backend.hints() == [(channel(group, "a"), -1)]


def test_a_call_keeps_a_member_alive(group: Group) -> None:
    """One whose listener reconnects has called since the first look."""
    a, _ = vouching(group, "ab")
    die(group, "a")
    first = look(group, "a")
    a.heartbeat()
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "ALIVE"
    assert not group.journal("expired_member")


def test_a_repeated_request_keeps_a_member_alive(group: Group) -> None:
    """Its answer was lost with the connection, and it sends the same request again."""
    a, _ = vouching(group, "ab")
    die(group, "a")
    first = look(group, "a")
    group.backend.now_ms += 1
    a.repeat()
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "ALIVE"


def test_a_vouch_keeps_a_member_alive(group: Group) -> None:
    """Its listener was connected again and lost again meanwhile."""
    vouching(group, "ab")
    die(group, "a")
    first = look(group, "a")
    group.backend.watch(channel(group, "a"))
    group.backend.now_ms += 1
    vouch(group, "a")
    die(group, "a")
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "ALIVE"


def test_a_long_pause_between_looks_ends_nothing(group: Group) -> None:
    """Redis, or the one who looks, stood still: the member may not have had a chance to call."""
    vouching(group, "ab")
    die(group, "a")
    first = look(group, "a")
    group.backend.now_ms += WITHIN_MS
    second = look(group, "a", first, within_ms=WITHIN_MS)
    assert second.verdict == "SILENT"
    assert look(group, "a", second, within_ms=WITHIN_MS).verdict == "ENDED"


@pytest.mark.parametrize("way", ["never", "withdrawn", "not heard"])
def test_who_did_not_vouch_has_its_whole_session(group: Group, way: str) -> None:
    """No broker guards what it holds, or its listener hears another server."""
    group.joined("ab")
    group.backend.watch(channel(group, "a"))
    if way != "never":
        assert vouch(group, "a") == "VOUCHED"
    if way == "withdrawn":
        assert vouch(group, "a", None) == "UNGUARDED"
    die(group, "a")
    if way == "not heard":
        assert vouch(group, "a") == "UNHEARD"
    first = look(group, "a")
    assert first.verdict == "UNVOUCHED"
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "UNVOUCHED"
    assert not group.journal("expired_member")


def test_a_vouch_counts_for_its_own_connection_only(group: Group) -> None:
    """A will that comes late is about a connection before: the member has another one since."""
    vouching(group, "ab")
    assert vouch(group, "a", "amqp-2") == "VOUCHED"
    die(group, "a")
    assert look(group, "a").verdict == "UNVOUCHED"
    first = look(group, "a", connection="amqp-2")
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "UNVOUCHED"
    assert look(group, "a", first, within_ms=WITHIN_MS, connection="amqp-2").verdict == "ENDED"


def test_a_living_member_takes_its_vouch_back_when_it_has_lost_its_broker(group: Group) -> None:
    """Even if its listener is lost for as long as others look."""
    vouching(group, "ab")
    die(group, "a")
    first = look(group, "a")
    assert vouch(group, "a", None) == "UNGUARDED"
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "UNVOUCHED"
    assert look(group, "a").verdict == "UNVOUCHED"


def test_a_vouch_counts_on_its_own_server_only(group: Group) -> None:
    """After a failover, listeners may still hear the master of before."""
    vouching(group, "ab")
    die(group, "a")
    first = look(group, "a")
    group.backend.identity = "another-redis"
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "UNVOUCHED"
    group.tick()
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "RECOVERING"


@pytest.mark.parametrize("way", ["moved", "moved and back"])
def test_a_vouch_does_not_outlive_a_change_of_server(group: Group, way: str) -> None:
    """Neither on the new one, nor on the one before, which is master again."""
    vouching(group, "ab")
    die(group, "a")
    former, group.backend.identity = group.backend.identity, "another-redis"
    group.tick()
    group.poke("recovering", 0)
    if way == "moved and back":
        group.backend.identity = former
    first = look(group, "a")
    assert first.verdict == "UNVOUCHED"
    assert look(group, "a", first, within_ms=WITHIN_MS).verdict == "UNVOUCHED"


def test_nobody_vouches_on_an_unknown_server(group: Group) -> None:
    """Where Redis does not say who it is, a failover would not be seen."""
    vouching(group, "ab")
    group.backend.identity = ""
    assert look(group, "a").verdict == "UNVOUCHED"
    assert vouch(group, "a") == "UNHEARD"


def test_a_member_that_has_gone_is_not_suspected(group: Group) -> None:
    """It left, expired, or was never there."""
    a, _ = vouching(group, "ab")
    group.until_left(a)
    assert look(group, "a").verdict == "GONE"
    assert look(group, "nobody").verdict == "GONE"
    assert vouch(group, "a") == "GONE"


@pytest.mark.parametrize("again", ["amqp-1", None], ids=["vouch", "withdrawal"])
def test_a_late_copy_of_what_was_said_before_counts_no_more(group: Group, again: str | None) -> None:
    """Its answer was lost, and the member has said the opposite since."""
    vouching(group, "ab")
    since = None if again else "amqp-1"
    vouch(group, "a", again, number=4)
    said = vouch(group, "a", since, number=5)
    before = group.records()
    assert vouch(group, "a", again, number=4) == "LATE"
    assert group.records() == before
    assert vouch(group, "a", since, number=5) == said
    assert look(group, "a").verdict == ("UNVOUCHED" if again else "ALIVE")


def test_an_end_leaves_no_vouch(group: Group) -> None:
    """Nothing of a member stays behind."""
    vouching(group, "ab")
    die(group, "a")
    look(group, "a", look(group, "a"), within_ms=WITHIN_MS)
    assert [it for it in group.records().scalars if it.startswith("v:")] == ["v:b"]


def test_a_killed_process_with_an_instance_id_takes_its_place_at_once(group: Group) -> None:
    """It is kept for the grace, as after any crash, and its heir is not refused until the session has ended."""
    a, b = vouching(group, "ab", instance="i")
    held = sorted(a.holds)
    die(group, "a")
    heir = group.join("c", instance_id="i-a")
    assert heir.last.status == "INSTANCE_IN_USE"
    look(group, "a", look(group, "a"), within_ms=WITHIN_MS)
    assert group.journal("graced")[0]["reason"] == "crashed"
    assert sorted(name for name, owner in group.holders().items() if owner == "a") == held
    heir.join(instance_id="i-a")
    group.drain()
    assert sorted(heir.holds) == held
    assert len(b.holds) == 3


def test_a_living_member_that_was_ended_joins_again(group: Group) -> None:
    """It hears that what it held is lost, and what moved stays with its new holder."""
    a, b = vouching(group, "ab")
    die(group, "a")
    look(group, "a", look(group, "a"), within_ms=WITHIN_MS)
    group.drain()
    mine = dict(a.holds)
    assert a.heartbeat().status == "ENDED"
    assert a.commit(min(mine), 5) == "ENDED"
    again = a.rejoin("a2")
    group.drain()
    assert not any(it.token == mine.get(name, it).token for name, it in again.holds.items() if name in mine)
    assert (len(again.holds), len(b.holds)) == (3, 3)


def test_many_resources_move_in_pages(group: Group) -> None:
    """The one who looks goes on until everything is given to somebody."""
    a, _ = group.joined("ab")
    group.set_resources(a, names(4 * SETTINGS.moves_per_call))
    group.drain()
    group.backend.watch(channel(group, "a"))
    vouch(group, "a")
    die(group, "a")
    look(group, "a", look(group, "a"), within_ms=WITHIN_MS)
    assert set(group.holders().values()) == {"b"}


def test_the_elected_coordinators_own_death(group: Group) -> None:
    """Another one is elected by the next call."""
    vouching(group, "ab")
    assert group.records().scalars["coordinator"] == "a"
    die(group, "a")
    look(group, "a", look(group, "a"), within_ms=WITHIN_MS)
    group.members["b"].heartbeat()
    assert group.records().scalars["coordinator"] == "b"
