"""Redis lost its data, went back in time, or is another server: incarnations, and what must not happen meanwhile."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, moved, names, working_group

from cobalance.coordinator.keys import EVERYBODY, hint_channel
from cobalance.coordinator.requests import Claim, Configure, Header, Request, SetResources
from cobalance.errors import GroupActive, UnknownGroup
from cobalance.member.declaration import Declaration

SESSION_MS = SETTINGS.session_timeout_ms


def test_a_new_group_recovers_first(backend: Backend) -> None:
    """An empty Redis cannot distinguish a new group from a lost one: it waits for claims for one session timeout."""
    group = Group(backend, create=False)
    a = group.join("a")
    assert a.last.recovering_ms == SESSION_MS
    assert group.set_resources(a, names(2)) == "RECOVERING"
    group.run(SESSION_MS - 1)
    assert not a.holds
    group.run(1)
    assert group.set_resources(a, names(2), version=1) == "DONE"
    a.hear()
    assert len(a.holds) == 2


def test_a_created_group_need_not(group: Group) -> None:
    """A declaration that the group is new is trusted."""
    a = group.join("a")
    assert a.last.recovering_ms == 0
    group.set_resources(a, names(2))
    a.hear()
    assert len(a.holds) == 2


def test_recovery_lasts_as_long_as_the_joins_say(backend: Backend) -> None:
    """The session timeout is a group setting; if the group is lost, the joins carry it."""
    settings = attrs.evolve(SETTINGS, session_timeout_ms=4500)
    group = Group(backend, settings, create=False)
    assert group.join("a").last.recovering_ms == 4500


@pytest.mark.parametrize("loss", ["emptied", "moved", "older"])
def test_everybody_keeps_everything_where_claims_agree(group: Group, loss: str) -> None:
    """Whatever became of the data: same holders, same tokens, same offsets, no reshuffle."""
    a, b = working_group(group)
    old = group.backend.dump()
    for member in (a, b):
        member.hear()
    if loss == "emptied":
        group.lose_data()
    elif loss == "moved":
        group.backend.identity = "another-server"
    else:
        group.set_resources(a, names(6))
        a.commit("r000" if "r000" in a.holds else min(a.holds), 9)
        group.restore(old)
    before = {**a.holds, **b.holds}
    assert a.heartbeat().status == "REJOIN"
    a2 = a.rejoin("a2")
    assert b.heartbeat().status == "REJOIN"
    b2 = b.rejoin("b2")
    assert a2.last.status == b2.last.status == "OK"
    group.run(SESSION_MS + 1000)
    group.set_resources(a2, names(6))
    group.drain()
    after = {**a2.holds, **b2.holds}
    assert {name: tenure.token for name, tenure in after.items()} == {name: it.token for name, it in before.items()}
    assert group.records().offsets == dict.fromkeys(names(6), 10)
    assert set(group.loads()) == {"a2", "b2"}


def test_a_lower_version_than_seen_starts_a_new_incarnation(group: Group) -> None:
    """The same server with older data: the members' memory is the proof."""
    a, _ = working_group(group)
    old = group.backend.dump()
    incarnation = a.incarnation
    group.set_resources(a, names(8))
    a.hear()
    group.restore(old)
    assert a.heartbeat().status == "REJOIN"
    assert group.records().number("incarnation") > incarnation
    assert group.records().number("version") > a.seen - 1


def test_those_who_come_back_later_prove_no_second_loss(group: Group) -> None:
    """Members had seen different versions; higher ones only raise the version, and nobody has to rejoin twice."""
    a, b = working_group(group)
    a.seen, b.seen = a.seen, b.seen + 1000
    group.lose_data()
    a.heartbeat()
    a2 = a.rejoin("a2")
    b.heartbeat()
    b2 = b.rejoin("b2")
    assert a2.heartbeat().status == "OK"
    assert b2.heartbeat().status == "OK"
    assert group.records().number("version") >= b.seen
    assert len(group.journal("incarnation")) == 2
    assert group.journal("incarnation")[1]["reason"] == "seen"


def straggling(group: Group) -> tuple[Member, Member]:
    """One of two has been back for so long that the group has recovered; the other has seen more, and was silent."""
    a, b = working_group(group)
    b.seen += 1000
    group.lose_data()
    a.heartbeat()
    a2 = a.rejoin("a2")
    group.run(SESSION_MS + 1000, a2)
    assert group.records().number("recovering") == 0
    assert group.records().number("version") < b.seen
    return a2, b


