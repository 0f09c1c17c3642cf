"""A member process, as seen by its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from cobalance.lab.diary import DiaryReader

if TYPE_CHECKING:
    from cobalance.lab.member import MemberJob

PROGRAM = "cobalance.lab.member"
LEAVE_S = 40.0
ENDS_ON_REQUEST = frozenset({0, -signal.SIGKILL, -signal.SIGTERM})


class MemberProcess:
    """One member process, from its start to its end.

    It has a process group of its own, so that a Ctrl-C on the terminal does not reach it.

    Args:
        environment: names its servers; on the command line everyone could read their passwords.
        program: the module that it runs.
        cwd: where that module is found.
        own_session: as deployed processes have; Linux then schedules it apart from us. In ours, its niceness is weighed
            against ours, and if we are killed, the kernel hangs up on it even while it is stopped (an orphaned process
            group with a stopped process gets SIGHUP and SIGCONT), unless another process of our session adopts it.
    """

    def __init__(
        self,
        name: str,
        job: MemberJob,
        folder: Path,
        environment: Mapping[str, str],
        *,
        program: str = PROGRAM,
        cwd: Path | None = None,
        own_session: bool = True,
    ) -> None:
        self.name = name
        self.is_wanted = True
        """False once it was killed, or asked to leave."""
        path = folder / f"{name}.diary"
        self.diary = DiaryReader(path, name)
        self._words = folder / f"{name}.log"
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", program, job.as_json(), str(path)],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                cwd=cwd,
                env=os.environ | environment,
                start_new_session=own_session,
                process_group=None if own_session else 0,
            )
        self._stdin = cast("IO[bytes]", self._process.stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it exists, frozen or not."""
        return self._process.poll() is None

    def is_ready(self) -> bool:
        """Whether it has started, and waits for :meth:`join` or has gone on from there."""
        self.diary.look()
        return bool(self.diary.entries)

    def join(self) -> None:
        """Makes it join the group; until then it only prepares."""
        with suppress(BrokenPipeError):  # it has ended, and `failure` says why
            self._stdin.write(b"!")
            self._stdin.flush()

    def leave(self) -> None:
        """Sends SIGTERM, as a deployment does."""
        self.is_wanted = False
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL: the kernel ends it between two instructions, and closes its sockets."""
        self.is_wanted = False
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Sends SIGSTOP: it executes nothing, and its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Sends SIGCONT: it continues where it stopped."""
        self._process.send_signal(signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_left(self) -> None:
        """Waits until it has ended, but not for ever."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_S)

    def failure(self) -> str:
        """Why it ended by itself, or not as it was asked to; empty if neither is so."""
        code = self._process.poll()
        if code is None or (not self.is_wanted and code in ENDS_ON_REQUEST):
            return ""
        lines = self._words.read_text(errors="replace").strip().splitlines()
        return f"member process {self.name} ended with {code}: {lines[-1] if lines else 'it did not say why'}"

    def close(self) -> None:
        """Makes sure that it is gone."""
        if self.is_running:
            self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._stdin.close()
