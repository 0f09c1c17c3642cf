"""The story: three processes share the work, a fourth joins, one leaves, one is killed."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from proof.bench.peers.judge import MembershipChange, Story
from proof.bench.peers.load import Load
from proof.bench.peers.team import Team

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proof.bench.peers.peer import Peer, Place

PARTITIONS = 12
FOUNDERS = 3
STEADY_S = 0.5
"""A group has settled when it has been even for so long."""

START_S = 90.0
"""For the first members to share the work, however evenly."""

SILENCE_S = 10.0
"""What is left after the last message was published is lost once nothing has been handled for so long."""

POLL_S = 0.01


class NotSettled(RuntimeError):
    """The first members did not begin to work."""


def play(peer: Peer, chance: random.Random) -> Story:
    """Plays it once, with a topic and a group of its own."""
    place = peer.open(PARTITIONS)
    try:
        return _Playing(peer, place, chance).play()
    finally:
        place.close()


class _Playing:
    def __init__(self, peer: Peer, place: Place, chance: random.Random) -> None:
        self._peer, self._chance = peer, chance
        self._team = Team(place.command, place.environment)
        self._load = Load(place, PARTITIONS)

    def play(self) -> Story:
        try:
            for _ in range(FOUNDERS):
                self._team.start()
            self._wait_all_worked()
            changes = tuple(self._changes())
            self._load.close()
            self._wait_handled()
        finally:
            self._team.close()
            if self._load.is_running:
                self._load.close()
        return Story(
            partitions=PARTITIONS, handled=self._team.handled(), changes=changes, published=self._load.published
        )

    def _changes(self) -> Iterator[MembershipChange]:
        for happen in (self._join, self._leave, self._kill):
            # At any moment of a heartbeat interval; the members' own heartbeats are not in step either.
            self._rest(STEADY_S + self._chance.uniform(0, self._peer.beat_s))
            yield happen()

    def _join(self) -> MembershipChange:
        process = self._team.start()
        self._wait(lambda: process in self._team.started, START_S)
        return self._settled("joins", process, self._team.started[process])

    def _leave(self) -> MembershipChange:
        process = self._one_that_works()
        at, wait = self._team.ask_to_leave(process)
        change = self._settled("leaves", process, at)
        wait()
        return change

    def _kill(self) -> MembershipChange:
        process = self._one_that_works()
        return self._settled("killed", process, self._team.kill(process))

    def _one_that_works(self) -> int:
        return self._chance.choice(sorted(set(self._team.owners.values()) & set(self._team.processes)))

    def _settled(self, kind: str, process: int, at: float) -> MembershipChange:
        """Waits until the shares have been even for a while, or patience is at an end."""
        give_up_at, even_since = at + self._peer.patience_s, None
        while even_since is None or time.monotonic() < even_since + STEADY_S:
            if time.monotonic() > give_up_at:
                break
            even_since = (even_since or time.monotonic()) if self._is_even() else None
            self._team.check()
            time.sleep(POLL_S)
        return MembershipChange(
            kind=kind, process=process, at=at, until=time.monotonic(), members=tuple(self._team.processes)
        )

    def _is_even(self) -> bool:
        owners = list(self._team.owners.values())
        shares = [owners.count(process) for process in self._team.processes]
        return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

    def _wait_all_worked(self) -> None:
        """Each partition has a process; evenly so, if the product gets that far within its patience."""
        self._wait(lambda: len(self._team.owners) == PARTITIONS, START_S)
        self._settled("starts", 0, time.monotonic())

    def _wait_handled(self) -> None:
        """What is not handled by then is lost."""
        handled, since = self._team.finished(), time.monotonic()
        while handled < len(self._load.published) and time.monotonic() < since + SILENCE_S:
            self._rest(POLL_S)
            if self._team.finished() != handled:
                handled, since = self._team.finished(), time.monotonic()

    def _wait(self, is_true: Callable[[], bool], seconds: float) -> None:
        give_up_at = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > give_up_at:
                raise NotSettled(f"{self._peer.title}: not all of its partitions are worked after {seconds:g} s")
            self._rest(POLL_S)

    def _rest(self, seconds: float) -> None:
        time.sleep(seconds)
        self._team.check()
