"""Describing and configuring a group: the administrative side of the client."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.requests import Configure, Describe, Header, Request, Section
from cobalance.errors import GroupExists, InvalidSettings, UnknownGroup


def test_members_and_resources_are_shown_as_they_are(group: Group) -> None:
    """Statuses, shares, pending revocations with their deadlines, offsets."""
    a = group.join("a", label="host:1", instance_id="pod-0")
    group.set_resources(a, names(2))
    a.hear()
    a.commit("r000", 7)
    group.join("b", capacity=1)
    a.hear()
    (pending,) = a.pending
    rows = {row.id: row for row in group.coordinator.members()}
    assert (rows["a"].status, rows["a"].instance_id, rows["a"].label) == ("active", "pod-0", "host:1")
    assert (rows["a"].kept, rows["a"].pending, rows["a"].quota_floor, rows["a"].quota_ceil) == (1, 1, 1, 1)
    assert (rows["b"].kept, rows["b"].pending, rows["b"].instance_id) == (0, 0, None)
    assert rows["a"].expires_ms == group.backend.now_ms + SETTINGS.session_timeout_ms
    assert rows["a"].last_request == a.number
    resources = {row.name: row for row in group.coordinator.resources()}
    assert resources[pending].status == "pending"
    assert resources[pending].deadline_ms == a.holds[pending].deadline_ms
    assert resources["r000"].committed == 7


def test_the_state_is_shown_by_name(group: Group) -> None:
    """With the settings in force and the elected coordinator."""
    a = group.join("a")
    group.set_resources(a, names(3))
    state = group.coordinator.state()
    assert (state["coordinator"], state["owned"], state["free"], state["members"]) == ("a", "3", "0", "1")
    assert group.coordinator.settings() == SETTINGS


@pytest.mark.parametrize("page", [1, 2, 5, 200])
def test_pages_show_everything_once(group: Group, page: int) -> None:
    """Whatever the page size, each row appears once."""
    a, *_ = group.joined("abcdefg")
    group.set_resources(a, names(10))
    for section, expected in (("members", set("abcdefg")), ("resources", set(names(10)))):
        seen, cursor = [], ""
        while True:
            reply = group.execute(Request(Header("-", 0), Describe(section, cursor, page)))  # type: ignore[arg-type]
            shown = [line.split(" ")[0] for row in reply.rows for line in row[0].split("\n")]
            assert len(shown) <= page
            seen += shown
            cursor = reply.results[0]
            if not cursor:
                break
        assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("page", [1, 3])
def test_whoever_stays_is_shown_once_while_others_come_and_go(group: Group, page: int) -> None:
    """Between two pages, members join and leave and loads change, and none of that hides a member or shows it twice."""
    a, *_ = group.joined("abcdefghij")
    group.set_resources(a, names(7))
    group.drain()
    shown: list[str] = []
    for number, ids in enumerate(pages_of(group, "members", page)):
        shown += ids
        group.until_left(group.join(f"{'aZz'[number % 3]}{number}", capacity=3))
        group.set_resources(a, names(7 + number % 3))
        group.drain()
    assert sorted(shown) == sorted({*shown})
    assert set("abcdefghij") <= {*shown}


def test_a_kept_offset_is_shown_once_while_others_are_taken_up_again(group: Group) -> None:
    """Kept offsets are sorted by when they are forgotten, and several may be at the same moment."""
    a = group.join("a")
    group.set_resources(a, names(12))
    a.hear()
    for number, name in enumerate(names(12)):
        a.commit(name, number)
    for still in (8, 4, 0):  # four at a time
        group.set_resources(a, names(12)[12 - still :])
        group.drain()
        group.backend.now_ms += 500
        a.hear()
    shown: list[str] = []
    for number, found in enumerate(pages_of(group, "offsets", 3)):
        shown += found
        group.set_resources(a, names(number + 1))  # which takes up one more of those shown first
        group.drain()
    assert sorted(shown) == sorted({*shown})
    assert {"r010", "r011"} <= {it.name for it in group.coordinator.kept_offsets()} <= {*shown}


def pages_of(group: Group, section: Section, size: int) -> Iterator[list[str]]:
    """The names in each page, which is read when it is asked for."""
    cursor = ""
    while True:
        reply = group.execute(Request(Header("-", 0), Describe(section, cursor, size)))
        yield [row[0] for row in reply.rows]
        cursor = reply.results[0]
        if not cursor:
            return


def test_looking_settles_what_is_due(group: Group) -> None:
    """What is shown is not older than the call."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    a.silent = b.silent = True
    for _ in range(3):
        group.backend.now_ms += 1500
        group.coordinator.state()
    assert [row.id for row in group.coordinator.members()] == []
    assert {row.owner for row in group.coordinator.resources()} == {None}


