"""How long a killed process's partitions stand still: ``python -m proof.bench.crashes``.

Real processes share a topic with a message on each partition every 25 ms. One is killed with SIGKILL; measured is, for
each partition that it held, the time from then to the first message at another process. A new process takes its place
before the next round. What others held must not move.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import pika
from rich.console import Console

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from cobalance.servers import running
from cobalance.settings import GroupSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EVERY_S = 0.025
SETTINGS = GroupSettings(session_timeout_ms=4_000, heartbeat_interval_ms=1_000, gather_ms=0)
SETTLED_S = 0.5
"""Before the next kill, so that everybody has a last will again."""

PATIENCE_S = 20.0


@attrs.frozen
class Message:
    process: int
    queue: str
    at: float


class SteadyLoad:
    """A message on each queue at equal intervals, from a thread."""

    def __init__(self, amqp_url: str, queues: Sequence[str]) -> None:
        self._url, self._queues = amqp_url, queues
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _publish(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel, due = connection.channel(), time.monotonic()
        while not self._over.is_set():
            for queue in self._queues:
                channel.basic_publish("", queue, b"", pika.BasicProperties(delivery_mode=2))
            due += EVERY_S
            connection.process_data_events(max(0.0, due - time.monotonic()))  # type: ignore[arg-type]  # it takes fractions
        connection.close()


class Team:
    """The member processes, and what they have handled."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        reading, self._writing = os.pipe()
        self._output = os.fdopen(reading)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.messages: deque[Message] = deque()
        self.owners: dict[str, int] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def start(self) -> None:
        command = [sys.executable, "-m", "proof.bench.crash_member", *self._arguments]
        process = subprocess.Popen(command, stdout=self._writing)
        self.processes[process.pid] = process

    def kill(self, pid: int) -> float:
        """Returns when."""
        process = self.processes.pop(pid)
        at = time.monotonic()
        process.send_signal(signal.SIGKILL)
        process.wait()
        return at

    def close(self) -> None:
        for pid in list(self.processes):
            self.kill(pid)

    def _read(self) -> None:
        with suppress(ValueError):
            for line in self._output:
                pid, queue, at = line.split()
                self.messages.append(Message(int(pid), queue, float(at)))
                self.owners[queue] = int(pid)


class Crashes:
    """One group of this many processes, of which one after the other is killed."""

    def __init__(
        self, redis_url: str, amqp_url: str, *, members: int, partitions: int, kind: str, detect: bool, apart: bool
    ) -> None:
        self._members, self._amqp_url = members, amqp_url
        name = f"crashes-{uuid.uuid4().hex[:8]}"
        self._topic = create_topic(amqp_url, Topic(name, partitions, kind))  # type: ignore[arg-type]  # checked there
        self._coordinator = Coordinator(open_transport(redis_url), name)
        self._coordinator.create(SETTINGS)
        options = json.dumps({"settings": attrs.asdict(SETTINGS), "crash_detection": detect, "apart": apart})
        self._team = Team([name, name, redis_url, amqp_url, options])
        self._load = SteadyLoad(amqp_url, self._topic.queue_names)

    def gaps_ms(self, rounds: int) -> Iterator[list[float]]:
        """For each kill, how long each of the victim's partitions stood still."""
        for _ in range(self._members):
            self._team.start()
        for _ in range(rounds):
            self._wait_settled()
            yield self._gaps_of_a_kill()
            self._team.start()

    def close(self) -> None:
        self._load.close()
        self._team.close()
        delete_topic(self._amqp_url, self._topic.name, force=True)

    def _wait_settled(self) -> None:
        """All are members, hold their shares, and work."""
        give_up_at = time.monotonic() + PATIENCE_S
        settled_at = None
        while settled_at is None or time.monotonic() < settled_at + SETTLED_S:
            if time.monotonic() > give_up_at:
                raise TimeoutError("the group does not settle")
            settled_at = (settled_at or time.monotonic()) if self._is_even() else None
            time.sleep(0.02)

    def _is_even(self) -> bool:
        rows = list(self._coordinator.members())
        owners = [self._team.owners.get(name) for name in self._topic.queue_names]
        share = len(owners) // self._members
        return (
            sum(it.status == "active" for it in rows) == self._members
            and set(owners) == set(self._team.processes)
            and all(it.kept >= share and not it.pending for it in rows if it.status == "active")
        )

    def _gaps_of_a_kill(self) -> list[float]:
        owners = dict(self._team.owners)
        victim = random.choice(sorted(self._team.processes))
        lost = {name for name, pid in owners.items() if pid == victim}
        self._team.messages.clear()
        at = self._team.kill(victim)
        resumed: dict[str, float] = {}
        while len(resumed) < len(lost):
            if time.monotonic() > at + PATIENCE_S:
                raise TimeoutError(f"{sorted(lost - set(resumed))} were not resumed")
            time.sleep(0.005)
            self._note(resumed, lost, victim, owners)
        return [(then - at) * 1000 for then in resumed.values()]

    def _note(self, resumed: dict[str, float], lost: set[str], victim: int, owners: dict[str, int]) -> None:
        while self._team.messages:
            it = self._team.messages.popleft()
            if it.queue in lost and it.process != victim:
                resumed.setdefault(it.queue, it.at)
            elif it.queue not in lost and it.process != owners[it.queue]:
                raise AssertionError(f"{it.queue} moved, which the dead process did not hold")


def main(arguments: Sequence[str]) -> int:
    """Prints p50, p99 and most of each combination, and the machine's load."""
    options = _parser().parse_args(arguments)
    for members in options.members:
        for kind in options.kinds:
            with running() as servers:
                crashes = Crashes(
                    servers.redis_url,
                    servers.amqp_url,
                    members=members,
                    partitions=options.partitions or max(12, members),
                    kind=kind,
                    detect=not options.without,
                    apart=options.apart,
                )
                try:
                    gaps = sorted(gap for round_ in crashes.gaps_ms(options.rounds) for gap in round_)
                finally:
                    crashes.close()
            Console().print(_line(members, kind, gaps), highlight=False)
    return 0


def _line(members: int, kind: str, gaps: list[float]) -> str:
    p99 = gaps[min(len(gaps) - 1, round(0.99 * len(gaps)))]
    loads = ", ".join(f"{it:.1f}" for it in os.getloadavg())
    return (
        f"{members} members, {kind}: kill to resume {statistics.median(gaps):.0f} ms p50, {p99:.0f} ms p99, {gaps[-1]:.0f} ms at most, "
        f"{len(gaps)} gaps; load {loads} on {os.cpu_count()} cores"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.bench.crashes")
    parser.add_argument("--members", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--kinds", nargs="+", default=["classic", "quorum"])
    parser.add_argument("--partitions", type=int, help="default: 12, or one for each member")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--apart", action="store_true", help="as if each process had a machine of its own")
    parser.add_argument("--without", action="store_true", help="without crash detection, to compare")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