def test_a_straggler_of_an_older_incarnation_restarts_nothing(group: Group) -> None:
    """The loss is known already: the version just has to pass what it has seen."""
    a2, b = straggling(group)
    incarnation = group.records().number("incarnation")
    assert b.heartbeat().status == "REJOIN"
    assert b.rejoin("b2").last.recovering_ms == 0
    assert group.records().number("incarnation") == incarnation
    assert group.records().number("version") >= b.seen
    assert a2.heartbeat().status == "OK"


def test_nor_does_its_join(group: Group) -> None:
    """It was about to join when the data was lost; its join still says that it was a member before."""
    a2, b = straggling(group)
    assert b.rejoin("b2").last.recovering_ms == 0
    assert a2.heartbeat().status == "OK"


def test_a_lower_incarnation_than_known_starts_another(group: Group) -> None:
    """Rolled back to before a recovery, and written to since: the version alone would say nothing."""
    a, b = working_group(group)
    old, server = group.backend.dump(), group.backend.identity
    group.backend.identity = "another-server"
    a.heartbeat()
    a2 = a.rejoin("a2")
    b.heartbeat()
    b2 = b.rejoin("b2")
    group.run(SESSION_MS + 1000)
    group.restore(old)
    group.backend.identity = server
    for _ in range(a2.seen):
        group.execute(Request(Header("-", 0), Configure(create=False, values=(("gather_ms", "5"),))))
    assert group.records().number("version") >= a2.seen
    incarnation = a2.incarnation
    assert a2.heartbeat().status == "REJOIN"
    assert group.records().number("recovering") > 0
    assert group.records().number("incarnation") > incarnation
    assert a2.rejoin("a3").last.results == ("KEPT",) * 3
    assert b2.heartbeat().status == "REJOIN"


def rolled_back(group: Group) -> tuple[Member, Member, str]:
    """A snapshot is restored and written to until it is as far as anything a member has seen: only what the members
    hold shows the loss. In the snapshot the first one has both resources; since then the second one has been granted
    one of them.
    """
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    old = group.backend.dump()
    c = group.join("c")
    group.drain()
    (given,) = c.holds
    group.restore(old)
    group.forget_tokens()
    while group.records().number("version") < max(a.seen, c.seen):
        group.execute(Request(Header("-", 0), Configure(create=False, values=(("gather_ms", "5"),))))
    return a, c, given


def test_who_has_something_else_on_record_than_it_holds_proves_a_loss(group: Group) -> None:
    """It released what its record says it has, and nobody would work that any more."""
    a, _, given = rolled_back(group)
    assert given not in a.holds
    assert group.records().resources[given].owner == "a"
    assert a.heartbeat().status == "REJOIN"
    assert group.records().number("recovering") > 0
    a2 = a.rejoin("a2")
    group.run(SESSION_MS + 1000, a2)
    assert len(a2.holds) == 2


def test_what_has_happened_since_does_not_hide_it(group: Group) -> None:
    """Another member joins, and the first one is asked for a resource that it released long ago."""
    a, _, _ = rolled_back(group)
    group.join("d")
    assert group.journal("revoking")
    assert a.heartbeat().status == "REJOIN"


def test_whose_resources_are_granted_again_loses_them_to_the_later_token(group: Group) -> None:
    """The second member is unknown. With its first call, the first one makes all members claim what they hold."""
    a, c, given = rolled_back(group)
    token = c.holds[given].token
    assert c.heartbeat().status == "UNKNOWN"
    assert a.heartbeat().status == "REJOIN"
    a2 = a.rejoin("a2")
    c2 = c.rejoin("c2")
    assert c2.last.results == ("KEPT",)
    assert group.records().resources[given].token == token
    assert len(a2.holds) == len(c2.holds) == 1


def test_news_on_their_way_prove_nothing(group: Group) -> None:
    """A member that has not received a grant reports less than its record; that is why it asks."""
    a = group.join("a")
    group.set_resources(a, names(4))
    a.hear()
    b = group.join("b")
    incarnation = group.records().number("incarnation")
    a.release_pending()
    group.drain()
    assert b.heartbeat(lose_reply=True).status == "OK"
    a.leave()
    a.hear()
    a.release_pending()
    assert b.heartbeat().status == "OK"
    assert len(b.holds) == 4
    assert group.records().number("incarnation") == incarnation


