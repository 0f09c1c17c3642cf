"""One run: faults happen in an order that the seed decides, all messages are handled, and the history is judged."""

from __future__ import annotations

import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import attrs
from tests.chaos.checker import Anomaly, Verdict, judge, reached
from tests.chaos.faults import faults_of
from tests.chaos.history import History, Trouble
from tests.chaos.options import CONVERGE_S, DRAIN_S, PENDING_S, Options
from tests.chaos.publisher import Load
from tests.chaos.stage import ChaosMember, ChaosStage

from cobalance.coordinator.client import ResourceRow


class Unsettled(Exception):
    """The group did not become even; the message says what it is instead."""


class Performance:
    """What faults may do and ask."""

    def __init__(self, options: Options, stage: ChaosStage) -> None:
        self.options, self.stage = options, stage
        self.load = Load(stage.rabbitmq.url, stage.topic, options.order)
        self._random = Random(options.seed)
        self._faults = faults_of(options.servers)
        self._troubles: list[Trouble] = []
        self._dawdles = 0
        self._began = time.monotonic()

    def play(self) -> History:
        """Carries out the whole run."""
        for _ in range(self.options.members):
            self.stage.start_member()
        self.settle()
        self.load.start()
        for kind in self._plan():
            self._strike(kind)
        self.load.stop()
        left = self._work_off()
        return self.history(left)

    def _plan(self) -> Iterator[str]:
        """Every kind once, in the seed's order; then again, until the time is up."""
        kinds = list(self._faults)
        while True:
            self._random.shuffle(kinds)
            for kind in kinds:
                if time.monotonic() - self._began > self.options.seconds and self._is_complete():
                    return
                yield kind

    def _is_complete(self) -> bool:
        return set(self._faults) <= {it.kind for it in self._troubles}

    def _strike(self, kind: str) -> None:
        self.say(kind)
        self._faults[kind](self, self._random)
        self.settle()
        self.keep_size()

    def keep_size(self) -> None:
        """Restores the initial number of members."""
        while len(self.stage.living) > self.options.members:
            self.stage.living[0].leave()
            self.settle()
        while len(self.stage.living) < self.options.members:
            self.stage.start_member()
            self.settle()

    def _work_off(self) -> int:
        """Waits until messages stop arriving, then stops all members: RabbitMQ gets unacknowledged messages back."""
        deadline = time.monotonic() + DRAIN_S
        while not self._is_all_processed() and time.monotonic() < deadline:
            time.sleep(1)
        for member in self.stage.living:
            member.leave()
        for member in self.stage.everybody:
            member.wait_left()
        self.stage.look()
        return self.stage.left_in_queues()

    def _is_all_processed(self) -> bool:
        runs, _ = self.stage.read_diaries()
        return self.load.confirmed <= {it.message for it in runs if it.ended_ns is not None}

    def history(self, left: int) -> History:
        """What was recorded so far."""
        runs, events = self.stage.read_diaries()
        return History(
            partitions=self.stage.topic.queue_names,
            confirmed=frozenset(self.load.confirmed),
            attempted=frozenset(self.load.attempted),
            runs=tuple(runs),
            events=tuple(events),
            entries=tuple(self.stage.entries),
            troubles=tuple(self._troubles),
            epoch_ns=time.monotonic_ns() - time.time_ns(),
            left_in_queues=left,
            failed=self.stage.failures(),
        )

    # -- for faults ----------------------------------------------------------------------------------------------------

    @contextmanager
    def trouble(self, kind: str, member: ChaosMember | None = None) -> Iterator[None]:
        """Records a fault for the length of the block."""
        since = time.monotonic_ns()
        self.say(f"  {kind} {member.name if member else ''}")
        yield
        name = member.name if member else ""
        self._troubles.append(Trouble(kind=kind, process=name, since_ns=since, until_ns=time.monotonic_ns()))

    def settle(self) -> None:
        """Waits until the group is even.

        Raises:
            Unsettled: it takes too long.
        """
        if why := self.stage.wait_settled(CONVERGE_S):
            raise Unsettled(f"the group does not become even within {CONVERGE_S:.0f} s: {why}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Polls the condition.

        Raises:
            Unsettled: it takes too long.
        """
        deadline = time.monotonic() + CONVERGE_S
        while not condition():
            if time.monotonic() > deadline:
                raise Unsettled(f"it takes more than {CONVERGE_S:.0f} s until {what}")
            time.sleep(0.05)

    def everybody_dawdles(self) -> ChaosMember:
        """Gives every partition a slow message; returns a process that is ready to join."""
        newcomer = self.stage.start_member(at_once=False)
        self.wait_until(newcomer.is_ready, "a process has started")
        self._dawdles += 1
        self.load.dawdle(self._order)
        count = self.options.partitions
        self.wait_until(lambda: self._slow_begun() >= count, "handlers have got their slow messages")
        return newcomer

    def nobody_dawdles(self) -> None:
        """Tells the slow handlers to hurry."""
        (self.stage.folder / self._order).touch()

    def is_fenced(self) -> bool:
        """Whether a member's commit was refused because its tenure had ended."""
        return any(it.kind == "fenced" for it in self.stage.read_diaries()[1])

    def is_cancelled(self) -> bool:
        """Whether a revocation was cancelled."""
        self.stage.look()
        return any(entry.kind == "cancelled" for entry in self.stage.entries)

    def _slow_begun(self) -> int:
        diaries = [it.diary for it in self.stage.living]
        for diary in diaries:
            diary.look()
        return sum(run.message.order == self._order for diary in diaries for run in diary.runs)

    @property
    def _order(self) -> str:
        """The file that ends the present dawdling."""
        return f"hurry-{self._dawdles}"

    def someone(self, random: Random) -> ChaosMember:
        """A random member."""
        return random.choice(self.stage.living)

    def sleep(self, seconds: float) -> None:
        """Lets the fault last."""
        time.sleep(seconds)

    def redis_ms(self) -> int:
        """The time on the group's clock."""
        return self.stage.coordinator.tick().now_ms

    def wait_pending(self) -> tuple[ChaosMember, ResourceRow] | None:
        """Waits for a revocation with a deadline, and returns its holder; None if an idle partition moved too quickly."""
        until = time.monotonic() + PENDING_S
        while time.monotonic() < until:
            for it in self.stage.coordinator.resources():
                holder = self.stage.holder(it.owner) if it.status == "pending" and it.deadline_ms else None
                if holder is not None:
                    return holder, it
            time.sleep(0.05)
        return None

    def wait_told(self, holder: ChaosMember, moved: ResourceRow) -> None:
        """Waits until the holder knows what became of its resource. It fails if it is told to leave before."""
        self.wait_until(
            lambda: self._has_ended(holder, moved) or not self._is_moved(moved), "a holder knows that it is none"
        )

    def _has_ended(self, holder: ChaosMember, moved: ResourceRow) -> bool:
        holder.diary.look()
        return any(it.kind in {"lost", "revoked"} and it.token == moved.token for it in holder.diary.entries)

    def _is_moved(self, moved: ResourceRow) -> bool:
        return all((it.owner, it.token) != (moved.owner, moved.token) for it in self.stage.coordinator.resources())

    def say(self, text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self._began:7.1f} s  {text}\n")


def perform(options: Options) -> tuple[Verdict, tuple[str, ...]]:
    """Runs and judges; returns the verdict, and what was never reached. Keeps the files if there are problems."""
    with ChaosStage(options) as stage:
        play = Performance(options, stage)
        try:
            history = play.play()
            verdict = judge(history)
            missing = tuple(reached(verdict, faults_of(options.servers)))
        except Unsettled as error:
            history = play.history(stage.left_in_queues() or 1)
            verdict = _with(judge(history), Anomaly(name="unsettled", text=str(error)))
            missing = ()
    if verdict.anomalies or missing:
        (stage.folder / "history.pickle").write_bytes(pickle.dumps(history))
        play.say(f"diaries, logs and history are kept in {stage.folder}")
    else:
        shutil.rmtree(stage.folder)
    return verdict, missing


def _with(verdict: Verdict, anomaly: Anomaly) -> Verdict:
    return attrs.evolve(verdict, anomalies=(*verdict.anomalies, anomaly))
