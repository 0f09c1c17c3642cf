"""Servers, a pair of proxies for each member, and the member processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Self, cast

import attrs
from tests.chaos.options import SETTINGS, WAYS, Options
from tests.chaos.servers import start_rabbitmq, start_redis
from tests.faults.ways import Ways

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import Transport
from cobalance.demo.tenures import Tenures
from cobalance.errors import CobalanceError, ServerError
from cobalance.journal import BEGINNING, Journal, JournalEntry
from cobalance.rabbitmq import create_topic
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.broker import ready_messages, verify_topic
from proof.settled import why_unsettled

GROUP = "chaos"
ROOT = Path(__file__).parents[2]
LEAVE_S = 40.0
CALL_MS = 10_000
"""The observer is patient: a busy machine is no anomaly."""


class MemberProcess:
    """A member, and its own proxies to the servers."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self.redis = Ways(stage.redis.ports)
        self.rabbitmq = Ways(stage.rabbitmq.ports)
        self.diary = stage.folder / f"{name}.diary"
        self.words = stage.folder / f"{name}.log"
        self.is_wanted = True
        """False once it was killed, or asked to leave."""
        self.is_frozen = False
        environment = {
            "COBALANCE_REDIS_URL": self.redis.through(stage.redis.url),
            "COBALANCE_AMQP_URL": self.rabbitmq.through(stage.rabbitmq.url),
            WAYS: json.dumps(self.redis.ports),
        }
        settings = json.dumps(attrs.asdict(SETTINGS))
        with self.words.open("wb") as words:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.chaos.member"),
                    *(name, GROUP, stage.topic.name, str(self.diary), settings, stage.options.kind),
                ],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                cwd=ROOT,
                env=os.environ | environment,
                start_new_session=True,
            )

        self._stdin = cast("IO[bytes]", self._process.stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_ready(self) -> bool:
        """Whether it has started."""
        return self.diary.exists() and b"ready" in self.diary.read_bytes()

    @property
    def is_running(self) -> bool:
        """Whether it exists, frozen or not."""
        return self._process.poll() is None

    def join(self) -> None:
        """Makes it join; until then it only prepares."""
        self._stdin.write(b"!")
        self._stdin.flush()

    def kill(self) -> None:
        self.is_wanted = False
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """Sends SIGTERM, as a deployment does."""
        self.is_wanted = False
        self._process.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Sends SIGSTOP: it executes nothing, and its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Sends SIGCONT: it continues where it stopped."""
        self.is_frozen = False
        self._process.send_signal(signal.SIGCONT)

    def stop_clock(self) -> None:
        """It no longer notices its own deadlines."""
        self._process.send_signal(signal.SIGUSR1)

    def start_clock(self) -> None:
        """It notices them again."""
        self._process.send_signal(signal.SIGUSR2)

    def wait_left(self) -> None:
        """Waits until it has ended."""
        self._process.wait(LEAVE_S)

    def last_words(self) -> str:
        """Why it ended by itself; empty if it did not, or was meant to."""
        code = self._process.poll()
        if code is None or (not self.is_wanted and code in (0, -signal.SIGKILL, -signal.SIGTERM)):
            return ""
        lines = self.words.read_text(errors="replace").strip().splitlines()
        return f"{self.name} ended with {code}: {lines[-1] if lines else 'without a word'}"

    def close(self) -> None:
        """Makes sure that it is gone."""
        if self.is_running:
            self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._stdin.close()
        self.redis.close()
        self.rabbitmq.close()


class Stage:
    """The servers and members for the length of a ``with``; nothing is left behind."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = Path(tempfile.mkdtemp(prefix="cobalance-chaos-"))
        self.members: dict[str, MemberProcess] = {}
        self.entries: list[JournalEntry] = []
        self.tenures = Tenures()
        self._read_to = BEGINNING
        self._number = 0
        self._spare: MemberProcess | None = None
        """The next process, prepared in advance, which takes Python a second or more."""
        self._servers = ExitStack()
        try:
            self.redis = start_redis(options, self._servers)
            self.rabbitmq = start_rabbitmq(options, self._servers)
            self.topic = Topic("chaos", options.partitions, options.kind)
            create_topic(self.rabbitmq.url, self.topic)
            self._transport: Transport = open_transport(self.redis.url, call_timeout_ms=CALL_MS)
            self.coordinator = Coordinator(self._transport, GROUP)
            self.coordinator.create(SETTINGS)
        except BaseException:
            self.close()
            shutil.rmtree(self.folder)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is KeyboardInterrupt:  # nobody investigates an interrupted run
            shutil.rmtree(self.folder)

    def close(self) -> None:
        for member in (*self.members.values(), *([self._spare] if self._spare else ())):
            member.close()
        if hasattr(self, "_transport"):
            self._transport.close()
        self._servers.close()

    # -- members -------------------------------------------------------------------------------------------------------

    def start_member(self, *, at_once: bool = True) -> MemberProcess:
        """Adds a member, which joins `at_once`, or when it is told to."""
        member, self._spare = self._spare or self._new_process(), None
        self.members[member.name] = member
        if at_once:
            member.join()
        self._spare = self._new_process()
        return member

    def _new_process(self) -> MemberProcess:
        self._number += 1
        return MemberProcess(f"m{self._number}", self)

    @property
    def living(self) -> list[MemberProcess]:
        """The processes that should be members."""
        return [it for it in self.members.values() if it.is_wanted]

    def failures(self) -> tuple[str, ...]:
        """The failures of members that ended by themselves."""
        return tuple(words for it in self.members.values() if (words := it.last_words()))

    def process_of(self, member: str | None) -> MemberProcess | None:
        """The process of a member id: labels end with the process id."""
        labels = {row.id: row.label for row in self.coordinator.members()}
        pid = labels.get(member or "", "").rpartition("/")[2]
        return next((it for it in self.living if str(it.pid) == pid), None)

    # -- the journal ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Reads what was written into the journal since the last look, as far as Redis answers."""
        try:
            for entry in Journal(self._transport, GROUP).entries(self._read_to):
                self._read_to = entry.id
                self.entries.append(entry)
        except ServerError:
            return

    def forget(self) -> None:
        """Redis is another one: its journal is read from the beginning."""
        self._read_to = BEGINNING

    def why_unsettled(self) -> str:
        """Says what has not converged yet; empty when all expected members share everything evenly."""
        self.look()
        try:
            return why_unsettled(self.coordinator, [it.pid for it in self.living], self.options.partitions)
        except CobalanceError as error:
            return str(error)

    def wait_settled(self, timeout_s: float) -> str:
        """Waits until the group is even; returns why it is not, if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while (why := self.why_unsettled()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return why

    def has_topic(self) -> bool:
        """Whether RabbitMQ has all of the topic's queues available."""
        try:
            return verify_topic(self.rabbitmq.url, self.topic) == self.topic
        except ServerError:
            return False

    def left_in_queues(self) -> int:
        """Number of messages that RabbitMQ still has."""
        if self.options.kind == "stream":
            return 0
        return sum(count or 0 for count in ready_messages(self.rabbitmq.url, self.topic.queue_names).values())
