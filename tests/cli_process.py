"""Runs the command line, in this process or, as people do, in one of its own."""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import attrs

from cobalance.cli.app import run

SECRET = "s3cret-Pa55"
"""Part of every URL whose password must not be shown."""

TIMEOUT_S = 180


@attrs.frozen
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


def cobalance(*arguments: str, stdin: str = "", environment: dict[str, str] | None = None) -> Outcome:
    """Runs a command to its end in this process: starting one would take longer than most commands."""
    out, err, given = io.StringIO(), io.StringIO(), io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with (
        patch.dict(os.environ, _environment(environment), clear=True),
        patch("sys.stdin", given),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = run(arguments)
    return Outcome(code, out.getvalue(), err.getvalue())


def cobalance_process(*arguments: str, stdin: str = "", environment: dict[str, str] | None = None) -> Outcome:
    """Runs a command to its end in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "cobalance.cli", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=_environment(environment),
        check=False,
    )
    return Outcome(found.returncode, found.stdout, found.stderr)


class Running:
    """A command that is still running."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.err: list[str] = []
        self.out: list[str] = []
        self._news = threading.Condition()
        self._threads = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((process.stdout, self.out), (process.stderr, self.err))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Iterator[str], lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line)
                self._news.notify_all()

    def wait_for(self, words: str) -> None:
        """Waits until either stream has these words."""
        with self._news:
            said = self._news.wait_for(lambda: any(words in line for line in self.out + self.err), TIMEOUT_S)
        assert said, f"it never said {words!r}: {self.out + self.err}"

    def end(self, signal: int) -> Outcome:
        """Sends a signal and waits for the end."""
        self.process.send_signal(signal)
        return self.wait()

    def wait(self) -> Outcome:
        code = self.process.wait(TIMEOUT_S)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        return Outcome(code, "".join(self.out), "".join(self.err))


@contextmanager
def running(*arguments: str, folder: Path, environment: dict[str, str] | None = None) -> Iterator[Running]:
    """Runs a command for the length of a ``with``; it is killed if it still runs then."""
    with subprocess.Popen(
        [sys.executable, "-m", "cobalance.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=_environment(environment),
    ) as process:
        command = Running(process)
        try:
            yield command
        finally:
            if process.poll() is None:
                process.kill()
            command.wait()


def _environment(changes: dict[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COBALANCE_")}
    return inherited | (changes or {})
