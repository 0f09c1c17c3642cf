"""Redis in company: a master with its replica and three Sentinels, and a small cluster. All private, all gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from tests.redis_user import PASSWORD, USER, published_user

from cobalance.servers import apt
from cobalance.servers.find import find_redis
from cobalance.servers.ports import HOST, free_port
from cobalance.servers.process import PrivateProcess
from cobalance.servers.ready import redis_answers, wait_until_ready
from cobalance.servers.redis import PrivateRedis
from cobalance.servers.unavailable import ServerUnavailable

SERVICE = "orders"
WITHIN_S = 30.0


def redis_program() -> Path:
    """This machine's own."""
    program = find_redis()
    if program is None and apt.can_install():
        with apt.only_installer():
            apt.install(["redis-server"])
        program = find_redis()
    if program is None:
        raise ServerUnavailable(
            "Sentinel and Cluster are tested with a redis-server on this machine, and there is none."
        )
    return program


def wait_for(condition: Callable[[], object]) -> None:
    """Servers do not tell when they have agreed on something, so they are asked."""
    give_up_at = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "the servers did not come to agree"
        time.sleep(0.02)


class Watched:
    """A master, a replica and three Sentinels, which take 500 ms of silence for death."""

    def __init__(self, stack: ExitStack) -> None:
        program = redis_program()
        self.master = stack.enter_context(PrivateRedis(program, options=published_user()))
        replicates = ("--replicaof", HOST, str(self.master.port))
        self.replica = stack.enter_context(PrivateRedis(program, options=(*published_user(), *replicates)))
        wait_for(lambda: info(self.replica.port)["master_link_status"] == "up")
        self.sentinels = [self._start_sentinel(stack, program) for _ in range(3)]
        wait_for(lambda: all(self._is_complete(port) for port in self.sentinels))

    @property
    def url(self) -> str:
        """For members."""
        hosts = ",".join(f"{HOST}:{port}" for port in self.sentinels)
        return f"redis+sentinel://{USER}:{PASSWORD}@{hosts}/{SERVICE}"

    def _start_sentinel(self, stack: ExitStack, program: Path) -> int:
        port, process = free_port(), PrivateProcess("sentinel")
        stack.callback(process.close)
        lines = [
            f"port {port}",
            f"bind {HOST}",
            f"sentinel monitor {SERVICE} {HOST} {self.master.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} 500",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        file = process.folder / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        process.start([str(program), str(file), "--sentinel"])
        wait_until_ready(lambda: redis_answers(port), process, WITHIN_S)
        return port

    def _is_complete(self, port: int) -> bool:
        known = ask(port, "SENTINEL", "MASTERS")[0]
        return int(known["num-other-sentinels"]) == 2 and int(known["num-slaves"]) == 1


class Cluster:
    """Three masters, and a replica of each."""

    SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))

    def __init__(self, stack: ExitStack) -> None:
        program = redis_program()
        self.nodes = [stack.enter_context(self._node(program)) for _ in range(6)]
        for (first, last), node in zip(self.SLOTS, self.nodes, strict=False):
            ask(node.port, "CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            bus = ask(node.port, "CONFIG", "GET", "cluster-port")["cluster-port"]
            ask(self.nodes[0].port, "CLUSTER", "MEET", HOST, node.port, bus)
        wait_for(lambda: all(self._knows_all(node) for node in self.nodes))
        for node, master in zip(self.nodes[3:], self.nodes, strict=False):
            ask(node.port, "CLUSTER", "REPLICATE", self.id_of(master))
        wait_for(lambda: all(self._is_ok(node) for node in self.nodes))

    @property
    def url(self) -> str:
        """For members; one node is enough to find the others."""
        return f"redis+cluster://{USER}:{PASSWORD}@{HOST}:{self.nodes[0].port}"

    @staticmethod
    def id_of(node: PrivateRedis) -> str:
        """Its name within the cluster."""
        return str(ask(node.port, "CLUSTER", "MYID"))

    @staticmethod
    def _node(program: Path) -> PrivateRedis:
        own = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-node-timeout", "1000")
        return PrivateRedis(program, options=(*published_user(), *own))

    @staticmethod
    def _knows_all(node: PrivateRedis) -> bool:
        return len(ask(node.port, "CLUSTER", "NODES").splitlines()) == 6

    @staticmethod
    def _is_ok(node: PrivateRedis) -> bool:
        facts = ask(node.port, "CLUSTER", "INFO").split()
        link = info(node.port).get("master_link_status", "up")
        return {"cluster_state:ok", "cluster_slots_ok:16384"} <= set(facts) and link == "up"


@contextmanager
def watched() -> Iterator[Watched]:
    """For the time of the block."""
    with ExitStack() as stack:
        yield Watched(stack)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """For the time of the block."""
    with ExitStack() as stack:
        yield Cluster(stack)


def ask(port: int, *words: Any) -> Any:
    """One command, as administrator."""
    with redis.Redis(HOST, port, decode_responses=True, protocol=3) as client:
        return client.execute_command(*words)


def info(port: int) -> dict[str, Any]:
    """What INFO says."""
    found: dict[str, Any] = ask(port, "INFO")
    return found