def test_two_losses_are_two_incarnations(group: Group) -> None:
    """Emptied again during the recovery: members that were back already have to come back again."""
    a, b = working_group(group)
    tokens = {name: tenure.token for name, tenure in a.holds.items()}
    group.lose_data()
    a.heartbeat()
    a2 = a.rejoin("a2")
    group.lose_data()
    assert a2.heartbeat().status == "REJOIN"
    a3 = a2.rejoin("a3")
    assert {name: tenure.token for name, tenure in a3.holds.items()} == tokens
    assert b.heartbeat().status == "REJOIN"
    assert b.rejoin("b2").last.status == "OK"


def test_a_configuration_does_not_hide_a_move(group: Group) -> None:
    """An administrator may be the first to reach the other server."""
    a, _ = working_group(group)
    group.backend.identity = "another-server"
    group.execute(Request(Header("-", 0), Configure(create=False, values=(("gather_ms", "5"),))))
    assert a.heartbeat().status == "REJOIN"


@pytest.mark.parametrize("verb", ["tick", "describe"])
def test_anybody_may_notice_a_move(group: Group, verb: str) -> None:
    """Ticks and reads notice it as well."""
    a, _ = working_group(group)
    group.backend.identity = "another-server"
    group.tick() if verb == "tick" else group.coordinator.state()
    assert group.records().number("recovering") > 0
    assert a.heartbeat().status == "REJOIN"


def test_where_the_identity_is_forbidden_the_rest_works(backend: Backend) -> None:
    """Without INFO the identity is empty: neither direction is a move."""
    backend.identity = ""
    group = Group(backend)
    a, b = working_group(group)
    group.backend.identity = "known-at-last"
    assert a.heartbeat().status == "OK"
    group.backend.identity = ""
    assert b.heartbeat().status == "OK"


# -- who comes first -----------------------------------------------------------------------------------------------------

HASTY = attrs.evolve(SETTINGS, session_timeout_ms=1500, heartbeat_interval_ms=500, revocation_timeout_ms=1500)


def test_who_is_new_does_not_shorten_the_recovery(group: Group) -> None:
    """It makes the group look like another one. The first member that knew it brings its settings, and the time for
    claims.
    """
    a, b = working_group(group)
    group.lose_data()
    n = group.join("n", settings=HASTY)
    assert n.last.recovering_ms == 1500
    a.heartbeat()
    a2 = a.rejoin("a2")
    assert a2.last.recovering_ms == SESSION_MS
    assert a2.last.session_timeout_ms == SESSION_MS
    group.run(SESSION_MS - 500, n, a2)
    assert not n.holds
    b.heartbeat()
    assert b.rejoin("b2").last.results == ("KEPT",) * 3


def test_a_longer_lease_than_the_data_knows_is_waited_for(group: Group) -> None:
    """Rolled back to before the session timeout was raised: members say what it was."""
    a, b = working_group(group)
    a2 = moved(group, a, "a2")
    assert a2.last.recovering_ms == SESSION_MS
    b.heartbeat()
    longer = attrs.evolve(SETTINGS, session_timeout_ms=2 * SESSION_MS, revocation_timeout_ms=2 * SESSION_MS)
    assert b.rejoin("b2", settings=longer).last.recovering_ms == 2 * SESSION_MS


def lost_but_listening(group: Group) -> None:
    """One process listens without calling; a new one has joined and left."""
    working_group(group)
    group.backend.watch(hint_channel("g", EVERYBODY))
    group.lose_data()
    n = group.join("n", settings=HASTY)
    assert n.leave() == "LEFT"


def test_who_listens_is_called_and_waited_for(group: Group) -> None:
    """A process that has not joined yet may work something; but the wait is limited."""
    lost_but_listening(group)
    assert group.backend.hints() == [(hint_channel("g", EVERYBODY), -1)]
    for _ in range(56):
        group.backend.now_ms += 500
        assert group.tick().recovering_ms > 0
    assert (hint_channel("g", EVERYBODY), -1) in group.backend.hints()
    for _ in range(6):
        group.backend.now_ms += 500
        group.tick()
    assert group.tick().recovering_ms == 0


def test_only_the_first_recovery_of_a_group_waits_for_those_who_may_know_it(backend: Backend) -> None:
    """Its maker was new to it; once it has recovered, its settings are no guess."""
    group = Group(backend, create=False)
    group.until_left(group.join("a"))
    group.run(SESSION_MS)
    group.tick()
    group.backend.watch(hint_channel("g", EVERYBODY))
    group.backend.identity = "another-redis"
    group.tick()
    backend.now_ms += SESSION_MS
    group.tick()
    assert [it["kind"] for it in group.journal("incarnation", "recovered")] == ["incarnation", "recovered"] * 2


