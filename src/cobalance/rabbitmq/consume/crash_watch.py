"""Decides whether a member whose last will was delivered is dead, with Redis as the second witness.

RabbitMQ has closed its connection, which says nothing about its process. If that was killed, its kernel has closed the
connections to Redis as well, a few milliseconds earlier or later; if it lives, it tells the coordinator at once that it
has lost this connection. So the coordinator is asked to look at it several times in a row (``lua/suspect.lua``). Each
look asks the member to call, if it listens. Its session ends at the last look of a row in which it did not listen, and
did not call. Any sign of life begins the row again, after a longer pause, a few times.

Of many members a few are looked at in turn, and the others wait: the looks at each would follow each other too slowly.

The row is the moment that a living process has to connect again which has lost all its connections at once. A pause
that becomes too long does not count: Redis or this process stood still, and perhaps the member with it. So on a busy
machine the moment gets longer. A process of which this machine's kernel knows that it is gone connects no more: two
looks, one right after the other, make a row then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Suspect
from cobalance.errors import CobalanceError
from cobalance.rabbitmq.consume.process_identity import is_gone
from cobalance.threads.log_lines import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.coordinator.client import Coordinator, Sight
    from cobalance.rabbitmq.consume.last_will import Will

log = logging.getLogger("cobalance.rabbitmq")

LOOKS, LOOKS_IF_GONE = 4, 2
"""In a row, all silent; the fewer if the process is gone for certain."""

LOOK_EVERY_MS = 4
"""The pause between two looks: a row takes three of them, and what the calls take."""

WITHIN_MS = 20
"""The longest pause that counts, from one look to the next on Redis's clock."""

MOST_LIVES = 5
"""After so many signs of life it is taken to live. The pauses before the next row double, from `LOOK_EVERY_MS` on."""

MOST_AT_ONCE = 3
"""So many rows are under way at a time: the looks at others fit well into the longest pause."""

MOST_LOOKS = 100
"""A row that cannot be completed, since pauses become too long, is given up: the session decides."""


class Suspicion:
    """The looks at one member, without calls. ``next_look`` says what to ask; ``saw`` takes the answer, and says how long
    to wait before the next look, or None if there is none.
    """

    def __init__(
        self, will: Will, is_gone: Callable[[str], bool] = is_gone, *, done: Callable[[], object] = lambda: None
    ) -> None:
        """`done` is for its owner to call when that is decided, or cannot be."""
        self.member, self.done = will.member, done
        self._connection = will.connection
        self._process, self._looks_for, self._is_gone = will.process, is_gone, False
        self._looks = self._lives = self._in_row = 0
        self._seen, self._last_ms = "", 0

    @property
    def is_in_row(self) -> bool:
        return self._in_row > 0

    def next_look(self) -> Suspect:
        self._is_gone = self._is_gone or self._looks_for(self._process)
        is_last = self._in_row >= (LOOKS_IF_GONE if self._is_gone else LOOKS) - 1
        return Suspect(
            member=self.member,
            connection=self._connection,
            seen=self._seen,
            last_look_ms=self._last_ms,
            within_ms=WITHIN_MS if is_last else 0,
        )

    def saw(self, sight: Sight) -> int | None:
        self._looks += 1
        if sight.verdict not in ("SILENT", "ALIVE") or self._looks == MOST_LOOKS:
            return None
        if sight.verdict == "ALIVE":
            return self._lives_on()
        in_time = sight.now_ms - self._last_ms <= WITHIN_MS
        self._in_row = self._in_row + 1 if self._in_row and in_time else 1
        self._seen, self._last_ms = sight.seen, sight.now_ms
        return 0 if self._is_gone else LOOK_EVERY_MS

    def _lives_on(self) -> int | None:
        self._lives += 1
        self._in_row, self._seen = 0, ""
        return None if self._lives == MOST_LIVES else LOOK_EVERY_MS << self._lives


class Suspicions:
    """Members to look at, each when its next look is due: of many, a few in turn. Not thread-safe."""

    def __init__(self) -> None:
        self._due: deque[tuple[float, Suspicion]] = deque()

    def put(self, at_s: float, suspicion: Suspicion) -> None:
        self._due.append((at_s, suspicion))

    def take(self, now_s: float) -> tuple[float, Suspicion] | None:
        """Whom to look at next, and when; of those that are due, a row goes on first. None if there is nobody."""
        if not self._due:
            return None
        rows = [it for it in self._due if it[1].is_in_row]
        candidates = self._due if len(rows) < MOST_AT_ONCE else rows
        soonest = min(candidates, key=lambda it: (max(it[0], now_s), not it[1].is_in_row, it[0]))
        self._due.remove(soonest)
        return soonest

    def take_all(self) -> list[Suspicion]:
        """Nobody is looked at any more."""
        due, self._due = self._due, deque()
        return [suspicion for _, suspicion in due]


class CrashWatch:
    """Looks at members that may be dead, on a thread that exists only meanwhile. Any thread."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._suspicions = Suspicions()
        self._running = False

    def suspect(self, will: Will, done: Callable[[], object]) -> None:
        """Looks soon at a member whose will was delivered; calls `done` when that is decided, or cannot be."""
        with self._lock:
            self._suspicions.put(time.monotonic(), Suspicion(will, done=done))
            first, self._running = not self._running, True
        if first:
            try:
                ServiceThread(self._run, f"cobalance-{self._coordinator.group}-crashes").start()
            except RuntimeError:  # too many threads: the session decides
                with self._lock:
                    given_up, self._running = self._suspicions.take_all(), False
                for suspicion in given_up:
                    suspicion.done()

    def _run(self) -> None:
        while (next_one := self._take()) is not None:
            at, suspicion = next_one
            time.sleep(max(0.0, at - time.monotonic()))
            pause_ms = self._look(suspicion)
            if pause_ms is None:
                suspicion.done()
            else:
                with self._lock:
                    self._suspicions.put(time.monotonic() + pause_ms / 1000, suspicion)

    def _take(self) -> tuple[float, Suspicion] | None:
        with self._lock:
            taken = self._suspicions.take(time.monotonic())
            self._running = taken is not None
            return taken

    def _look(self, suspicion: Suspicion) -> int | None:
        try:
            sight = self._coordinator.suspect(suspicion.next_look())
        except CobalanceError:
            return None
        except Exception:  # a dead thread would go unnoticed, and nobody else be looked at
            log.exception("group %s: a look at a member has failed: please report this", self._coordinator.group)
            return None
        pause_ms = suspicion.saw(sight)
        if sight.verdict == "ENDED":
            log.warning(
                "group %s: the process of member %s is dead, as RabbitMQ and Redis have seen; its session was ended",
                *(self._coordinator.group, suspicion.member),
            )
        elif pause_ms is None:
            log.debug(
                "group %s: member %s lost RabbitMQ, and is not taken for dead (%s)",
                *(self._coordinator.group, suspicion.member, sight.verdict),
            )
        return pause_ms
