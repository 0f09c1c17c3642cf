"""Plays the story and collects the evidence."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

import attrs

from cobalance.demo.evidence import Evidence, ObservedChange
from cobalance.demo.options import (
    BACKLOG_A_PARTITION,
    CHANGE_TIMEOUT_S,
    HANDLER_MS,
    MESSAGES_A_KEY,
    RATE_A_PARTITION,
    STALL_TIMEOUT_S,
    DemoOptions,
)
from cobalance.demo.scene import Phase, Scene, WorkerScene
from cobalance.demo.story import FOUNDERS, PlannedChange, story
from cobalance.demo.tenures import Tenures
from cobalance.demo.view import View
from cobalance.errors import CobalanceError
from cobalance.lab.load import LoadPublisher, TimedMessage
from cobalance.lab.message import NumberedMessage
from cobalance.lab.process import MemberProcess
from cobalance.lab.stage import LOOK_S, Stage, process_of
from cobalance.threads.gate import Gate

SLICE_S = 0.02
"""Messages are published in small bursts, one per interval."""

DWELLS = 8
"""Between two changes, this fraction of the messages is processed undisturbed."""


class DemoFailed(CobalanceError):
    """The story could not be played to its end; the message says where it stopped."""


class Supervisor:
    """Starts, stops and kills the member processes, and publishes.

    Once the gate `interrupted` is open, `play` raises KeyboardInterrupt.
    """

    def __init__(self, options: DemoOptions, stage: Stage, view: View, interrupted: Gate) -> None:
        self.options, self._stage, self._view, self._interrupted = options, stage, view, interrupted
        self._load = LoadPublisher(stage.amqp_url, stage.topic, _plan(options), least=options.messages, every_s=SLICE_S)
        self._rates: dict[str, _Rate] = {}
        self._tenures = Tenures()
        self._ids: dict[int, str] = {}
        """Process → its member id, once it has joined."""
        self._counts: Counter[str] = Counter()
        self._processed: set[NumberedMessage] = set()
        self._changes: list[ObservedChange] = []
        self._killed: str | None = None
        self._step = "starting"
        self._began = time.monotonic()

    def play(self) -> Evidence:
        """Plays the whole story.

        Raises:
            DemoFailed: something did not happen in time.
        """
        self._stage.coordinator.create(self.options.settings)  # known to be new: its first members need no claims
        self._clock_offset_ms = self._measure_clock()
        self._settle_founders()
        self._load.start()
        try:
            for step in story(self.options.seed):
                self._work_on()
                self._perform(step)
            self._work_on()
            self._finish_messages()
        finally:
            self._load.close()
        self._end_change()
        self._dismiss()
        return self._evidence()

    # -- the parts of the story ----------------------------------------------------------------------------------------

    def _settle_founders(self) -> None:
        self._say(f"{', '.join(FOUNDERS)} start")
        for name in FOUNDERS:
            self._start(name)
        self._wait_settled()

    def _perform(self, step: PlannedChange) -> None:
        self._end_change()
        self._say(step.name)
        since, at_ms = self._tenures.seq, self._group_clock_ms()
        if step.kind == "join":
            self._start(step.worker)
        elif step.kind == "leave":
            self._stage.members[step.worker].leave()
        else:
            victim = self._stage.members[step.worker]
            self._killed = self._ids[victim.pid]
            victim.kill()
        self._changes.append(
            ObservedChange(kind=step.kind, name=step.name, since_seq=since, at_ms=at_ms, until_seq=since)
        )
        self._wait_settled()

    def _end_change(self) -> None:
        """Everything up to now belongs to the last change."""
        self._look()
        if self._changes:
            self._changes[-1] = attrs.evolve(self._changes[-1], until_seq=self._tenures.seq)

    def _work_on(self) -> None:
        enough = len(self._processed) + self.options.messages // DWELLS
        self._wait(lambda: len(self._processed) >= enough, CHANGE_TIMEOUT_S, "messages being processed")

    def _finish_messages(self) -> None:
        self._say("no more changes: the rest is published and processed")
        self._load.may_end()
        self._wait_while_progressing(lambda: self._load.ended and len(self._processed) >= len(self._load.messages))

    def _dismiss(self) -> None:
        self._say("everybody leaves")
        for member in self._stage.living:
            member.leave()
        everybody = self._stage.members.values()
        self._wait(lambda: not any(it.is_running for it in everybody), CHANGE_TIMEOUT_S, "all leaving")
        self._look()

    def _evidence(self) -> Evidence:
        return Evidence(
            mode=self.options.mode,
            partitions=self._stage.topic.queue_names,
            published=frozenset(self._load.messages),
            runs=tuple(run for run in self._stage.read_diaries()[0] if run.ended_ns is not None),
            entries=tuple(self._stage.entries),
            changes=tuple(self._changes),
            killed=self._killed,
            left_in_queues=self._stage.left_in_queues(),
        )

    def _start(self, name: str) -> None:
        member = self._stage.prepare(name)
        self._view.say(
            f"{time.monotonic() - self._began:5.1f} s  {name} is process {member.pid}"
        )  # as the dashboard calls it
        member.join()
        self._rates[name] = _Rate()

    # -- waiting and polling -------------------------------------------------------------------------------------------

    def _wait_settled(self) -> None:
        """Waits until exactly the expected members hold everything evenly, with nothing in transition."""
        self._wait(self._is_settled, CHANGE_TIMEOUT_S, "the group becoming even and quiet")

    def _is_settled(self) -> bool:
        living = self._stage.living
        everybody = self._tenures.members == {self._ids.get(it.pid) for it in living}
        return everybody and self._tenures.is_settled(self._stage.topic.partitions, len(living))

    def _wait_while_progressing(self, done: Callable[[], bool]) -> None:
        """Waits as long as messages are processed. What is not processed by then is lost, and judged so."""
        while not done():
            before = len(self._processed)
            try:
                self._wait(lambda: done() or len(self._processed) > before, STALL_TIMEOUT_S, "")  # noqa: B023
            except DemoFailed:
                return

    def _wait(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        give_up_s = time.monotonic() + timeout_s
        while True:
            self._look()
            if done():
                return
            if time.monotonic() > give_up_s:
                raise DemoFailed(f"{self._step}: waited {timeout_s:.0f} s in vain for {what}.")
            if self._interrupted.wait(LOOK_S):
                raise KeyboardInterrupt

    def _look(self) -> None:
        for member in self._stage.members.values():
            ended = member.diary.look()
            self._processed.update(run.message for run in ended)
            self._counts[member.name] += len(ended)
        for entry in self._stage.look():
            self._tenures.apply(entry)
            if entry.kind == "joined" and entry.label and entry.member:
                self._ids[process_of(entry.label)] = entry.member
        self._stage.check()
        self._load.check()
        self._view.show(self._scene())

    # -- the clock -----------------------------------------------------------------------------------------------------

    def _measure_clock(self) -> float:
        """The group's clock minus ours, from the fastest of a few exchanges."""
        exchanges = [self._exchange_clock() for _ in range(5)]
        return min(exchanges)[1]

    def _exchange_clock(self) -> tuple[float, float]:
        sent = time.monotonic()
        now_ms = self._stage.coordinator.tick().now_ms
        took = time.monotonic() - sent
        return took, now_ms - (sent + took / 2) * 1000

    def _group_clock_ms(self) -> int:
        return round(time.monotonic() * 1000 + self._clock_offset_ms)

    # -- display -------------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._step = text
        self._view.say(f"{time.monotonic() - self._began:5.1f} s  {text}")

    def _scene(self) -> Scene:
        seconds = time.monotonic() - self._began
        return Scene(
            step=self._step,
            seconds=seconds,
            published=len(self._load.messages),
            processed=len(self._processed),
            free=self._stage.topic.partitions - len(self._tenures.owners),
            workers=tuple(self._worker_scenes(seconds)),
        )

    def _worker_scenes(self, seconds: float) -> Iterator[WorkerScene]:
        for name, worker in self._stage.members.items():
            id_ = self._ids.get(worker.pid)
            held = [r for r, member in self._tenures.owners.items() if member == id_]
            numbers = {r: int(r.rpartition("-")[2]) for r in held}
            yield WorkerScene(
                name,
                self._phase(worker),
                tuple(sorted(numbers[r] for r in held if r not in self._tenures.pending)),
                tuple(sorted(numbers[r] for r in held if r in self._tenures.pending)),
                self._counts[name],
                self._rates[name].at(seconds, self._counts[name]),
            )

    def _phase(self, worker: MemberProcess) -> Phase:
        id_ = self._ids.get(worker.pid)
        if worker.is_wanted:
            return "member" if id_ else "starting"
        if id_ == self._killed:
            return "killed"
        return "leaving" if worker.is_running else "left"


def _plan(options: DemoOptions) -> Iterator[TimedMessage]:
    """Keyed messages at an even rate, after a backlog. The seed determines their keys and how long they take."""
    chance, sent = random.Random(options.seed), Counter[str]()
    keys = max(1, options.messages // MESSAGES_A_KEY)
    for number in itertools.count():
        key = f"key-{chance.randrange(keys)}"
        sent[key] += 1
        at_s = (number / options.partitions - BACKLOG_A_PARTITION) / RATE_A_PARTITION
        yield TimedMessage(at_s, key, NumberedMessage(key, sent[key], chance.uniform(*HANDLER_MS)))


class _Rate:
    """Messages per second, over the last second or so."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque([(0.0, 0)])

    def at(self, seconds: float, count: int) -> float:
        self._samples.append((seconds, count))
        while len(self._samples) > 2 and self._samples[0][0] < seconds - 1.0:
            self._samples.popleft()
        then, before = self._samples[0]
        return (count - before) / max(seconds - then, 0.001)
