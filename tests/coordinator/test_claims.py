"""What a joining member says it still holds: which claim is kept, what it brings back, and what nobody claims."""

from __future__ import annotations

from tests.coordinator.driver import SETTINGS, Group, moved, names, working_group

from cobalance.coordinator.requests import Claim

SESSION_MS = SETTINGS.session_timeout_ms


def test_the_highest_token_wins_and_brings_its_offset(group: Group) -> None:
    """Of two claims the later tenure is the valid one, in whatever order they arrive."""
    a, b = working_group(group, 2)
    name = min(a.holds)
    group.lose_data()
    token = a.holds[name].token
    a.is_over = b.is_over = True
    a2 = a.rejoin("a2")
    b2 = b.rejoin("b2", claims=(*b.claims(), Claim(name, token + 5, 25)))
    assert b2.last.results == ("KEPT", "KEPT")
    a2.hear()
    assert [change.resource for change in a2.lost] == [name]
    assert group.records().offsets[name] == 25
    late = group.join("late", claims=(Claim(name, token + 2, 99),))
    assert late.last.results == ("LOST",)
    assert group.records().offsets[name] == 25


def test_a_claim_without_an_offset_keeps_the_stored_one(group: Group) -> None:
    """If the holder never committed, the stored offset is the best available."""
    a, b = working_group(group, 2)
    name = min(a.holds)
    group.backend.identity = "another"
    a.heartbeat()
    a2 = a.rejoin("a2", claims=tuple(Claim(claim.resource, claim.token) for claim in a.claims()))
    assert a2.last.results == ("KEPT",)
    assert group.records().offsets[name] == 10
    assert b.heartbeat().status == "REJOIN"


def test_a_claim_brings_back_that_a_start_is_being_looked_up(group: Group) -> None:
    """Otherwise its offset would count as lost."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    a.commit("r000", -2)
    group.lose_data()
    a.heartbeat()
    a.rejoin("a2")
    assert group.records().offsets == {"r000": -2}


def test_what_nobody_claims_becomes_free_afterwards(group: Group) -> None:
    """The member that did not come back has crashed."""
    a, b = working_group(group)
    b.silent = True
    a2 = moved(group, a, "a2")
    group.run(SESSION_MS + 1000)
    group.drain()
    assert len(a2.holds) == 6


def test_what_its_member_no_longer_claims_becomes_free(group: Group) -> None:
    """Claims are exhaustive: a tenure it has aborted is not among them."""
    a, _ = working_group(group)
    group.backend.identity += "'"
    a.heartbeat()
    aborted, *rest = a.claims()
    a.rejoin("a2", claims=tuple(rest))
    assert group.records().resources[aborted.resource].status == "free"


def test_claims_come_in_pages(group: Group) -> None:
    """What the former member still has is freed only after the last page."""
    a, _ = working_group(group, 12)
    group.backend.identity += "'"
    a.heartbeat()
    claims = a.claims()
    a2 = a.rejoin("a2", claims=claims[:4], last_page=False)
    assert len(group.records().owned_by("a")) == 2
    assert a2.last.status == "OK"
    a2.join(claims=claims[4:], previous="a")
    assert a2.last.results == ("KEPT", "KEPT")
    assert len(group.records().owned_by("a2")) == 6


def test_pages_lost_between_two_pages_begin_anew(group: Group) -> None:
    """Emptied after the first page: the second one must not be treated as the whole."""
    a, _ = working_group(group, 12)
    group.lose_data()
    a.heartbeat()
    claims = a.claims()
    a2 = a.rejoin("a2", claims=claims[:4], last_page=False)
    group.lose_data()
    assert a2.join(claims=claims[4:], previous="a").status == "REJOIN"
    a2.holds = dict(a.holds)
    a3 = a2.rejoin("a3")
    assert a3.last.results == ("KEPT",) * 6


def test_a_claim_survives_an_interrupted_rejoin(group: Group) -> None:
    """The record still names the member before the last one: an equal token of a member not back yet is as valid."""
    a, _ = working_group(group, 12)
    group.backend.identity += "'"
    a.heartbeat()
    claims = a.claims()
    a2 = a.rejoin("a2", claims=claims[:4], last_page=False)
    a2.holds = dict(a.holds)
    group.backend.identity += "'"
    a3 = a2.rejoin("a3")
    assert a3.last.results == ("KEPT",) * 6


def test_outside_a_recovery_a_claim_must_continue_a_tenure(group: Group) -> None:
    """A claim gets neither a higher token nor a free resource."""
    a, _ = working_group(group, 2)
    name = min(a.holds)
    token = a.holds[name].token
    thief = group.join("x", claims=(Claim(name, token + 5), Claim("nothing", 5)))
    assert thief.last.results == ("LOST", "LOST")
    assert "nothing" not in group.holders()


def test_a_free_resource_is_not_revived_by_its_last_token(group: Group) -> None:
    """That tenure has ended; a process without a former member cannot continue it."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    token = a.holds["r000"].token
    a.leave()
    a.release("r000")
    x = group.join("x", capacity=0, claims=(Claim("r000", token),))
    assert x.last.results == ("LOST",)


def test_the_former_self_is_replaced_without_a_move(group: Group) -> None:
    """Outside a recovery too: one join, all claims kept, the others are not involved."""
    a, b = working_group(group)
    version = len(group.journal("revoking", "granted"))
    a2 = a.rejoin("a2")
    assert a2.last.results == ("KEPT",) * 3
    assert set(group.loads()) == {"a2", "b"}
    group.run(5000)
    assert len(group.journal("revoking", "granted")) == version
    assert not b.lost
