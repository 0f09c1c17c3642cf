"""What is left out of a state makes no difference: with and without it, the same things happen in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from proof.explore import codec, dump, memory
from proof.explore.fair import beginning
from proof.explore.pool import Ids
from proof.explore.scope import GROUP_MS, MEMBER_MS, SCOPES, TICK_MS
from proof.explore.world import MEMORY, STORE, Transitions

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),
]  # whole explorations: up to a minute each on an idle machine

Seen = tuple[object, ...]
"""What an outside observer can see of a state."""


@pytest.fixture(scope="module")
def reduced() -> set[tuple[Seen, object, Seen]]:
    """All transitions of a small group as they are explored."""
    return set(transitions(Transitions(SCOPES["2x1"])))


AWAY = attrs.evolve(SCOPES["tiny"], budgets=(("cut", 2),), faults=2, settled=1, revocation_ticks=3)
"""Both may be silent at once, while a revocation runs: a silence that must not be held against them."""


@pytest.fixture(scope="module")
def away() -> set[tuple[Seen, object, Seen]]:
    """All transitions of a group that may fall silent."""
    return set(transitions(Transitions(AWAY)))


def transitions(world: Transitions) -> Iterator[tuple[Seen, object, Seen]]:
    """Everything that can happen, as it looks from outside."""
    waiting = [beginning(world)]
    known = set(waiting)
    while waiting:
        state = waiting.pop()
        for successor in world.successors(state):
            assert not successor.wrong
            yield seen(world, state), successor.action, seen(world, successor.state)
            if successor.state not in known:
                known.add(successor.state)
                waiting.append(successor.state)


def seen(world: Transitions, state: Ids) -> Seen:
    """Which resources are worked, which requests are open, and what the group has recorded."""
    records = world.checks.facts(state[STORE]).records
    memory_of_it = world.memories.look(state[MEMORY])
    return (
        tuple((name, it.status, it.owner) for name, it in sorted(records.resources.items())),
        tuple((name, it.status) for name, it in sorted(records.members.items())),
        records.number("recovering") > 0,
        tuple(sorted(memory_of_it.budgets.items())),
        tuple(_of_process(it) for _, it in world.slots(state)),
    )


def _of_process(it: Any) -> Seen:
    if it.session is None:
        return (it.status, it.life)
    request = it.session.line.outstanding
    asks = type(request.payload).__name__ if request else ""
    tenures = tuple((held.resource, held.state) for held in it.tenures.values())
    return (it.status, it.life, it.is_cut, it.is_calling, it.session.phase, asks, tenures)


def test_times_before_the_next_tick_are_one(reduced: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member checks its clock at ticks: all times between two of them come at the later one."""
    monkeypatch.setattr(codec, "next_tick", lambda value: max(value, MEMBER_MS))
    assert set(transitions(Transitions(SCOPES["2x1"]))) == reduced


def test_a_silence_that_puts_off_nothing_is_forgotten(away: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose session and deadline exceed the allowance does not need it; while any member does, it is kept."""

    def only_when_past(self: dump.Canonical, fields: dict[str, str], _: dump.Around) -> bool:
        settings = self._settings
        patience = max(settings.session_timeout_ms, settings.revocation_timeout_ms)
        return int(fields["gap_at"]) + patience <= GROUP_MS

    monkeypatch.setattr(dump.Canonical, "_is_gap_over", only_when_past)
    assert set(transitions(Transitions(AWAY))) == away


def test_a_long_silence_is_as_good_as_a_longer_one(away: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there was no call for two sessions, it makes no difference how long ago the last call was."""
    shorten = dump.Canonical._shorten_silence
    session_ms = AWAY.group.session_timeout_ms
    one_more = staticmethod(lambda fields, by_ms: shorten(fields, by_ms - session_ms))
    monkeypatch.setattr(dump.Canonical, "_shorten_silence", one_more)
    assert set(transitions(Transitions(AWAY))) == away


def test_without_a_loss_of_data_ahead_it_does_not_matter_who_has_seen_what(
    reduced: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What members have seen matters to a group that has lost data; one that cannot lose any is always ahead of it."""
    monkeypatch.setattr(memory.PathMemory, "can_lose_data", property(lambda _: True))
    assert set(transitions(Transitions(SCOPES["2x1"]))) == reduced


def test_a_difference_that_matters_is_noticed(
    reduced: set[tuple[Seen, object, Seen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison can fail: members whose times come a tick late behave differently."""
    monkeypatch.setattr(codec, "next_tick", lambda value: max(value, MEMBER_MS) + (value > MEMBER_MS) * TICK_MS)
    assert any(transition not in reduced for transition in transitions(Transitions(SCOPES["2x1"])))
