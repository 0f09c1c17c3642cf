"""A group of member processes on a topic, and what they and the coordinator have recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Self

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import CobalanceError
from cobalance.journal import BEGINNING, Journal, JournalEntry
from cobalance.lab.diary import DiaryEntry, HandlerRun
from cobalance.lab.member import MemberJob
from cobalance.lab.process import MemberProcess
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.broker import create_topic, ready_messages
from cobalance.servers.choose import AMQP_URL, REDIS_URL

CALL_MS = 10_000
"""The observer is patient: a busy machine is not what is looked for."""

LOOK_S = 0.05
READY_S = 60.0


class StageFailed(CobalanceError):
    """A process did not do its part; the message says which one, and why."""


class Stage:
    """The topic, the group and its member processes, for the length of a ``with``; no process is left behind.

    Args:
        folder: where the processes write; it is the caller's to remove.
        own_sessions: see :class:`MemberProcess`.
    """

    def __init__(
        self,
        topic: Topic,
        job: MemberJob,
        folder: Path,
        *,
        redis_url: str,
        amqp_url: str,
        own_sessions: bool = True,
    ) -> None:
        self.topic, self.job, self.folder, self._own_sessions = topic, job, folder, own_sessions
        self.redis_url, self.amqp_url = redis_url, amqp_url
        self.members: dict[str, MemberProcess] = {}
        self.entries: list[JournalEntry] = []
        create_topic(amqp_url, topic)
        self.transport = open_transport(redis_url, call_timeout_ms=CALL_MS)
        self.coordinator = Coordinator(self.transport, job.group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        self.transport.close()

    def beside(self, group: str) -> Stage:
        """Another group on the same topic and servers."""
        job = attrs.evolve(self.job, group=group)
        return Stage(
            self.topic,
            job,
            self.folder,
            redis_url=self.redis_url,
            amqp_url=self.amqp_url,
            own_sessions=self._own_sessions,
        )

    # -- members -------------------------------------------------------------------------------------------------------

    def prepare(self, name: str) -> MemberProcess:
        """Starts a process that joins only when asked to."""
        environment = {REDIS_URL: self.redis_url, AMQP_URL: self.amqp_url}
        member = self.members[name] = MemberProcess(
            name, self.job, self.folder, environment, own_session=self._own_sessions
        )
        return member

    def wait_ready(self) -> None:
        """Waits until all have started.

        Raises:
            StageFailed: one does not.
        """
        self.wait_until(lambda: all(it.is_ready() for it in self.members.values()), "member processes start", READY_S)

    @property
    def living(self) -> Collection[MemberProcess]:
        """The processes that should be members."""
        return [it for it in self.members.values() if it.is_wanted]

    def failures(self) -> tuple[str, ...]:
        """The failures of processes that ended by themselves."""
        return tuple(words for it in self.members.values() if (words := it.failure()))

    def check(self) -> None:
        """Raises StageFailed if a process has ended by itself."""
        for words in self.failures():
            raise StageFailed(words)

    # -- what was recorded ---------------------------------------------------------------------------------------------

    def look(self) -> list[JournalEntry]:
        """Reads what was written into the journal since the last look, and returns it."""
        known = len(self.entries)
        for entry in Journal(self.transport, self.job.group).entries(self.entries[-1].id if known else BEGINNING):
            self.entries.append(entry)
        return self.entries[known:]

    def read_diaries(self) -> tuple[list[HandlerRun], list[DiaryEntry]]:
        """All that the processes have recorded so far: handler runs by their beginnings, and other events."""
        diaries = [member.diary for member in self.members.values()]
        for diary in diaries:
            diary.look()
        runs = sorted((run for diary in diaries for run in diary.runs), key=lambda run: run.begun_ns)
        return runs, [entry for diary in diaries for entry in diary.entries]

    def left_in_queues(self) -> int:
        """The number of messages that RabbitMQ would still deliver; not known of streams."""
        if self.job.are_streams:
            return 0
        return sum(count or 0 for count in ready_messages(self.amqp_url, self.topic.queue_names).values())

    # -- waiting -------------------------------------------------------------------------------------------------------

    def why_unsettled(self) -> str:
        """Says what has not converged yet; empty when exactly the living processes share everything evenly.

        It asks the coordinator, which first does what is due: watch the journal instead where nobody may interfere.
        """
        processes = sorted(it.pid for it in self.living)
        members = [it for it in self.coordinator.members() if it.status != "graced"]
        rows = list(self.coordinator.resources())
        on_record = sorted(process_of(it.label) for it in members)
        if on_record != processes or any(it.status != "active" for it in members):
            return f"processes {on_record} are members on record, {processes} should be"
        if len(rows) != self.topic.partitions or any(it.status != "held" for it in rows):
            return f"{sum(it.status == 'held' for it in rows)} of {self.topic.partitions} resources are held"
        loads = [it.kept for it in members]
        return f"loads are {loads}" if loads and max(loads) - min(loads) > 1 else ""

    def wait_until(self, condition: Callable[[], object], what: str, timeout_s: float) -> None:
        """Polls the condition.

        Raises:
            StageFailed: it takes too long, or a process has ended by itself.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise StageFailed(f"it takes more than {timeout_s:.0f} s until {what}")
            time.sleep(LOOK_S)


def process_of(label: str) -> int:
    """The process id in a member's label."""
    return int(label.rpartition("/")[2])
