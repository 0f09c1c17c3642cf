"""Runs programs as users do: real processes, whose lines come out of one pipe in the order of writing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import anyio
from tests.consumers import until

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import TopicMissing, UnknownGroup
from cobalance.rabbitmq import delete_topic
from cobalance.settings import GroupSettings

EXAMPLES = Path(__file__).parent.parent / "examples"

SETTINGS = GroupSettings(
    session_timeout_ms=30_000, heartbeat_interval_ms=300, revocation_timeout_ms=30_000, gather_ms=50, rejoin_grace_ms=0
)
"""No session ends on a busy machine, which would have messages handled twice: delivery is at least once."""


NO_MORE_THREADS = """
import atexit, threading

def no_more(*_):
    raise RuntimeError("can't create new thread at interpreter shutdown")

def end_as_python_3_12():
    atexit.register(setattr, threading.Thread, "start", no_more)
"""
"""For programs: exit handlers that were registered before cannot start a thread, as from Python 3.12 on."""


class Programs:
    """Processes with one standard output. The test's own timeout ends the wait for a line that never comes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Unbuffered, each argument of a print would be a write of its own, and the lines of several programs would mix.
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": ""}
        reading, self._writing = os.pipe()
        self._output = os.fdopen(reading)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed in close
        self._running: list[subprocess.Popen[bytes]] = []
        self.lines: list[str] = []
        """All lines read so far."""

    def start(self, program: str | Path, *args: str) -> subprocess.Popen[bytes]:
        """Starts an example by its name, or any file."""
        command = [sys.executable, str(EXAMPLES / program), *args]
        process = subprocess.Popen(command, stdout=self._writing, stderr=self._errors, env=self._environment)
        self._running.append(process)
        return process

    def read(self) -> str:
        """Returns the next line."""
        line = self._output.readline().rstrip("\n")
        self.lines.append(line)
        return line

    def read_until(self, enough: Callable[[], bool]) -> None:
        """Reads lines until the condition holds."""
        while not enough():
            self.read()

    def stop(self, process: subprocess.Popen[bytes], with_signal: int = signal.SIGTERM) -> None:
        """Stops it by a signal; it must exit cleanly, and write nothing to its standard error."""
        process.send_signal(with_signal)
        self.wait(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Ends it as a crash would."""
        process.kill()
        process.wait()
        self._running.remove(process)

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Waits until it has exited cleanly."""
        code = process.wait()
        self._running.remove(process)
        assert code == 0, f"{process.args!r} ended with {code}:\n{self.errors()}"

    def rest(self) -> list[str]:
        """Once all have ended: the lines not read yet."""
        os.close(self._writing)
        self._writing = -1
        rest = self._output.read().splitlines()
        self.lines += rest
        return rest

    def errors(self) -> str:
        """What all of them wrote to their standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        """Ends all that still run. What they wrote is shown if the test has failed."""
        for process in self._running:
            process.kill()
            process.wait()
        sys.stdout.write("\n".join([*self.lines, self.errors()]))
        if self._writing >= 0:
            os.close(self._writing)
        self._output.close()
        self._errors.close()


@contextlib.contextmanager
def programs(redis_url: str, amqp_url: str) -> Iterator[Programs]:
    """Programs that find the tests' servers."""
    running = Programs({"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url})
    try:
        yield running
    except BaseException:
        sys.stderr.write(running.errors())
        raise
    finally:
        running.close()


def create_group(redis_url: str, name: str, settings: GroupSettings = SETTINGS) -> None:
    """Does what `cobalance group create` does, so that the first member need not wait for claims. Another test's group of
    that name is deleted: its offsets are of a stream that is gone.
    """
    transport = open_transport(redis_url)
    try:
        coordinator = Coordinator(transport, name)
        with contextlib.suppress(UnknownGroup):
            coordinator.delete(force=True)
        coordinator.create(settings)
    finally:
        transport.close()


def wait_for_members(redis_url: str, group: str, count: int) -> None:
    """Waits until this many have joined: before that, a signal ends a program as it ends any other."""
    with contextlib.closing(open_transport(redis_url)) as transport:
        coordinator = Coordinator(transport, group)
        anyio.run(until, lambda: len(list(coordinator.members())) == count)


@contextlib.contextmanager
def no_topic(amqp_url: str, name: str) -> Iterator[None]:
    """Ensures that there is no such topic before or after."""
    with contextlib.suppress(TopicMissing):
        delete_topic(amqp_url, name, force=True)
    try:
        yield
    finally:
        with contextlib.suppress(TopicMissing):
            delete_topic(amqp_url, name, force=True)
