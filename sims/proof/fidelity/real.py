"""The real run: carries out the story's steps on real processes, at their times, and collects the evidence."""

from __future__ import annotations

import heapq
import itertools
import sys
import threading
import time
from collections.abc import Callable
from math import inf

import attrs

from cobalance.errors import CobalanceError
from cobalance.journal import Journal, JournalEntry
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance_sims.records import JOURNAL
from proof.fidelity.failure import FidelityFailed
from proof.fidelity.load import PlannedMessage
from proof.fidelity.machine import Machine, measure
from proof.fidelity.stage import MemberProcess, Stage
from proof.fidelity.story import Incident, Story
from proof.fidelity.telling import ProcessSilence, Telling, TenureCallback

BEGIN_S = 0.5
GRACE_S = 1.0
"""The journal is read this long after the end."""


def tell(story: Story, load: list[PlannedMessage], urls: tuple[str, str] | None = None) -> tuple[Telling, Machine]:
    """Runs the story once, on servers of its own or on the given Redis and RabbitMQ; before that, measures how long
    single operations take on this machine.

    Raises:
        FidelityFailed: a process ended by itself, or the load could not be published.
    """
    with Stage(story, urls) as stage:
        machine = measure(stage)
        return RealRun(stage, load).play(), machine


def now_ms() -> float:
    """The wall clock, which is the group's."""
    return time.time_ns() / 1e6


class RealRun:
    """One run: a queue of actions at their times, all carried out on this thread."""

    def __init__(self, stage: Stage, load: list[PlannedMessage]) -> None:
        self.stage, self.story = stage, stage.story
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._silences: list[tuple[str, float, float, bool]] = []
        self._done: list[Incident] = []
        self._publishing = _Publishing(stage, load)
        self._began_ms = 0.0

    def play(self) -> Telling:
        """Runs from the beginning to the end."""
        stage = self.stage
        stage.coordinator.create(self.story.settings)
        everybody = [stage.prepare(name) for name in (*self.story.founders, *self.story.joiners)]
        for member in everybody:  # the startup time of Python is not part of the story
            member.wait_ready()
        self._began_ms = now_ms() + BEGIN_S * 1000
        for name in self.story.founders:
            self._plan(Incident(at_ms=0, kind="join", who=name))
        for step in self.story.steps:
            self._plan(step)
        with self._publishing.begin(self._began_ms):
            self._run()
        for member in stage.members.values():
            if member.is_wanted:
                member.leave()
        for member in stage.members.values():
            member.wait_left()
        return self._evidence()

    # -- what happens ----------------------------------------------------------------------------------------------------

    def _plan(self, step: Incident) -> None:
        if step.kind != "slow":  # the load takes care of that
            self._at(step.at_ms, lambda: self._perform(step))

    def _at(self, ms: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (ms, next(self._order), do))

    def _perform(self, step: Incident) -> None:
        member = self.stage.members[step.who]
        self._say(f"{step.kind} {step.who}")
        self._done.append(attrs.evolve(step, at_ms=round(now_ms() - self._began_ms)))
        if step.kind == "join":
            member.join()
        elif step.kind == "leave":
            member.leave()
        elif step.kind == "kill":
            member.kill()
            self._silences.append((member.name, now_ms(), inf, False))
        else:
            self._freeze(member, step)

    def _freeze(self, member: MemberProcess, step: Incident) -> None:
        member.freeze()
        frozen_at = now_ms()

        def thaw() -> None:
            self._say(f"thaw {member.name}")
            self._silences.append((member.name, frozen_at, now_ms(), True))
            member.thaw()

        self._at(step.at_ms + step.for_ms, thaw)

    def _run(self) -> None:
        while self._queue:
            at, _, do = heapq.heappop(self._queue)
            self._sleep_until(at)
            do()
        self._sleep_until(self.story.length_ms + GRACE_S * 1000)

    def _sleep_until(self, ms: float) -> None:
        while (left := self._began_ms + ms - now_ms()) > 0:
            self._check()
            time.sleep(min(left / 1000, 0.5))

    def _check(self) -> None:
        for words in [*self.stage.failures(), *self._publishing.failures]:
            raise FidelityFailed(words)

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{(now_ms() - self._began_ms) / 1000:7.1f} s  {text}\n")

    # -- the evidence --------------------------------------------------------------------------------------------------

    def _evidence(self) -> Telling:
        cast = (*self.story.founders, *self.story.joiners)
        lines = {name: self.stage.members[name].lines() for name in cast}
        every = [line for those in lines.values() for line in those]
        end = self._began_ms + self.story.length_ms
        ids = {
            name: {line.text.rpartition(".")[0] for line in those if line.kind == "assigned"}
            for name, those in lines.items()
        }
        entries = tuple(Journal(self.stage.transport, self.stage.group).entries())
        return Telling(
            source=JOURNAL,
            begun_at_ms=self._began_ms,
            ended_at_ms=end,
            entries=entries,
            steps=tuple(self._as_heard(step, entries, ids[step.who]) for step in self._done),
            silences=tuple(
                ProcessSilence(id_, since, until, alive)
                for name, since, until, alive in self._silences
                for id_ in sorted(ids[name])
            ),
            turns=tuple(
                TenureCallback(line.at_ms, line.partition, line.number, line.kind == "assigned")
                for line in sorted(every, key=lambda it: it.at_ms)
                if line.kind in ("assigned", "revoked") and line.at_ms <= end
            ),
            handled=tuple(
                (line.partition, line.number) for line in every if line.kind == "begin" and line.at_ms <= end
            ),
        )

    def _as_heard(self, step: Incident, entries: tuple[JournalEntry, ...], ids: set[str]) -> Incident:
        """Returns the step at the time when the coordinator learned of it; others keep their time."""
        kind = {"join": "joined", "leave": "leaving"}.get(step.kind)
        heard = [
            entry.at_ms - self._began_ms
            for entry in entries
            if entry.kind == kind and (entry.member or "").rpartition(".")[0] in ids
        ]
        return attrs.evolve(step, at_ms=max(step.at_ms, round(heard[0]))) if heard else step


class _Publishing:
    """A thread that publishes each message at its time."""

    def __init__(self, stage: Stage, load: list[PlannedMessage]) -> None:
        self._stage, self._load = stage, load
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures: list[str] = []

    def begin(self, at_ms: float) -> _Publishing:
        self._thread = threading.Thread(target=self._run, args=(at_ms,), name="truth publisher", daemon=True)
        return self

    def __enter__(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, began_ms: float) -> None:
        try:
            with Publisher(self._stage.amqp_url, self._stage.topic, name="truth") as publisher:
                numbers = [0] * self._stage.story.partitions
                for message in self._load:
                    if self._over.wait(max(0.0, (began_ms + message.at_ms - now_ms()) / 1000)):
                        return
                    numbers[message.partition] += 1
                    body = message.body(numbers[message.partition])
                    publisher.publish(self._stage.keys[message.partition], body, wait=False)
        except CobalanceError as error:
            self.failures.append(f"the load could not be published: {error}")
