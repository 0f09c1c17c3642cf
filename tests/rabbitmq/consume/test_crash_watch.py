"""The looks at a member whose last will was delivered: how many, how far apart, and when they end its session."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import attrs
import pytest
from tests.coordinator.backends import MemoryBackend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.coordinator.client import Coordinator, Sight
from cobalance.coordinator.requests import Header, Request, Suspect, Vouch
from cobalance.rabbitmq.consume.crash_watch import (
    LOOK_EVERY_MS,
    LOOKS,
    LOOKS_IF_GONE,
    MOST_LIVES,
    MOST_LOOKS,
    WITHIN_MS,
    CrashWatch,
    Suspicion,
)
from cobalance.rabbitmq.consume.last_will import Will

WILL = Will("a", "amqp", "its process")


def silent(at_ms: int) -> Sight:
    return Sight("SILENT", "1/2/3", at_ms)


def test_only_the_last_look_of_a_row_may_end_the_session() -> None:
    """The others only look, and all compare with what the first one saw."""
    suspicion = Suspicion(WILL)
    asked = []
    for number in range(LOOKS):
        asked.append(suspicion.next_look())
        suspicion.saw(silent(number * LOOK_EVERY_MS))
    assert [it.within_ms for it in asked] == [0] * (LOOKS - 1) + [WITHIN_MS]
    assert [it.seen for it in asked] == ["", *["1/2/3"] * (LOOKS - 1)]
    assert asked[-1].last_look_ms == (LOOKS - 2) * LOOK_EVERY_MS


def test_of_a_process_that_is_gone_two_looks_are_enough() -> None:
    """They follow at once; the kernel is asked before each, since a process takes a while to end."""
    ends = iter([False, True])
    suspicion = Suspicion(WILL, lambda process: process == "its process" and next(ends))
    first = suspicion.next_look()
    assert (first.within_ms, suspicion.saw(silent(0))) == (0, LOOK_EVERY_MS)
    last = suspicion.next_look()
    assert (last.within_ms, last.seen, suspicion.saw(silent(1))) == (WITHIN_MS, "1/2/3", 0)


def test_a_process_that_is_gone_is_not_ended_by_one_look() -> None:
    """Redis is asked twice whether the member calls."""
    suspicion = Suspicion(WILL, lambda _: True)
    looks = []
    for number in range(LOOKS_IF_GONE):
        looks.append(suspicion.next_look().within_ms)
        assert suspicion.saw(silent(number)) == 0
    assert looks == [0, WITHIN_MS]


def test_a_long_pause_begins_the_row_anew() -> None:
    """Redis or this process stood still meanwhile."""
    suspicion = Suspicion(WILL)
    at_ms = 0
    for pause_ms in (0, LOOK_EVERY_MS, WITHIN_MS + 1, WITHIN_MS):
        at_ms += pause_ms
        assert suspicion.saw(silent(at_ms)) == LOOK_EVERY_MS
    assert suspicion.next_look().within_ms == 0
    suspicion.saw(silent(at_ms + LOOK_EVERY_MS))
    assert suspicion.next_look().within_ms == WITHIN_MS


def test_signs_of_life_are_looked_at_ever_more_rarely() -> None:
    """The connections of a process that dies are closed one after the other."""
    suspicion = Suspicion(WILL)
    pauses = [suspicion.saw(Sight("ALIVE", "", number)) for number in range(MOST_LIVES)]
    assert pauses == [*(LOOK_EVERY_MS << number for number in range(1, MOST_LIVES)), None]


def test_a_sign_of_life_begins_the_row_anew() -> None:
    """What was seen before it counts no more."""
    suspicion = Suspicion(WILL)
    for number in range(LOOKS - 1):
        suspicion.saw(silent(number))
    suspicion.saw(Sight("ALIVE", "", LOOKS))
    assert (suspicion.next_look().seen, suspicion.next_look().within_ms) == ("", 0)


@pytest.mark.parametrize("verdict", ["ENDED", "GONE", "UNVOUCHED", "RECOVERING"])
def test_other_verdicts_are_final(verdict: str) -> None:
    """There is nothing to look at, or it must not be ended early."""
    assert Suspicion(WILL).saw(Sight(verdict, "", 1)) is None


def test_a_row_that_is_never_complete_is_given_up() -> None:
    """The session decides."""
    suspicion = Suspicion(WILL)
    pauses = [suspicion.saw(silent(number * 2 * WITHIN_MS)) for number in range(MOST_LOOKS)]
    assert pauses.count(None) == 1
    assert pauses[-1] is None


def dead(group: Group, ids: Sequence[str]) -> None:
    """Members that have vouched, and listen no more."""
    for it in ids:
        group.backend.watch(group.coordinator.channel(it))
        group.execute(Request(Header(it, 0), Vouch("amqp")))
        group.backend.unwatch(group.coordinator.channel(it))


def test_several_members_are_looked_at_in_turn() -> None:
    """Each is decided, and what is to be called then is called."""
    group = Group(MemoryBackend("luajit21"))
    a, *_ = group.joined("abcd")
    group.set_resources(a, names(8))
    group.drain()
    dead(group, "abc")
    done = {it: threading.Event() for it in "abcx"}
    watch = CrashWatch(group.coordinator)
    for it, decided in done.items():
        watch.suspect(Will(it, "amqp"), decided.set)
    assert all(it.wait(60) for it in done.values())
    assert set(group.holders().values()) == {"d"}


class Slow(Coordinator):
    """Each look takes some ms."""

    def __init__(self, group: Group) -> None:
        super().__init__(group.backend, "g")
        self._backend = group.backend

    def suspect(self, look: Suspect) -> Sight:
        self._backend.now_ms += 3
        return super().suspect(look)


def test_many_that_have_died_at_once_are_all_ended() -> None:
    """However many there are for one to look at, and others among them that are no members: the pauses do not become too long."""
    group = Group(
        MemoryBackend("luajit21"), attrs.evolve(SETTINGS, session_timeout_ms=60_000, revocation_timeout_ms=60_000)
    )
    ids = [f"m{number}" for number in range(30)]
    for it in ids:
        group.join(it)
    dead(group, ids)
    watch = CrashWatch(Slow(group))
    done = {it: threading.Event() for it in [*ids, *(f"gone{number}" for number in range(30))]}
    for it, decided in done.items():
        watch.suspect(Will(it, "amqp"), decided.set)
    assert all(it.wait(60) for it in done.values())
    assert group.loads() == {}
