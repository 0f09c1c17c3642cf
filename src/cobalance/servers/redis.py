"""A private Redis: on this machine only, on a free port, gone with this process."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import redis

from cobalance.servers.ports import HOST, free_port
from cobalance.servers.process import PrivateProcess
from cobalance.servers.ready import redis_answers, wait_until_ready
from cobalance.servers.unavailable import ServerUnavailable

START_TIMEOUT_S = 30.0
"""Redis takes a tenth of a second; the rest is for a machine that is busy with something else."""

STOP_TIMEOUT_S = 10.0


class PrivateRedis:
    """A Redis that keeps nothing on disk unless told to, and that a test may stop, freeze, kill and bring back."""

    def __init__(self, program: Path, *, options: Sequence[str] = (), origin: str = "local") -> None:
        """Start it. `options` are further command line options, such as `("--maxmemory", "3mb")`."""
        self.origin = origin
        """How it was found: `local`, or `apt` when it was installed for the purpose."""
        self.port = free_port()
        """The same over restarts."""
        self.process = PrivateProcess("redis")
        """Its process, folder and log."""
        self._command = [str(program), *self._own_options(), *options]
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """The same server on its Unix socket."""
        return f"unix://{self.process.folder}/redis.sock?db=0"

    def start(self) -> None:
        """Start it again after `stop` or `kill`, with what `save` left on disk."""
        self.process.start(self._command)
        wait_until_ready(lambda: redis_answers(self.port), self.process, START_TIMEOUT_S)

    def save(self) -> None:
        """Write a snapshot, which every later start loads until `forget`."""
        with redis.Redis.from_url(self.url) as client:
            client.save()

    def forget(self) -> None:
        """Remove the snapshot."""
        (self.process.folder / "dump.rdb").unlink(missing_ok=True)

    def stop(self, *, save: bool = False) -> None:
        """End it politely, with all it has on disk if it is to `save`; otherwise what was not saved is lost."""
        if save:
            with redis.Redis.from_url(self.url) as client:
                client.shutdown(save=True)
        else:
            self.process.signal(signal.SIGTERM)
        if not self.process.wait_exit(STOP_TIMEOUT_S):
            raise ServerUnavailable(f"redis did not stop within {STOP_TIMEOUT_S:g} s:\n{self.process.log_tail()}")

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.signal(signal.SIGKILL)
        self.process.wait_exit(STOP_TIMEOUT_S)

    def restart(self, *, empty: bool = False) -> None:
        """Stop and start it, with its data or `empty`."""
        if empty:
            self.forget()
        self.stop(save=not empty)
        self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered, until `resume`."""
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one go on."""
        self.process.signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _own_options(self) -> list[str]:
        folder = self.process.folder
        return [
            *("--bind", HOST, "--port", str(self.port), "--protected-mode", "yes"),
            *("--unixsocket", f"{folder}/redis.sock", "--unixsocketperm", "700"),
            *("--dir", str(folder), "--save", "", "--appendonly", "no", "--daemonize", "no"),
        ]
