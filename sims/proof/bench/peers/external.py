"""A peer whose program somebody brings: nothing of it is fetched, or known here.

``PROGRAM serve PORT FOLDER`` runs its server on 127.0.0.1 until it is killed, with its data in FOLDER.
``PROGRAM open PORT NAME PARTITIONS`` makes a topic and a group of that name.
``PROGRAM load PORT NAME`` publishes to partition P a message that says N for each line ``P N`` of standard input, and ends with
it once everything is published.
``PROGRAM member PORT NAME`` is a member until SIGTERM, at which it leaves. It writes the lines that `members/report.py`
describes; its handler takes 2 ms; it commits or acknowledges each message; and it ends when its standard input does.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import attrs

from cobalance.servers.ports import free_port
from cobalance.servers.process import PrivateProcess
from cobalance.servers.ready import accepts, wait_until_ready

if TYPE_CHECKING:
    from typing import IO

VARIABLE = "COBALANCE_BENCH_IGGY"
START_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0


def given_program(environment: Mapping[str, str]) -> str | None:
    """The program that the environment names for Iggy."""
    return environment.get(VARIABLE) or None


class External:
    """A server that was started by such a program. Close it after use."""

    beat_s = 1.0

    def __init__(self, name: str, title: str, program: str, patience_s: float = 90.0) -> None:
        self.name, self.title, self.patience_s = name, title, patience_s
        self._program, self._port = program, free_port()
        self._process = PrivateProcess(name)
        try:
            self._process.start([program, "serve", str(self._port), str(self._process.folder)])
            wait_until_ready(lambda: accepts(self._port), self._process, START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def open(self, partitions: int) -> _ServedTopic:
        place = _ServedTopic(self._program, str(self._port), f"peers-{uuid.uuid4().hex[:8]}")
        command = [self._program, "open", place.port, place.name, str(partitions)]
        subprocess.run(command, check=True, timeout=COMMAND_TIMEOUT_S)
        return place

    def close(self) -> None:
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.frozen
class _ServedTopic:
    program: str
    port: str
    name: str
    environment: Mapping[str, str] = {}

    @property
    def command(self) -> list[str]:
        return [self.program, "member", self.port, self.name]

    def publisher(self) -> _PipedPublisher:
        return _PipedPublisher([self.program, "load", self.port, self.name])

    def close(self) -> None:
        """Its server's folder goes with the server."""


class _PipedPublisher:
    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._lines: IO[str] = self._process.stdin  # type: ignore[assignment]  # it was opened above

    def publish(self, partition: int, number: int) -> None:
        self._lines.write(f"{partition} {number}\n")
        self._lines.flush()

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._lines.close()
        self._process.wait(COMMAND_TIMEOUT_S)
