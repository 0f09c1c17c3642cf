"""The versioned resource list: pages, removal, re-adding, disagreement."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.requests import SetResources

DAY_MS = 86_400_000


def holder(group: Group, count: int = 4) -> Member:
    """A member that holds everything."""
    a = group.join("a")
    group.set_resources(a, names(count))
    a.hear()
    return a


def test_removing_a_held_resource_revokes_it_first(group: Group) -> None:
    """Its holder finishes, then it is gone."""
    a = holder(group)
    group.set_resources(a, names(3))
    a.hear()
    assert a.pending == ["r003"]
    assert group.holders()["r003"] == "a"
    a.release("r003")
    assert set(group.holders()) == set(names(3))
    assert group.journal("revoking")[0]["reason"] == "removed"


def test_a_name_that_a_page_has_twice_is_one_resource(group: Group) -> None:
    """It counts once, no matter who sent it."""
    a = group.join("a")
    group.set_resources(a, ("r001", "r001", "r002"))
    assert set(group.holders()) == {"r001", "r002"}
    assert group.records().number("total") == 2


def test_removing_a_free_resource_removes_it_at_once(group: Group) -> None:
    """There is no holder to ask."""
    standby = group.join("s", capacity=0)
    group.set_resources(standby, names(4))
    group.set_resources(standby, names(2))
    assert set(group.holders()) == set(names(2))


def test_removing_what_was_granted_unheard_removes_it_at_once(group: Group) -> None:
    """The grant is withdrawn first."""
    standby = group.join("s", capacity=0)
    group.join("a")
    group.set_resources(standby, names(4))
    group.set_resources(standby, names(2))
    assert set(group.holders()) == set(names(2))
    assert len(group.journal("withdrawn")) == 2


def test_a_removed_resource_is_forced_at_its_deadline(group: Group) -> None:
    """A holder that does not finish cannot keep it alive."""
    a = holder(group)
    group.set_resources(a, names(3))
    a.hear()
    group.run(SETTINGS.revocation_timeout_ms)
    assert set(group.holders()) == set(names(3))
    assert [change.resource for change in a.lost] == ["r003"]


def test_re_adding_keeps_holder_deadline_token_and_offset(group: Group) -> None:
    """A list that was wrong for a moment costs nothing that had not happened yet."""
    a = holder(group)
    a.commit("r003", 7)
    token = a.holds["r003"].token
    group.set_resources(a, names(3))
    a.hear()
    assert a.holds["r003"].pending
    group.set_resources(a, names(4))
    record, offset = group.records().resources["r003"], group.records().offsets["r003"]
    assert (record.owner, record.token, record.status, offset) == ("a", token, "held", 7)
    a.hear()
    assert a.pending == []


def test_re_adding_keeps_a_pending_deadline_where_it_is_still_surplus(group: Group) -> None:
    """The revocation continues, only for another reason."""
    a = holder(group)
    group.join("b")
    a.hear()
    pending = a.pending[0]
    deadline = a.holds[pending].deadline_ms
    rest = tuple(name for name in names(4) if name != pending)
    group.backend.now_ms += 500
    group.set_resources(a, rest)
    group.set_resources(a, names(4))
    a.hear()
    record = group.records().resources[pending]
    assert (record.owner, record.status, record.deadline) == ("a", "pending", deadline)


def test_an_offset_outlives_its_resource_for_a_week(group: Group) -> None:
    """Removed by mistake and re-added, it resumes where it was. After a week it is dropped, which then does not mean
    "never committed".
    """
    a = holder(group)
    a.commit("r003", 7)
    group.set_resources(a, names(3))
    group.drain()
    assert "r003" not in group.holders()
    group.backend.now_ms += 6 * DAY_MS
    group.set_resources(a, names(4))
    a.hear()
    assert a.holds["r003"].committed == 7
    assert group.coordinator.state()["offsets_known"] == "1"
    group.set_resources(a, names(3))
    group.drain()
    group.backend.now_ms += 8 * DAY_MS
    a.hear()
    assert group.records().offsets == {}
    assert group.coordinator.state()["offsets_known"] == "0"


def test_a_lower_version_is_ignored(group: Group) -> None:
    """During a rolling deploy the old list does not return with every old process."""
    a, b = group.joined("ab")
    assert group.set_resources(a, names(5), version=2) == "DONE"
    assert group.set_resources(b, names(3), version=1) == "IGNORED"
    assert len(group.holders()) == 5


def test_the_same_version_is_current(group: Group) -> None:
    """Declaring the known list again does nothing."""
    a = group.join("a")
    group.set_resources(a, names(5), version=2)
    before = group.records().number("version")
    assert group.set_resources(a, names(5), version=2) == "CURRENT"
    assert group.records().number("version") == before


def test_two_lists_of_one_version_disagree(group: Group) -> None:
    """The second one is refused and changes nothing."""
    a, b = group.joined("ab")
    group.set_resources(a, names(5), version=2)
    assert group.set_resources(b, names(3), version=2) == "DISAGREE"
    assert len(group.holders()) == 5


def test_a_page_speaks_only_for_its_range(group: Group) -> None:
    """What is outside of (after, to] is left alone."""
    a = holder(group, 6)
    a.ask(SetResources(version=9, digest="x", after="", to="r001", names=("r000", "r001")))
    page = SetResources(version=9, digest="x", after="r001", to="r003", names=("r002",))
    assert a.ask(page).results == ("NEXT", "r003")
    a.hear()
    assert a.pending == ["r003"]
    rest = SetResources(version=9, digest="x", after="r003", to="", names=("r004", "r005", "r006"))
    assert a.ask(rest).results == ("DONE",)
    assert set(group.holders()) == set(names(7))


@pytest.mark.parametrize("moves", [1, 2, 7])
def test_a_page_is_cut_where_the_work_would_be_too_much(backend: Backend, moves: int) -> None:
    """However long the list, known or new, a call takes a bounded part and says where to continue."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=moves))
    a = group.join("a")
    assert group.set_resources(a, names(10)) == "DONE"
    mixed = tuple(sorted([*names(10)[::2], *names(5, "Q"), *names(5, "r00"), *names(5, "z")]))
    assert group.set_resources(a, mixed) == "DONE"
    group.drain()
    assert set(group.holders()) == set(mixed)
    assert group.set_resources(a, ()) == "DONE"
    group.drain()
    assert group.holders() == {}


