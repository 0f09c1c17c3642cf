"""A member's process, as its agent has it: the user's own command line."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL
from typing import Literal

from cobalance.errors import UsageError

State = Literal["running", "frozen", "leaving", "ended"]


class MemberProcess:
    """One process, from its start to its end.

    It has a process group of its own, so that a Ctrl-C on the terminal does not reach it, and its own children are
    frozen and killed with it. While it is frozen a shell waits for our end, however we end, and then hangs up on it
    (SIGHUP and SIGCONT), as the kernel does on a stopped orphan, but not on one that a process of its session adopts.

    Args:
        slot: its place among the agent's processes; a successor has that of its predecessor.
        environment: added to ours.

    Raises:
        UsageError: the command cannot be started.
    """

    def __init__(self, name: str, slot: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name, self.slot = name, slot
        self.is_wanted = True
        """False once it was killed, or asked to leave."""
        self._started_at = time.monotonic()
        self.thaws_at: float | None = None
        """When it goes on, on the monotonic clock; None while it runs."""
        self._watch: subprocess.Popen[bytes] | None = None
        """Waits for our end while it is frozen."""
        try:
            self._process = subprocess.Popen(command, stdin=DEVNULL, env={**os.environ, **environment}, process_group=0)
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror}.") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age_ms(self) -> int:
        """How long ago it was started."""
        return int((time.monotonic() - self._started_at) * 1000)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it exists, frozen or not."""
        code = self._process.poll()
        if code is not None:
            self._end_watch()  # from now on its number may be another's
        return code

    @property
    def state(self) -> State:
        """What it is doing."""
        if self.code is not None:
            return "ended"
        if self.thaws_at is not None:
            return "frozen"
        return "running" if self.is_wanted else "leaving"

    def leave(self) -> None:
        """Sends SIGTERM, as a deployment does."""
        self.is_wanted = False
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, and waits for the end."""
        self.is_wanted, self.thaws_at = False, None
        self._send(signal.SIGKILL)
        self._end_watch()
        self._process.wait()

    def freeze(self, for_s: float) -> None:
        """Sends SIGSTOP: it executes nothing, and its sockets stay open."""
        self.thaws_at = time.monotonic() + for_s
        if self._watch is None:
            hang_up = f"read _; kill -s HUP -- -{self.pid}; kill -s CONT -- -{self.pid}"
            self._watch = subprocess.Popen(
                ["/bin/sh", "-c", hang_up],
                stdin=subprocess.PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
            )
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Sends SIGCONT: it goes on where it stopped."""
        self.thaws_at = None
        self._send(signal.SIGCONT)
        self._end_watch()

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            with watch:
                watch.kill()  # before its input ends

    def _send(self, number: int) -> None:
        if self.code is None:  # not waited for yet, so the number is still its own
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
