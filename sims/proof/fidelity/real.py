"""The real run: carries out the story's steps on real processes, at their times, and collects the evidence."""

from __future__ import annotations

import heapq
import itertools
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from pathlib import Path

import attrs

from cobalance import servers
from cobalance.journal import JournalEntry
from cobalance.lab.diary import time_of_day_ms
from cobalance.lab.load import LoadPublisher, TimedMessage, key_of_each
from cobalance.lab.member import MemberJob
from cobalance.lab.message import NumberedMessage
from cobalance.lab.process import MemberProcess
from cobalance.lab.stage import Stage
from cobalance.rabbitmq.model.topic import Topic
from cobalance.settings import MemberSettings
from cobalance_sims.records import JOURNAL
from cobalance_sims.simulate.world import HUNG_AFTER_SESSIONS
from proof.fidelity.load import PlannedMessage
from proof.fidelity.machine import Machine, measure
from proof.fidelity.story import Incident, Story
from proof.fidelity.telling import ProcessSilence, Telling, TenureCallback, partition_number

BEGIN_S = 0.5
GRACE_S = 1.0
"""The journal is read this long after the end."""


def tell(story: Story, load: list[PlannedMessage], urls: tuple[str, str] | None = None) -> tuple[Telling, Machine]:
    """Runs the story once, on servers of its own or on the given Redis and RabbitMQ; before that, measures how long
    single operations take on this machine.

    Raises:
        StageFailed: a process ended by itself.
        CobalanceError: the load could not be published.
    """
    with stage_of(story, urls) as stage:
        machine = measure(stage)
        return RealRun(story, stage, load).play(), machine


@contextmanager
def stage_of(story: Story, urls: tuple[str, str] | None = None) -> Iterator[Stage]:
    """A stage for the length of a ``with``, on the given Redis and RabbitMQ, or on private ones.

    Raises:
        ServerUnavailable: there is no Redis or no RabbitMQ to start.
    """
    name, settings = f"truth-{uuid.uuid4().hex[:8]}", story.settings
    job = MemberJob(
        group=name,
        topic=name,
        settings=settings,
        member=MemberSettings(
            drain_timeout_ms=settings.revocation_timeout_ms,
            max_processing_ms=HUNG_AFTER_SESSIONS * settings.session_timeout_ms,
        ),
        prefetch=story.prefetch,
        crash_detection=False,  # the simulated brokers are no witnesses
    )
    with ExitStack() as stack:
        redis_url, amqp_url = urls or _private_servers(stack)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cobalance-truth-")))
        topic = Topic(name, story.partitions)
        yield stack.enter_context(Stage(topic, job, folder, redis_url=redis_url, amqp_url=amqp_url, own_sessions=False))


def _private_servers(stack: ExitStack) -> tuple[str, str]:
    redis = servers.private_redis()
    stack.callback(redis.close)
    rabbitmq = servers.private_rabbitmq()
    stack.callback(rabbitmq.close)
    return redis.url, rabbitmq.url


def now_ms() -> float:
    """The wall clock, which is the group's."""
    return time.time_ns() / 1e6


class RealRun:
    """One run: a queue of actions at their times, all carried out on this thread."""

    def __init__(self, story: Story, stage: Stage, load: list[PlannedMessage]) -> None:
        self.story, self.stage = story, stage
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._silences: list[tuple[str, float, float, bool]] = []
        self._done: list[Incident] = []
        self._load = LoadPublisher(stage.amqp_url, stage.topic, _plan(stage, load))
        self._began_ms = 0.0

    def play(self) -> Telling:
        """Runs from the beginning to the end."""
        stage = self.stage
        stage.coordinator.create(self.story.settings)
        for name in (*self.story.founders, *self.story.joiners):
            stage.prepare(name)
        stage.wait_ready()  # the startup time of Python is not part of the story
        self._began_ms = now_ms() + BEGIN_S * 1000
        for name in self.story.founders:
            self._plan(Incident(at_ms=0, kind="join", who=name))
        for step in self.story.steps:
            self._plan(step)
        self._load.start(time.monotonic() + (self._began_ms - now_ms()) / 1000)
        try:
            self._run()
        finally:
            self._load.close()
        for member in stage.living:
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
        self.stage.check()
        self._load.check()

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{(now_ms() - self._began_ms) / 1000:7.1f} s  {text}\n")

    # -- the evidence --------------------------------------------------------------------------------------------------

    def _evidence(self) -> Telling:
        runs, noted = self.stage.read_diaries()
        self.stage.look()
        end = self._began_ms + self.story.length_ms
        ids: dict[str, set[str]] = {name: set() for name in self.stage.members}
        for it in noted:
            if it.kind == "assigned":
                ids[it.process].add(it.member.rpartition(".")[0])
        entries = tuple(self.stage.entries)
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
                TenureCallback(at_ms, partition_number(it.partition), it.token, it.kind == "assigned")
                for it in sorted(noted, key=lambda it: it.at_ns)
                if it.kind in ("assigned", "revoked") and (at_ms := time_of_day_ms(it.at_ns)) <= end
            ),
            handled=tuple(
                (partition_number(it.partition), it.message.number) for it in runs if time_of_day_ms(it.begun_ns) <= end
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


def _plan(stage: Stage, load: Iterable[PlannedMessage]) -> Iterator[TimedMessage]:
    keys, numbers = key_of_each(stage.topic), Counter[str]()
    for it in load:
        queue = stage.topic.queue_names[it.partition]
        numbers[queue] += 1
        message = NumberedMessage(queue, numbers[queue], it.handle_ms)
        yield TimedMessage(it.at_ms / 1000, keys[queue], message)
