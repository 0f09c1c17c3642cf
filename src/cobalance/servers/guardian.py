"""Runs one server for its parent process, and removes it as soon as the parent is gone.

A killed process cannot clean up after itself, so each private server belongs to a small process like this one: `python
guardian.py LOG FOLDER`, in a session of its own, out of reach of the terminal's Ctrl-C.
The parent holds the only writing end of standard input. When that input ends, the parent has died or wants to stop: the
server and its whole process group are killed, FOLDER is removed, and the guardian exits.

Lines in: `start JSON` with the command and its environment, `signal NUMBER`. Lines out: `started PID`, `failed REASON`,
`exited CODE`.
The server is a child of this process, so its process id cannot have been reused when it is signalled.

This file is run by path, before any import path is set up, so it uses only the standard library.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PARENT_CHECK_S = 1.0
"""A fork of the parent may keep the pipe open after the parent's death, so the parent is also checked this often."""


class Guardian:
    """A server's log and folder, and its process while it runs."""

    def __init__(self, log: Path, folder: Path) -> None:
        self._log = log
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None
        self._parent = os.getppid()
        self._unread = b""
        self._wake_up_reader, wake_up_writer = os.pipe()
        for end in (self._wake_up_reader, wake_up_writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_up_writer)
        self._ending = False
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)

    def run(self) -> None:
        """Serves the parent until it is gone."""
        try:
            while not self._ending and os.getppid() == self._parent:
                self._step()
        except BrokenPipeError:
            pass  # The parent went away while it was being answered.
        finally:
            self._tidy_up()

    def _step(self) -> None:
        readable, _, _ = select.select([0, self._wake_up_reader], [], [], PARENT_CHECK_S)
        if self._wake_up_reader in readable:
            os.read(self._wake_up_reader, 4096)
        self._report_exit()
        if 0 in readable:
            self._read_commands()

    def _read_commands(self) -> None:
        received = os.read(0, 4096)
        if not received:
            self._ending = True
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            verb, _, argument = line.decode().partition(" ")
            if verb == "start":
                self._start(**json.loads(argument))
            elif verb == "signal" and self._server is not None:
                # The whole group gets the signal, paused or not: a server's helpers must not outlive it.
                os.killpg(self._server.pid, int(argument))

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        try:
            with self._log.open("ab") as log:
                self._server = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    env=environment,
                    process_group=0,
                )
        except OSError as error:
            answer(f"failed {error}")
        else:
            answer(f"started {self._server.pid}")

    def _report_exit(self) -> None:
        if self._server is not None and (code := self._server.poll()) is not None:
            self._server = None
            answer(f"exited {code}")

    def _tidy_up(self) -> None:
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, *_: object) -> None:
        self._ending = True


def answer(line: str) -> None:
    """Sends one line to the parent."""
    os.write(1, line.replace("\n", " ").encode() + b"\n")


if __name__ == "__main__":
    Guardian(Path(sys.argv[1]), Path(sys.argv[2])).run()