def test_a_group_that_is_listened_for_is_not_created_as_new(backend: Backend) -> None:
    """Nobody would be asked what it holds."""
    group = Group(backend, create=False)
    backend.watch(hint_channel("g", EVERYBODY))
    with pytest.raises(GroupActive, match="processes listen for it"):
        group.coordinator.create(SETTINGS)
    with pytest.raises(UnknownGroup):
        group.coordinator.state()
    assert backend.dump() == ()


# -- while recovering --------------------------------------------------------------------------------------------------


def test_nothing_unclaimed_is_granted(group: Group) -> None:
    """New resources and those of members not back yet wait."""
    a, _b = working_group(group)
    a2 = moved(group, a, "a2")
    group.set_resources(a2, names(9))
    group.run(SESSION_MS - 1000, a2)
    assert len(a2.holds) == 3
    assert sum(owner == "b" for owner in group.holders().values()) == 3


def test_nothing_is_revoked_or_cancelled(group: Group) -> None:
    """A new member during the recovery is a new member after it."""
    a, b = working_group(group)
    a2 = moved(group, a, "a2")
    b.heartbeat()
    b2 = b.rejoin("b2")
    c = group.join("c")
    count = len(group.journal("revoking", "cancelled", "withdrawn", "forced"))
    group.run(SESSION_MS - 1)
    assert len(group.journal("revoking", "cancelled", "withdrawn", "forced")) == count
    group.run(1000)
    group.drain()
    assert group.loads() == {"a2": 2, "b2": 2, "c": 2}
    assert len(c.holds) == 2
    assert len({*a2.holds, *b2.holds}) == 4


def test_a_list_that_arrives_during_a_recovery_only_adds(group: Group) -> None:
    """A list that arrives meanwhile only adds; it is compared again afterwards."""
    a, _ = working_group(group)
    a2 = moved(group, a, "a2")
    kept = sorted(a2.holds)[:1]
    assert group.set_resources(a2, tuple(kept), version=8) == "RECOVERING"
    assert len(group.holders()) == 6
    group.run(SESSION_MS + 1000)
    assert group.set_resources(a2, tuple(kept), version=8) == "DONE"
    group.drain()
    assert sorted(group.holders()) == kept


@pytest.mark.parametrize("members", [2, 10])
def test_one_walk_through_the_list_serves_everybody(backend: Backend, members: int) -> None:
    """Twice, for additions and, after the recovery, for removals; however many members declare it."""
    group = Group(backend, create=False)
    joined = [group.join(f"m{number:02}") for number in range(members)]
    wanted = names(300)
    declared = {member.id: Declaration() for member in joined}
    for declaration in declared.values():
        declaration.declare(1, wanted)
    pages = others = 0
    while any(declaration.times() for declaration in declared.values()):
        group.backend.now_ms += 250
        for member in joined:
            if page := declared[member.id].next_page(group.backend.now_ms):
                reply = member.ask(page)
                declared[member.id].answered(page, reply, group.backend.now_ms)
                walks = reply.results[0] in ("NEXT", "DONE") or (reply.results[0] == "RECOVERING" and page.after)
                pages, others = pages + bool(walks), others + (not walks)
        group.beat()
    assert sorted(group.holders()) == list(wanted)
    assert pages <= 2 * len(wanted) // SETTINGS.moves_per_call + 2
    assert others <= 10 * members


def test_a_walk_that_began_while_recovering_removes_nothing_and_is_repeated(group: Group) -> None:
    """Otherwise what its first pages did not name would stay forever."""
    a, _ = working_group(group)
    a2 = moved(group, a, "a2")
    rest = names(6)[3:]
    first = SetResources(version=9, digest="x", after="", to="r003", names=("r003",))
    assert a2.ask(first).results == ("NEXT", "r003")
    group.run(SESSION_MS + 1000)
    last = SetResources(version=9, digest="x", after="r003", to="", names=("r004", "r005"))
    assert a2.ask(last).results == ("RECOVERING",)
    assert group.set_resources(a2, rest, version=10) == "DONE"
    group.drain()
    assert sorted(group.holders()) == list(rest)


