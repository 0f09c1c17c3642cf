"""The coordinator's cost for a real Redis: server CPU of a heartbeat, of one join, and the longest call of a mass join
and of members with different capacities; how long a snapshot takes, and its longest script.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from statistics import median
from typing import Any

import attrs
import redis

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Heartbeat, Request
from cobalance.coordinator.scripts import load
from cobalance.operate.group_snapshot import read_snapshot
from cobalance.servers import OwnRedis
from cobalance.settings import GroupSettings
from proof.bench.figures import Figure, alone, compare
from proof.bench.measured_group import IDENTITY, BenchGroup
from proof.bench.server import CallTimes, Server

SIZES = ((1_000, 10), (10_000, 100), (100_000, 1_000))
"""Resources and members."""

LOOKS = 9

CAPACITIES = (1, 20, 500)
"""How many different capacities the members of one group have."""

# Nothing expires while the calls are made one by one.
SETTINGS = GroupSettings(
    gather_ms=0, session_timeout_ms=3_600_000, heartbeat_interval_ms=1_200_000, revocation_timeout_ms=3_600_000
)


def figures(own: OwnRedis, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Figure]:
    """The heartbeat, then one join and a mass join at every size, then capacities."""
    server = Server(redis.Redis.from_url(own.url, protocol=2))
    yield heartbeat(server, own.url)
    for resources, members in sizes:
        size = f"{resources // 1000}k x {members}"
        yield one_join(balanced(server, resources, members), size)
        yield from look(server, own.url, size)
        yield from mass_join(server, resources, members, size)
    for different in CAPACITIES if len(sizes) > 1 else CAPACITIES[:2]:
        yield capacities(server, *((10_000, 500) if len(sizes) > 1 else sizes[0]), different)


def heartbeat(server: Server, url: str, calls: int = 20_000) -> Figure:
    """Server CPU of an unchanged heartbeat against `EVALSHA return 1`, one call at a time over TCP."""
    group = BenchGroup(server, SETTINGS)
    for number in range(10):
        group.join(f"member-{number}")
    group.set_resources("member-0", [f"r{number:03}" for number in range(100)])
    group.drain()
    group.ask("member-0", Heartbeat())
    header = attrs.evolve(group.members["member-0"], number=group.members["member-0"].number + 1)
    beat = _packed(
        "EVALSHA", load("heartbeat").sha, len(group.keys), *group.keys, IDENTITY, *Request(header, Heartbeat()).args()
    )
    one = _packed("EVALSHA", server.command("SCRIPT", "LOAD", "return 1"), 0)
    address = redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    with socket.create_connection((address["host"], address["port"])) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def cpu_us(command: bytes) -> float:
            return server.timed(lambda: _repeat(raw, command, calls // 5))[1] / (calls // 5)

        return compare(
            "heartbeat ÷ EVALSHA return 1",
            "µs of server CPU",
            lambda: cpu_us(beat),
            lambda: cpu_us(one),
            rounds=5,
            most=1.5,
            detail=f"{calls // 5} calls a round, 100 resources x 10 members",
        )


def _packed(*words: object) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def _repeat(raw: socket.socket, command: bytes, times: int) -> None:
    for _ in range(times):
        raw.sendall(command)
        raw.recv(65536)


def balanced(server: Server, resources: int, members: int, different: int = 1) -> BenchGroup:
    """A group at rest, everything assigned and known to its holders. Its members have ``different`` capacities."""
    group = BenchGroup(server, SETTINGS)
    for number in range(members):
        group.join(f"m{number:05}", capacity=1 + number % different)
    group.set_resources("m00000", [f"r{number:06}" for number in range(resources)])
    group.settle("m00000")
    group.drain()
    return group


def one_join(group: BenchGroup, size: str) -> Figure:
    """A join into a group at rest, and the calls that settle it."""
    group.tally = CallTimes()
    if group.join("one-more").more:
        group.settle("one-more")
    tally = group.tally
    most = 2.0 if size == "100k x 1000" else None
    return alone(
        f"one join, {size}: total",
        "ms",
        tally.total_us / 1000,
        most=most,
        detail=f"server CPU of {tally.calls} calls; longest {tally.longest_ms:.2f} ms",
    )


def look(server: Server, url: str, size: str) -> Iterator[Figure]:
    """What all that show a group do: one snapshot, over a connection of its own, without RabbitMQ, and without asking the
    members, who are not there to answer.
    """
    with closing(open_transport(url)) as transport:
        partitions = len(read_snapshot(Coordinator(transport, "bench"), None, within_ms=0).resources)
    server.command("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "10000")
    took_ms, scripts_ms = list[float](), defaultdict[Any, list[float]](list)
    for _ in range(LOOKS):
        server.command("SLOWLOG", "RESET")
        began = time.perf_counter()
        with closing(open_transport(url)) as transport:
            read_snapshot(Coordinator(transport, "bench"), None, within_ms=0)
        took_ms.append(1000 * (time.perf_counter() - began))
        logged: Any = server.command("SLOWLOG", "GET", "10000")
        for _, _, took_us, words, *_ in logged:
            if words[0] == b"EVALSHA":
                scripts_ms[tuple(words[-3:])].append(took_us / 1000)
    server.command("CONFIG", "SET", "slowlog-log-slower-than", "-1")
    is_goal = size == "10k x 100"
    told = f"median of {LOOKS}, {min(took_ms):.0f} to {max(took_ms):.0f}; {partitions} partitions"
    yield alone(f"snapshot, {size}", "ms", median(took_ms), most=100.0 if is_goal else None, detail=told)
    # The clock also counts what others on the machine take from Redis, which hits another script at each look.
    longest_ms, by_clock_ms = max(map(min, scripts_ms.values())), max(map(max, scripts_ms.values()))
    told = f"each at its quickest of {LOOKS}; {len(scripts_ms)} calls, at most {by_clock_ms:.2f} by the clock"
    yield alone(f"snapshot, {size}: longest script", "ms", longest_ms, most=5.0, detail=told)


def mass_join(server: Server, resources: int, members: int, size: str) -> Iterator[Figure]:
    """Everything is assigned to M members, then M more join and everything due is handed over."""
    group = balanced(server, resources, members)
    yield _longest(f"deal, {size}: longest call", group.tally)
    group.tally = CallTimes()
    for number in range(members):
        group.join(f"n{number:05}")
    group.settle("m00000")
    group.drain()
    yield _longest(f"mass join, {size}: longest call", group.tally)


def capacities(server: Server, resources: int, members: int, different: int) -> Figure:
    """Everything is assigned; one more member joins and is given its share; one leaves."""
    group = balanced(server, resources, members, different)
    group.join("one-more", capacity=different)
    group.settle("one-more")
    group.drain()
    group.leave("m00000")
    size = f"{resources // 1000}k x {members}"
    return _longest(f"{size} with {different} capacities: longest call", group.tally)


def _longest(name: str, tally: CallTimes) -> Figure:
    over = len(tally.over_5_ms)
    detail = (
        f"{tally.calls} calls, {tally.total_us / 1000:.0f} ms in all, p99.9 {tally.p999_ms:.2f} ms, {over} over 5 ms"
    )
    return alone(name, "ms", tally.longest_ms, most=5.0, detail=detail)
