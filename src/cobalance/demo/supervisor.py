"""Plays the story and collects the evidence."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.demo.evidence import Evidence, ObservedChange
from cobalance.demo.load import LoadPublisher
from cobalance.demo.options import CHANGE_TIMEOUT_S, STALL_TIMEOUT_S, DemoOptions
from cobalance.demo.process import Job, WorkerProcess
from cobalance.demo.scene import Scene, WorkerScene
from cobalance.demo.story import FOUNDERS, PlannedChange, story
from cobalance.demo.tenures import Tenures
from cobalance.demo.view import View
from cobalance.errors import CobalanceError
from cobalance.journal import BEGINNING, Journal, JournalEntry
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.servers.choose import AMQP_URL, REDIS_URL

LOOK_S = 0.05
DWELLS = 8
"""Between two changes, this fraction of the messages is processed undisturbed."""


class DemoFailed(CobalanceError):
    """The story could not be played to its end; the message says where it stopped."""


class Supervisor:
    """Starts, stops and kills the workers, for the duration of a ``with``; none is left behind.

    Once the event `interrupted` is set, `play` raises KeyboardInterrupt.
    """

    def __init__(self, options: DemoOptions, job: Job, view: View, interrupted: threading.Event) -> None:
        self.options, self._job, self._view, self._interrupted = options, job, view, interrupted
        self.topic = Topic(job.topic, options.partitions, options.queue_type)
        self._transport = open_transport(job.environment[REDIS_URL])
        self._coordinator = Coordinator(self._transport, job.group)
        self._journal = Journal(self._transport, job.group)
        self._load = LoadPublisher(job.environment[AMQP_URL], self.topic, least=options.messages, seed=options.seed)
        self._workers: dict[str, WorkerProcess] = {}
        self._rates: dict[str, _Rate] = {}
        self._entries: list[JournalEntry] = []
        self._tenures = Tenures()
        self._processed: set[tuple[str, int]] = set()
        self._changes: list[ObservedChange] = []
        self._killed: str | None = None
        self._step = "starting"
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.close()
        self._load.close()
        self._transport.close()

    def play(self) -> Evidence:
        """Plays the whole story.

        Raises:
            DemoFailed: something did not happen in time.
        """
        self._coordinator.create(
            self.options.settings
        )  # known to be new, so its first members need not wait for claims
        self._clock_offset_ms = self._measure_clock()
        self._settle_founders()
        self._load.start()
        for step in story(self.options.seed):
            self._work_on()
            self._perform(step)
        self._work_on()
        self._finish_messages()
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
            self._workers[step.worker].leave()
        else:
            self._killed = self._workers[step.worker].member
            self._workers[step.worker].kill()
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
        self._wait_while_progressing(lambda: self._load.ended and len(self._processed) >= self._load.published)

    def _dismiss(self) -> None:
        self._say("everybody leaves")
        members = [worker for worker in self._workers.values() if worker.phase == "member"]
        for worker in members:
            worker.leave()
        self._wait(lambda: all(worker.over for worker in self._workers.values()), CHANGE_TIMEOUT_S, "all leaving")
        self._look()

    def _evidence(self) -> Evidence:
        left = ready_messages(self._job.environment[AMQP_URL], self.topic.queue_names)
        return Evidence(
            mode=self.options.mode,
            partitions=self.topic.queue_names,
            published=self._load.confirmed(),
            records=tuple(itertools.chain.from_iterable(worker.records for worker in self._workers.values())),
            entries=tuple(self._entries),
            changes=tuple(self._changes),
            killed=self._killed,
            left_in_queues=sum(count or 0 for count in left.values()),
        )

    def _start(self, name: str) -> None:
        self._workers[name] = WorkerProcess(name, self._job)
        self._rates[name] = _Rate()

    # -- waiting and polling -------------------------------------------------------------------------------------------

    def _wait_settled(self) -> None:
        """Waits until exactly the expected members hold everything evenly, with nothing in transition."""
        self._wait(self._is_settled, CHANGE_TIMEOUT_S, "the group becoming even and quiet")

    def _is_settled(self) -> bool:
        expected = {worker.member for worker in self._workers.values() if worker.phase in {"starting", "member"}}
        everybody = self._tenures.members == expected
        return everybody and self._tenures.is_settled(self.topic.partitions, len(expected))

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
        for worker in self._workers.values():
            known = len(worker.records)
            worker.look()
            self._processed.update((record.key, record.counter) for record in worker.records[known:])
        for entry in self._journal.entries(self._entries[-1].id if self._entries else BEGINNING):
            self._entries.append(entry)
            self._tenures.apply(entry)
        self._load.check()
        self._view.show(self._scene())

    # -- the clock -----------------------------------------------------------------------------------------------------

    def _measure_clock(self) -> float:
        """The group's clock minus ours, from the fastest of a few exchanges."""
        exchanges = [self._exchange_clock() for _ in range(5)]
        return min(exchanges)[1]

    def _exchange_clock(self) -> tuple[float, float]:
        sent = time.monotonic()
        now_ms = self._coordinator.tick().now_ms
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
            published=self._load.published,
            processed=len(self._processed),
            free=self.topic.partitions - len(self._tenures.owners),
            workers=tuple(self._worker_scenes(seconds)),
        )

    def _worker_scenes(self, seconds: float) -> Iterator[WorkerScene]:
        for name, worker in self._workers.items():
            held = [r for r, member in self._tenures.owners.items() if member == worker.member]
            numbers = {r: int(r.rpartition("-")[2]) for r in held}
            yield WorkerScene(
                name,
                worker.phase,
                tuple(sorted(numbers[r] for r in held if r not in self._tenures.pending)),
                tuple(sorted(numbers[r] for r in held if r in self._tenures.pending)),
                len(worker.records),
                self._rates[name].at(seconds, len(worker.records)),
            )


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