def test_the_walk_of_a_member_that_stops_is_taken_over(backend: Backend) -> None:
    """Two heartbeats after its last page; what it sends afterwards is ignored."""
    group = Group(backend)
    a, b = group.joined("ab")
    first, last = (
        SetResources(version=1, digest="x", after=x, to=y, names=z)
        for x, y, z in (("", "m", ("k",)), ("m", "", ("r",)))
    )
    assert a.ask(first).results == ("NEXT", "m")
    assert b.ask(first).results == ("WAIT",)
    group.run(2 * SETTINGS.heartbeat_interval_ms)
    assert b.ask(first).results == ("NEXT", "m")
    assert a.ask(last).results == ("WAIT",)
    assert b.ask(last).results == ("DONE",)
    assert a.ask(last).results == ("CURRENT",)


def test_the_same_list_is_compared_again_after_a_recovery(group: Group) -> None:
    """Claims may have restored what the list had removed."""
    a, _ = working_group(group)
    stray = Claim("stray", a.holds[min(a.holds)].token + 1)
    group.backend.identity += "'"
    a.heartbeat()
    a2 = a.rejoin("a2", claims=(*a.claims(),))
    a2.join(claims=(stray,), previous="a")
    assert "stray" in group.holders()
    group.run(SESSION_MS + 1000)
    assert group.set_resources(a2, names(6), version=1) == "DONE"
    group.drain()
    assert sorted(group.holders()) == list(names(6))


def test_nobody_is_forced_or_called_in_circles(group: Group) -> None:
    """An armed deadline that passes before its holder is back waits, and makes nobody call again at once."""
    a, b = working_group(group)
    group.join("c")
    group.run(SETTINGS.revocation_timeout_ms - 500)
    (pending,) = a.pending
    b2 = moved(group, b, "b2")
    for _ in range(5):
        group.backend.now_ms += 500
        assert not b2.heartbeat().more
        assert b2.last.due_ms > group.backend.now_ms
    assert group.backend.now_ms > group.records().resources[pending].deadline
    assert not group.journal("forced")
    a.heartbeat()
    a2 = a.rejoin("a2")  # its own clock made it abort that tenure, so it claims all the others
    assert pending not in a2.holds
    assert len(a2.holds) == 2


def test_every_reply_says_how_long_it_still_takes(group: Group) -> None:
    """Heartbeats that bring nothing say so too."""
    a, _ = working_group(group)
    a2 = moved(group, a, "a2")
    for passed in (0, 500, 1000):
        group.backend.now_ms += 500 if passed else 0
        assert a2.heartbeat().recovering_ms == SESSION_MS - passed


def test_tokens_rise_over_a_total_loss(group: Group) -> None:
    """New tenures are above everything claimed, everything reported, and the time."""
    a, b = working_group(group)
    a.silent = b.silent = True
    high = max(tenure.token for tenure in a.holds.values())
    group.lose_data()
    group.step_clock(-100_000_000)
    fresh = group.join("n", floor_token=high + 50)
    group.set_resources(fresh, names(1))
    group.run(SESSION_MS + 1000)
    fresh.hear()
    assert fresh.holds["r000"].token > high + 50


def test_the_version_goes_on_above_what_was_seen(group: Group) -> None:
    """A cursor from before the loss never hides what happens after it."""
    a, _ = working_group(group)
    group.lose_data()
    a.heartbeat()
    a2 = a.rejoin("a2")
    assert a2.last.version > a.seen
    assert all(change.kind == "hold" for change in a2.last.changes)


def test_a_deadline_from_before_is_armed_anew(group: Group) -> None:
    """A former member's pending revocation is not forced on its next id by the old deadline."""
    a, b = working_group(group)
    c = group.join("c")
    group.beat()
    assert a.pending
    a2 = moved(group, a, "a2")
    b.heartbeat()
    b.rejoin("b2")
    c.heartbeat()
    c.rejoin("c2")
    group.run(SESSION_MS + 500)
    for name, record in group.records().owned_by("a2").items():
        assert record.status != "pending" or record.deadline >= group.backend.now_ms + 1000, name
    group.drain()
    assert sorted(group.loads().values()) == [2, 2, 2]
    assert a2.last.status == "OK"


def test_a_walk_that_another_one_took_over_is_begun_again(group: Group) -> None:
    """Its pages belong to a list that nobody declares any more: the pages after them would be treated as the whole."""
    a, b = working_group(group)
    first = SetResources(version=9, digest="x", after="", to="r003", names=names(4))
    for walker in (a, b):
        assert walker.ask(first).results == ("NEXT", "r003")
        group.run(2 * SETTINGS.heartbeat_interval_ms)
    rest = SetResources(version=9, digest="x", after="r003", to="", names=names(8)[4:])
    assert a.ask(rest).results == ("AGAIN",)
    assert b.ask(rest).results == ("DONE",)
