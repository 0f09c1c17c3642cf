"""The member processes of one group, and what they report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proof.bench.peers.judge import Handled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LEAVE_S = 60.0
"""How long a process may take to leave."""


class MemberFailed(RuntimeError):
    """A member process ended though nobody ended it; the message has what it wrote to standard error."""


class Team:
    """Processes of one command. Closing it, or this process's end, kills them all."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, {**os.environ, **environment}
        self._errors = tempfile.NamedTemporaryFile(prefix="cobalance-bench-", suffix=".log")  # noqa: SIM115  # closed by close
        reading, self._writing = os.pipe()
        self._output = os.fdopen(reading)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.owners: dict[int, int] = {}
        """Partition → the process that last began one of its messages."""
        self.started: dict[int, float] = {}
        """When each process had imported what it needs."""
        self._begun: list[tuple[int, int, int, float]] = []
        self._ended: dict[tuple[int, int, int], float] = {}
        self._finished: set[tuple[int, int]] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self) -> int:
        """Returns the new process's id."""
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # it ends when this does
            stdout=self._writing,
            stderr=self._errors,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is ours; we end them
        )
        self.processes[process.pid] = process
        return process.pid

    def kill(self, pid: int) -> float:
        """Kills a process at once; returns when."""
        process, at = self.processes.pop(pid), time.monotonic()
        process.kill()
        _reap(process)
        return at

    def ask_to_leave(self, pid: int) -> tuple[float, Callable[[], None]]:
        """Returns when it was asked, and what waits until it is gone."""
        process, at = self.processes.pop(pid), time.monotonic()
        process.send_signal(signal.SIGTERM)

        def wait() -> None:
            try:
                process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise MemberFailed(f"a member did not leave within {LEAVE_S:g} s. {self._said()}") from None
            finally:
                _reap(process)

        return at, wait

    def check(self) -> None:
        """Raises MemberFailed if a process has ended by itself."""
        for process in self.processes.values():
            if process.poll() is not None:
                raise MemberFailed(f"a member ended with exit code {process.returncode}. {self._said()}")

    def finished(self) -> int:
        """How many different messages have been handled to their end."""
        return len(self._finished)

    def handled(self) -> tuple[Handled, ...]:
        """Everything, once the processes are closed."""
        return tuple(
            Handled(process, partition, number, at, self._ended.get((process, partition, number)))
            for process, partition, number, at in self._begun
        )

    def close(self) -> None:
        """Kills what is left, and reads what was written."""
        for pid in list(self.processes):
            self.kill(pid)
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1
        self._reader.join()
        self._output.close()
        self._errors.close()

    def _read(self) -> None:
        for line in self._output:
            process, kind, partition, number, at = line.split()
            self._note(int(process), kind, int(partition), int(number), float(at))

    def _note(self, process: int, kind: str, partition: int, number: int, at: float) -> None:
        if kind == "started":
            self.started[process] = at
        elif kind == "begun":
            self._begun.append((process, partition, number, at))
            self.owners[partition] = process
        else:
            self._ended[process, partition, number] = at
            self._finished.add((partition, number))

    def _said(self) -> str:
        lines = Path(self._errors.name).read_text(errors="replace").splitlines()[-20:]
        return "Its standard error ends with:\n" + "\n".join(lines) if lines else "It wrote nothing to standard error."


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    with suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]  # it was opened above


def python(module: str, *arguments: str) -> list[str]:
    """The command of a member program in Python."""
    return [sys.executable, "-m", module, *arguments]