@pytest.mark.parametrize("moves", [1, 2, 7])
def test_no_page_adds_or_removes_more_than_a_call_may(backend: Backend, moves: int) -> None:
    """Neither a list of new names nor an empty one is taken at once."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=moves))
    standby = group.join("s", capacity=0)
    for version, names_ in ((1, names(20)), (12, ())):
        before = len(group.records().resources)
        page = SetResources(version=version, digest="x", names=names_)
        assert standby.ask(page).results[0] == "NEXT"
        assert abs(len(group.records().resources) - before) == moves
        assert group.set_resources(standby, names_, version=version + 10) == "DONE"


def test_a_page_of_nobody_s_walk_says_nothing(group: Group) -> None:
    """What was applied before it is unknown: its sender starts over."""
    a = holder(group)
    page = SetResources(version=9, digest="x", after="r001", to="", names=("r002",))
    assert a.ask(page).results == ("AGAIN",)
    assert len(group.holders()) == 4
    assert group.set_resources(a, names(3), version=9) == "DONE"


def test_names_are_ordered_by_their_bytes(backend: Backend) -> None:
    """Upper case before lower case, ten before two: pages are cut as Redis sorts, not as a locale would."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=2))
    a = group.join("a")
    wanted = ("B", "a", "b-10", "b-2", "b_1", "Ä", "ä", "ß", "é-1")
    for declared in (wanted, wanted[::2], wanted):
        assert group.set_resources(a, tuple(sorted(declared))) == "DONE"
        group.drain()
        assert list(group.holders()) == sorted(declared)


def test_a_list_in_the_middle_of_a_higher_one_waits_and_is_ignored(group: Group) -> None:
    """Once a page of a new version has arrived, the old version has no effect, unless nobody sends the rest of the new
    one.
    """
    a, b = holder(group), group.join("b")
    a.ask(SetResources(version=9, digest="x", after="", to="r001", names=("r000", "r001")))
    assert group.set_resources(b, names(2), version=5) == "WAIT"
    assert len(group.holders()) == 4
    a.ask(SetResources(version=9, digest="x", after="r001", names=("r002", "r003")))
    assert group.set_resources(b, names(2), version=5) == "IGNORED"
    assert len(group.holders()) == 4


def test_a_higher_version_waits_for_the_end_of_a_list_that_is_being_sent(group: Group) -> None:
    """Or lists that come faster than they can be sent would never be known. Nobody waits for a member that has left."""
    a, b = group.joined("ab")
    a.ask(SetResources(version=1, digest="one", after="", to="r001", names=("r000", "r001")))
    assert group.set_resources(b, names(5), version=2) == "WAIT"
    assert a.ask(SetResources(version=1, digest="one", after="r001", names=("r002", "r003"))).results == ("DONE",)
    assert {it.name for it in group.coordinator.resources()} == set(names(4))
    assert group.set_resources(b, names(5), version=2) == "DONE"
    a.ask(SetResources(version=3, digest="three", after="", to="r001", names=("r000", "r001")))
    a.silent = True
    group.run(3 * group.settings.heartbeat_interval_ms)
    assert group.set_resources(b, names(6), version=4) == "DONE"


def test_who_began_a_list_and_takes_it_back_is_not_waited_for(group: Group) -> None:
    """Nobody else would ever go on with it."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2), version=1)
    half = a.ask(SetResources(version=3, digest="three", after="", to="r000", names=("r000",)))
    assert half.results[0] == "NEXT"
    assert group.set_resources(b, names(3), version=2) == "WAIT"
    assert group.set_resources(a, names(3), version=2) == "DONE"
    assert group.set_resources(b, names(3), version=2) == "CURRENT"
    assert group.set_resources(a, names(1), version=1) == "IGNORED"
    assert {it.name for it in group.coordinator.resources()} == set(names(3))


def test_a_claim_of_what_is_being_removed_does_not_keep_it(group: Group) -> None:
    """The same process under its next id continues draining; finally the resource is removed, and only that."""
    a = holder(group)
    group.set_resources(a, names(4)[1:])
    a.hear()
    token = a.holds["r000"].token
    again = a.rejoin("a2")
    assert again.holds["r000"].token == token
    again.hear()
    assert again.pending == ["r000"]
    group.drain()
    assert set(group.holders()) == set(names(4)[1:])
