"""A private Redis: on loopback only, on a free port, gone with this process."""

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
"""Redis takes a tenth of a second; the rest is for busy machines."""

STOP_TIMEOUT_S = 10.0


class PrivateRedis:
    """A Redis that tests may stop, freeze, kill and restart. It keeps nothing on disk unless asked to."""

    def __init__(self, program: Path, *, options: Sequence[str] = (), origin: str = "local") -> None:
        """Starts it. `options` are further command line options, such as `("--maxmemory", "3mb")`."""
        self.origin = origin
        """`local`, or `apt` if it was installed for the purpose."""
        self.port = free_port()
        """Unchanged by restarts."""
        self.process = PrivateProcess("redis")
        self._command = [str(program), *self._own_options(), *options]
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """The URL of the same server's Unix socket."""
        return f"unix://{self.process.folder}/redis.sock?db=0"

    def start(self) -> None:
        """Starts it again after `stop` or `kill`, with the snapshot that `save` left."""
        self.process.start(self._command)
        wait_until_ready(lambda: redis_answers(self.port), self.process, START_TIMEOUT_S)

    def save(self) -> None:
        """Writes a snapshot, which every later start loads until `forget`."""
        with redis.Redis.from_url(self.url) as client:
            client.save()

    def forget(self) -> None:
        """Removes the snapshot."""
        (self.process.folder / "dump.rdb").unlink(missing_ok=True)

    def stop(self, *, save: bool = False) -> None:
        """Stops it gracefully, after a snapshot if `save`; otherwise unsaved data is lost."""
        if save:
            with redis.Redis.from_url(self.url) as client:
                client.shutdown(save=True)
        else:
            self.process.signal(signal.SIGTERM)
        if not self.process.wait_exit(STOP_TIMEOUT_S):
            raise ServerUnavailable(f"redis did not stop within {STOP_TIMEOUT_S:g} s:\n{self.process.log_tail()}")

    def kill(self) -> None:
        """Ends it as a crash would."""
        self.process.signal(signal.SIGKILL)
        self.process.wait_exit(STOP_TIMEOUT_S)

    def restart(self, *, empty: bool = False) -> None:
        """Restarts it, with its data or `empty`."""
        if empty:
            self.forget()
        self.stop(save=not empty)
        self.start()

    def pause(self) -> None:
        """Freezes it: connections stay open but get no answers, until `resume`."""
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues after `pause`."""
        self.process.signal(signal.SIGCONT)

    def close(self) -> None:
        """Kills it and removes its folder."""
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