def test_a_group_that_is_not_there_is_named(backend: Backend) -> None:
    """With advice."""
    coordinator = Coordinator(backend, "nowhere")
    for ask in (coordinator.state, coordinator.tick, coordinator.settings, lambda: list(coordinator.members())):
        with pytest.raises(UnknownGroup, match="'nowhere' does not exist"):
            ask()


def test_a_group_is_created_once(group: Group) -> None:
    """Creating it again is an error and changes nothing."""
    with pytest.raises(GroupExists, match="'g' exists already"):
        group.coordinator.create(attrs.evolve(SETTINGS, gather_ms=99))
    assert group.coordinator.settings() == SETTINGS


def test_a_change_of_settings_reaches_everybody(group: Group) -> None:
    """The next reply carries the new session timeout; members need not restart."""
    (a,) = group.joined("a")
    group.coordinator.configure(session_timeout_ms=4000, revocation_timeout_ms=4000)
    assert a.heartbeat().session_timeout_ms == 4000
    assert group.coordinator.settings().revocation_timeout_ms == 4000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"session_timeout_ms": 6000}, "revocation_timeout_ms .5000. is below session_timeout_ms"),
        ({"heartbeat_interval_ms": 2000}, "above a third"),
        ({"moves_per_call": 0}, "moves_per_call is 0"),
        ({"mode": "lazy"}, "mode is 'lazy'"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    group: Group, changes: dict[str, int | str], message: str
) -> None:
    """The error names them; nothing is changed."""
    with pytest.raises(InvalidSettings, match=message):
        group.coordinator.configure(**changes)
    assert group.coordinator.settings() == SETTINGS


def test_settings_that_contradict_each_other_can_be_mended(group: Group) -> None:
    """They came from a version that did not look, or from a hand."""
    group.poke("heartbeat_ms", 4000)
    with pytest.raises(InvalidSettings, match="above a third"):
        group.coordinator.settings()
    with pytest.raises(InvalidSettings, match="above a third"):
        group.coordinator.configure(gather_ms=1)
    assert group.coordinator.configure(heartbeat_interval_ms=100).heartbeat_interval_ms == 100
    assert group.coordinator.settings() == attrs.evolve(SETTINGS, heartbeat_interval_ms=100)


def test_the_script_refuses_what_would_be_unsafe(group: Group) -> None:
    """Two administrators whose changes are valid separately but not together: the script checks the result."""
    for values in (
        (("revocation_ms", "2000"),),
        (("session_ms", "9000"),),
        (("heartbeat_ms", "2000"),),
        (("session_ms", "500"),),
        (("colour", "1"),),
    ):
        reply = group.execute(Request(Header("-", 0), Configure(create=False, values=values)))
        assert reply.results[0] == "INVALID"
    assert group.coordinator.settings() == SETTINGS


def test_joins_do_not_change_settings(group: Group) -> None:
    """The first stored ones count, until the group is configured."""
    group.join("a", settings=attrs.evolve(SETTINGS, gather_ms=77))
    assert group.coordinator.settings() == SETTINGS
