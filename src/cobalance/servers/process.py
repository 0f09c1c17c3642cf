"""A private server process that cannot outlive this one, however this one ends: see `guardian.py`."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from cobalance.servers import guardian
from cobalance.servers.unavailable import ServerUnavailable

ANSWER_TIMEOUT_S = 30.0
"""The guardian does next to nothing; this allows for a busy machine."""

LOG_TAIL_LINES = 20
"""Enough to hold the reason why a server refused to start."""


class PrivateProcess:
    """One server command with a temporary folder of its own. Both are gone after `close`, or after this process.

    Not thread-safe.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """The server's name in error messages."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"cobalance-{name}-"))
        """Everything the server writes is in here."""
        self.log = self.folder / "server.log"
        """The server's output."""
        self.pid: int | None = None
        """The process id of the running server, or None."""
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, str(self.log), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._to_guardian = cast("IO[bytes]", self._guardian.stdin)
        self._from_guardian = cast("IO[bytes]", self._guardian.stdout)
        self._unread = b""

    @property
    def guardian_pid(self) -> int:
        """The process id of the guardian, which exits after its server."""
        return self._guardian.pid

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Runs a command that stays in the foreground, in this environment or in this process's own."""
        if self.running:
            raise ServerUnavailable(f"{self.name} is running already.")
        self._tell("start " + json.dumps({"command": command, "environment": dict(environment or os.environ)}))
        answer = self._next_answer(ANSWER_TIMEOUT_S) or "failed because its guardian did not answer"
        kind, _, detail = answer.partition(" ")
        if kind != "started":
            raise ServerUnavailable(f"{self.name} could not be started: {detail}")
        self.pid = int(detail)

    def signal(self, number: int) -> None:
        """Signals the server and its helper processes. Does nothing if it is not running."""
        if self.running:
            self._tell(f"signal {int(number)}")

    @property
    def running(self) -> bool:
        """Whether the server's process exists, paused or not."""
        return self.pid is not None and not self.wait_exit(0)

    def wait_exit(self, timeout_s: float) -> bool:
        """Waits up to timeout_s for the server to end, and returns whether it has."""
        if self.pid is not None and self._next_answer(timeout_s) is not None:
            self.pid = None
        return self.pid is None

    def log_tail(self) -> str:
        """The last lines of the server's log, for error messages."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-LOG_TAIL_LINES:]) or "(its log is empty)"

    def close(self) -> None:
        """Kills the server and removes its folder."""
        self.pid = None
        with self._guardian:  # Closes both pipes, which makes the guardian clean up, and waits for it.
            pass

    def _tell(self, line: str) -> None:
        self._to_guardian.write(line.encode() + b"\n")
        self._to_guardian.flush()

    def _next_answer(self, timeout_s: float) -> str | None:
        descriptor = self._from_guardian.fileno()
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            with selectors.DefaultSelector() as selector:  # select.select knows no descriptor from 1024 on
                selector.register(descriptor, selectors.EVENT_READ)
                if not selector.select(remaining_s):
                    return None
            received = os.read(descriptor, 4096)
            if not received:
                return "failed because its guardian was killed"
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()
