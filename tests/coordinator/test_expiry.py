"""Redis drops an unused group as a whole after the configured time, and never a group that has members."""

from __future__ import annotations

from contextlib import suppress

import attrs
import pytest
from tests.coordinator.backends import MemoryBackend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.coordinator.client import Coordinator
from cobalance.errors import ScriptFailed, UnknownGroup

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MARGIN_MS = 7 * DAY_MS
KEPT_AN_HOUR = attrs.evolve(SETTINGS, idle_expiry_ms=HOUR_MS)


@pytest.fixture
def memory() -> MemoryBackend:
    """Its clock, by which keys expire too, is the test's."""
    return MemoryBackend("lua51")


def ends(group: Group) -> set[int | None]:
    """How long each key will be kept from now on."""
    now_ms = group.backend.now_ms
    return {None if key.expires_at_ms is None else key.expires_at_ms - now_ms for key in group.backend.dump()}


def used_group(memory: MemoryBackend) -> Group:
    """A group that was worked, and left."""
    group = Group(memory, KEPT_AN_HOUR)
    a = group.join("a")
    group.set_resources(a, names(3))
    a.hear()
    a.commit("r000", 10)
    group.until_left(a)
    return group


def test_by_default_a_group_is_kept_for_good(memory: MemoryBackend) -> None:
    """Its offsets may be all that a quarterly job leaves behind."""
    group = Group(memory)
    group.until_left(group.join("a"))
    assert ends(group) == {None}


def test_an_idle_group_is_dropped_as_a_whole(memory: MemoryBackend) -> None:
    """An hour after the last member has left, and not a moment earlier, however often it is read meanwhile."""
    group = used_group(memory)
    assert ends(group) == {HOUR_MS}
    memory.now_ms += HOUR_MS - 1
    assert group.coordinator.state()["members"] == "0"
    assert group.records().offsets == {"r000": 10}
    memory.now_ms += 1
    assert memory.dump() == ()
    with pytest.raises(UnknownGroup):
        Coordinator(memory, "g").state()


def test_a_group_that_was_created_and_never_used_is_dropped_too(memory: MemoryBackend) -> None:
    """It is idle from the start."""
    assert ends(Group(memory, KEPT_AN_HOUR)) == {HOUR_MS}


def test_a_group_with_members_is_kept(memory: MemoryBackend) -> None:
    """Whatever members come and go, for a month; its offsets too."""
    group = used_group(memory)
    for number in range(60):
        member = group.join(f"m{number}")
        member.hear()
        memory.now_ms += DAY_MS // 2
        (left,) = ends(group)
        assert left is not None
        assert left >= MARGIN_MS - DAY_MS
        member.silent = True
    assert group.records().offsets == {"r000": 10}


def test_a_quiet_group_puts_its_end_off_once_a_day(memory: MemoryBackend) -> None:
    """Heartbeats alone do, by the timer; between two timers they write what they always did."""
    settings = attrs.evolve(KEPT_AN_HOUR, session_timeout_ms=HOUR_MS, revocation_timeout_ms=HOUR_MS)
    group = Group(memory, settings)
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    (before,) = ends(group)
    assert before == HOUR_MS + MARGIN_MS
    for beat in range(4 * 24):
        memory.now_ms += HOUR_MS // 4
        a.hear()
        assert not a.is_over
        (left,) = ends(group)
        assert left is not None
        assert left == HOUR_MS + MARGIN_MS - (beat + 1) % 96 * HOUR_MS // 4


def test_members_that_died_without_a_word_are_waited_for(memory: MemoryBackend) -> None:
    """Nobody calls any more: only Redis can end it, a week after the configured time."""
    group = Group(memory, KEPT_AN_HOUR)
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    memory.now_ms += HOUR_MS + MARGIN_MS - 1
    assert memory.dump() != ()
    memory.now_ms += 1
    assert memory.dump() == ()


def test_keys_that_come_back_end_with_the_others(memory: MemoryBackend) -> None:
    """Redis forgets the expiry of a key that was empty for a moment."""
    group = used_group(memory)
    a = group.join("a2")
    a.hear()
    group.join("b").hear()
    a.hear()
    assert a.pending
    a.release_pending()
    assert len(ends(group)) == 1


def test_the_setting_can_be_changed_at_any_time(memory: MemoryBackend) -> None:
    """Longer, shorter, and forever."""
    group = used_group(memory)
    group.coordinator.configure(idle_expiry_ms=2 * HOUR_MS)
    assert ends(group) == {2 * HOUR_MS}
    group.coordinator.configure(idle_expiry_ms=0)
    assert ends(group) == {None}
    group.coordinator.configure(idle_expiry_ms=HOUR_MS)
    assert ends(group) == {HOUR_MS}


def test_a_setting_that_died_half_way_ends_nothing(memory: MemoryBackend) -> None:
    """Whichever of its writes was the last: no key of a group that is kept forever expires."""
    group = Group(memory, SETTINGS)
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    for write in range(1, 30):
        memory.store.die_at(write)
        with suppress(ScriptFailed):
            group.coordinator.configure(idle_expiry_ms=HOUR_MS)
        memory.store.die_at(0)
        a.hear()
        assert ends(group) == {None} or group.records().number("idle_ms") == HOUR_MS, write
    assert len(ends(group)) == 1


def test_a_repair_leaves_the_end_where_it_is_due(memory: MemoryBackend) -> None:
    """What it rebuilds expires with the rest, and a group with members postpones it again."""
    group = used_group(memory)
    group.coordinator.repair()
    assert ends(group) == {HOUR_MS}
    a = group.join("a2")
    a.hear()
    group.coordinator.repair()
    assert ends(group) == {HOUR_MS + MARGIN_MS}


def test_the_first_member_brings_the_setting(memory: MemoryBackend) -> None:
    """A group created by its first join has it from there."""
    group = Group(memory, KEPT_AN_HOUR, create=False)
    group.join("a")
    assert group.coordinator.settings().idle_expiry_ms == HOUR_MS
    assert ends(group) == {HOUR_MS + MARGIN_MS}
