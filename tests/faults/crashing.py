"""Real processes that are members of one group, and are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import redis
from tests.names import unique

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import group_keys, hint_channel
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import RESYNC
from cobalance.journal import Journal, JournalEntry
from cobalance.settings import GroupSettings

PROGRAM = Path(__file__).parent / "crash_program.py"

LONG = GroupSettings(
    session_timeout_ms=60_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=60_000, gather_ms=0, rejoin_grace_ms=0
)
"""A session outlives the test's patience: whatever goes on after a kill was seen at once."""


class Processes:
    """Processes with one output. The test's own timeout ends the wait for a line that never comes."""

    def __init__(
        self, name: str, source: str | list[str], amqp_url: str, redis_url: str, *, settings: GroupSettings
    ) -> None:
        self.name, self.settings = name, settings
        self._options: dict[str, Any] = {"name": name, "source": source, "amqp_url": amqp_url, "redis_url": redis_url}
        reading, self._writing = os.pipe()
        self._output = os.fdopen(reading)
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.members: dict[int, str] = {}
        """Process id → the member whose last will RabbitMQ keeps."""
        self.handled: dict[str, list[tuple[int, str]]] = defaultdict(list)
        """Queue → process and body, in order."""

    def start(self, *, member: Mapping[str, Any] | None = None, streams: Any = None, **options: Any) -> int:
        """Starts one; returns its process id. Its temporary folder is its own, as on another machine."""
        given = {
            **self._options,
            "settings": attrs.asdict(self.settings),
            "member": member or {},
            "streams": streams or {},
            **options,
        }
        environment = {**os.environ, "TMPDIR": tempfile.mkdtemp(prefix="crash-")}
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(given)], stdout=self._writing, env=environment
        )
        self._running[process.pid] = process
        return process.pid

    def read(self) -> list[str]:
        """Reads one line: the process id, then what it is about."""
        pid, kind, *words = self._output.readline().split()
        if kind == "will":
            self.members[int(pid)] = words[0]
        elif kind == "message":
            self.handled[words[0]].append((int(pid), words[1]))
        return [pid, kind, *words]

    def wait_joined(self, pid: int) -> None:
        while self.read()[:2] != [str(pid), "joined"]:
            pass

    def wait_will(self, *pids: int) -> None:
        """Until RabbitMQ keeps the wills of these."""
        while not set(pids) <= set(self.members):
            self.read()

    def wait_handled(self, queues: Sequence[str], body: str) -> dict[str, int]:
        """Until one message has been handled from each queue; returns by which process."""
        while True:
            found = {name: [pid for pid, it in self.handled[name] if it == body] for name in queues}
            if all(found.values()):
                return {name: pids[-1] for name, pids in found.items()}
            self.read()

    def kill(self, pid: int) -> None:
        process = self._running.pop(pid)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for pid in list(self._running):
            self.kill(pid)
        os.close(self._writing)
        self._output.close()


class Crew(Processes):
    """The same, with the group's state."""

    def __init__(self, *args: Any, admin_url: str, settings: GroupSettings) -> None:
        super().__init__(*args, settings=settings)
        self._transport = open_transport(self._options["redis_url"])
        self.coordinator = Coordinator(self._transport, self.name)
        self.coordinator.create(self.settings)
        self._redis = redis.Redis.from_url(admin_url, protocol=2)

    def vouched(self) -> set[str]:
        """The members that have vouched."""
        fields: Any = self._redis.hgetall(group_keys(self.name)[0])
        return {it.decode()[2:] for it, said in fields.items() if it.startswith(b"v:") and said.split()[1] != b"-"}

    def vouch(self, member: str) -> str:
        """What this one has vouched, and when."""
        return str(self._redis.hget(group_keys(self.name)[0], f"v:{member}"))

    def ask_to_call(self, member: str) -> None:
        """As the coordinator does."""
        assert self._redis.publish(hint_channel(self.name, member), str(RESYNC)) == 1

    def cut_listener(self, member: str) -> None:
        """Closes its connection for hints, and those of all others, which connect again."""
        self._redis.client_kill_filter(_type="pubsub")
        channel = hint_channel(self.name, member)
        while self._redis.pubsub_numsub(channel)[0][1]:
            pass

    def owners(self) -> dict[str, str | None]:
        return {row.name: row.owner for row in self.coordinator.resources()}

    def journal(self, *kinds: str) -> list[JournalEntry]:
        entries = Journal(self._transport, self.name).entries()
        return [entry for entry in entries if entry.kind in kinds]

    def calls(self, count: int) -> list[float]:
        """When the next calls of this group reach Redis, in s."""
        key = group_keys(self.name)[0]
        with self._redis.monitor() as monitor:  # type: ignore[no-untyped-call]
            heard = (it for it in monitor.listen() if it["command"].startswith("EVALSHA") and key in it["command"])
            return [it["time"] for it in islice(heard, count)]

    def close(self) -> None:
        super().close()
        self._redis.close()
        with contextlib.suppress(Exception):
            self._transport.close()


@contextmanager
def crew(
    source: str | list[str], amqp_url: str, redis_url: str, admin_url: str, *, settings: GroupSettings = LONG
) -> Iterator[Crew]:
    """A group without members yet; they are killed at the end."""
    it = Crew(unique("crashes"), source, amqp_url, redis_url, admin_url=admin_url, settings=settings)
    try:
        yield it
    finally:
        it.close()
