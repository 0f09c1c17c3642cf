"""The real stage: private servers, member processes, and the publisher. Nothing is left behind, however it ends."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, cast

import attrs

from cobalance import servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import Transport
from cobalance.rabbitmq import create_topic
from cobalance.rabbitmq.model.topic import Topic
from cobalance.servers.choose import AMQP_URL, REDIS_URL
from proof.fidelity.diary import DiaryEntry, read_diary
from proof.fidelity.failure import FidelityFailed
from proof.fidelity.story import Story

READY_S = 60.0
LEAVE_S = 30.0


class MemberProcess:
    """One member process.

    It has a process group of its own, so that a Ctrl-C on the terminal does not reach it, but it is in our session: if
    we are killed, the kernel hangs up on it even while it is stopped (an orphaned process group with a stopped process
    gets SIGHUP and SIGCONT).
    """

    def __init__(self, name: str, stage: Stage, group: str) -> None:
        self.name = name
        self.diary = stage.folder / f"{name}.diary"
        self._words = stage.folder / f"{name}.log"
        self.is_wanted = True
        """False once it was killed, or asked to leave."""
        story = stage.story
        settings = json.dumps(attrs.asdict(story.settings))
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "proof.fidelity.member", group, stage.topic.name),
                    *(str(self.diary), settings, str(story.prefetch)),
                ],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                env=os.environ | stage.environment,
                process_group=0,
            )
        self._stdin = cast("IO[bytes]", self._process.stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Waits until it has started and waits for :meth:`join`.

        Raises:
            FidelityFailed: it does not start.
        """
        deadline = time.monotonic() + READY_S
        while not self.diary.exists() or not self.diary.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise FidelityFailed(f"member process {self.name} did not start: {self._last_words()}")
            select.select([], [], [], 0.02)

    def join(self) -> None:
        self._stdin.write(b"!")
        self._stdin.flush()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.is_wanted = False
        self._process.kill()

    def leave(self) -> None:
        """Sends SIGTERM, as a deployment does."""
        self.is_wanted = False
        self._process.send_signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Sends SIGSTOP: it executes nothing, and its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Sends SIGCONT: it continues where it stopped."""
        self._process.send_signal(signal.SIGCONT)

    def wait_left(self) -> None:
        """Waits until it has ended; kills it if it does not."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_S)

    def failure(self) -> str:
        """Why it ended by itself; empty if it did not, or was meant to."""
        ended = self._process.poll() is not None and self.is_wanted
        return f"member process {self.name} ended by itself: {self._last_words()}" if ended else ""

    def _last_words(self) -> str:
        lines = self._words.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it did not say why"

    def lines(self) -> list[DiaryEntry]:
        """What it has recorded so far."""
        return list(read_diary(self.diary))

    def close(self) -> None:
        """Makes sure that it is gone."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._stdin.close()


class Stage:
    """The servers, member processes and publisher, for the length of a ``with``.

    Args:
        urls: of a Redis and a RabbitMQ that are running already; else private ones are started.

    Raises:
        ServerUnavailable: there is no Redis or no RabbitMQ to start.
    """

    def __init__(self, story: Story, urls: tuple[str, str] | None = None) -> None:
        self.story = story
        self.group = f"truth-{uuid.uuid4().hex[:8]}"
        self.folder = Path(tempfile.mkdtemp(prefix="cobalance-truth-"))
        self.members: dict[str, MemberProcess] = {}
        self._closing: list[Transport | servers.OwnRedis | servers.OwnRabbitMQ] = []
        try:
            self._set_up(*(urls or self._start_servers()))
        except BaseException:
            self.close()
            raise

    def _start_servers(self) -> tuple[str, str]:
        redis = servers.private_redis()
        self._closing.append(redis)
        rabbitmq = servers.private_rabbitmq()
        self._closing.append(rabbitmq)
        return redis.url, rabbitmq.url

    def _set_up(self, redis_url: str, amqp_url: str) -> None:
        self.redis_url, self.amqp_url = redis_url, amqp_url
        self.environment = {REDIS_URL: redis_url, AMQP_URL: amqp_url}
        self.topic = Topic(self.group, self.story.partitions)
        create_topic(amqp_url, self.topic)
        self.keys = _a_key_for_each(self.topic)
        self.transport = open_transport(redis_url)
        self._closing.append(self.transport)
        self.coordinator = Coordinator(self.transport, self.group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, name: str, group: str = "") -> MemberProcess:
        """Starts a process that does not join yet: the story's group, or another one on the same partitions."""
        member = self.members[name] = MemberProcess(name, self, group or self.group)
        return member

    def failures(self) -> list[str]:
        """The failures of members that ended by themselves."""
        return [words for it in self.members.values() if (words := it.failure())]

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        while self._closing:
            self._closing.pop().close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _a_key_for_each(topic: Topic) -> dict[int, str]:
    """Partition → a key that leads there."""
    keys: dict[int, str] = {}
    number = 0
    while len(keys) < topic.partitions:
        keys.setdefault(topic.partition_of(f"key-{number}"), f"key-{number}")
        number += 1
    return keys
