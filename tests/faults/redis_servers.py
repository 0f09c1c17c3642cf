"""Groups of Redis servers: a master with replicas and three Sentinels, and a small cluster. All private."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry
from tests.faults.proxy import FaultProxy
from tests.redis_user import PASSWORD, USER, published_user

from cobalance.servers import apt
from cobalance.servers.find import find_redis
from cobalance.servers.ports import HOST, free_port
from cobalance.servers.process import PrivateProcess
from cobalance.servers.ready import redis_answers, wait_until_ready
from cobalance.servers.redis import PrivateRedis
from cobalance.servers.unavailable import ServerUnavailable

SERVICE = "orders"
WITHIN_S = 60.0
ANSWER_S = 2.0

PATIENT_MS = 5_000
"""A node of a cluster may be silent for so long: on a busy machine an innocent one is for a second."""


def redis_program() -> Path:
    """The program installed on this machine."""
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
    """Servers send no event when they have agreed on something, so they are polled."""
    give_up_at = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, "the servers did not come to agree"
        time.sleep(0.02)


class Wired(PrivateRedis):
    """A Redis that other servers and clients know by the port of a proxy: its wire, which can be cut."""

    def _own_options(self) -> list[str]:
        self.wire = FaultProxy(self.port)
        return [
            *super()._own_options(),
            *("--replica-announce-ip", HOST, "--replica-announce-port", str(self.wire.port)),
        ]

    def close(self) -> None:
        """Stops it and its wire."""
        super().close()
        self.wire.close()


class Watched:
    """A master, replicas and three Sentinels, which take this much silence for death. All servers get `options`."""

    def __init__(
        self, stack: ExitStack, *, replicas: int = 1, down_after_ms: int = 500, options: Sequence[str] = ()
    ) -> None:
        program = redis_program()
        options = (*published_user(), *options)
        self.master = stack.enter_context(Wired(program, options=options))
        """The first one; see also `present_master`."""
        replicates = ("--replicaof", HOST, str(self.master.wire.port))
        self.replicas = [stack.enter_context(Wired(program, options=(*options, *replicates))) for _ in range(replicas)]
        wait_for(lambda: all(info(it.port)["master_link_status"] == "up" for it in self.replicas))
        self.sentinels = [self._start_sentinel(stack, program, down_after_ms) for _ in range(3)]
        wait_for(lambda: all(self._is_complete(port) for port in self.sentinels))

    @property
    def nodes(self) -> list[Wired]:
        return [self.master, *self.replicas]

    @property
    def url(self) -> str:
        """For members."""
        hosts = ",".join(f"{HOST}:{port}" for port in self.sentinels)
        return f"redis+sentinel://{USER}:{PASSWORD}@{hosts}/{SERVICE}"

    @property
    def ports(self) -> dict[int, int]:
        """The ports that the URL and the Sentinels name → the real ports."""
        return {it: it for it in self.sentinels} | {it.wire.port: it.port for it in self.nodes}

    def present_master(self) -> Wired:
        """The master according to the Sentinels."""
        _, port = ask(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(it for it in self.nodes if it.wire.port == int(port))

    def is_whole(self) -> bool:
        """Whether all follow the one master."""
        try:
            facts = [info(it.port) for it in self.nodes]
        except redis.RedisError:
            return False
        roles = sorted(it["role"] for it in facts)
        return roles == ["master", *["slave"] * len(self.replicas)] and all(
            it.get("master_link_status", "up") == "up" for it in facts
        )

    def _start_sentinel(self, stack: ExitStack, program: Path, down_after_ms: int) -> int:
        port, process = free_port(), PrivateProcess("sentinel")
        stack.callback(process.close)
        lines = [
            f"port {port}",
            f"bind {HOST}",
            f"sentinel monitor {SERVICE} {HOST} {self.master.wire.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        file = process.folder / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        process.start([str(program), str(file), "--sentinel"])
        wait_until_ready(lambda: redis_answers(port), process, WITHIN_S)
        return port

    def _is_complete(self, port: int) -> bool:
        known = ask(port, "SENTINEL", "MASTERS")[0]
        return int(known["num-other-sentinels"]) == 2 and int(known["num-slaves"]) == len(self.replicas)


class Cluster:
    """Three masters, and a replica of each."""

    SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))

    def __init__(self, stack: ExitStack, *, node_timeout_ms: int = PATIENT_MS) -> None:
        program = redis_program()
        self.nodes = [stack.enter_context(self._node(program, node_timeout_ms)) for _ in range(6)]
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

    @property
    def ports(self) -> dict[int, int]:
        """The ports that the URL and the nodes name, which are the real ones."""
        return {it.port: it.port for it in self.nodes}

    def master_of(self, key: str) -> PrivateRedis:
        """The node in charge, according to the other running nodes."""
        slot = key_slot(key.encode())
        for asked in self.nodes:
            with suppress(redis.RedisError):
                rows = ask(asked.port, "CLUSTER", "SLOTS")
                port = next(master[1] for first, last, master, *_ in rows if first <= slot <= last)
                return next(it for it in self.nodes if it.port == port)
        raise AssertionError("no node answers")

    def masters(self) -> list[PrivateRedis]:
        """The nodes with slots."""
        return [it for it in self.nodes if ask(it.port, "ROLE")[0] == "master"]

    def give_up_nodes_after(self, timeout_ms: int) -> None:
        """Of silence."""
        for node in self.nodes:
            ask(node.port, "CONFIG", "SET", "cluster-node-timeout", timeout_ms)

    def is_whole(self) -> bool:
        """Whether all slots are served, and every replica has its master's data."""
        with suppress(redis.RedisError):
            return len(self.masters()) == len(self.SLOTS) and all(self._is_ok(it) for it in self.nodes)
        return False

    def move_slot(self, slot: int, source: int, target: int, *, pause_s: float = 0.0) -> None:
        """Does what redis-cli --cluster reshard does, key by key, with a pause before and after each."""
        with self.moving_slot(slot, source, target):
            time.sleep(pause_s)
            while self._move_key(slot, source, target):
                time.sleep(pause_s)

    @contextmanager
    def moving_slot(self, slot: int, source: int, target: int) -> Iterator[None]:
        """Its first key has been moved, and when the block ends the others are."""
        ids = {port: ask(port, "CLUSTER", "MYID") for port in (source, target)}
        ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        self._move_key(slot, source, target)
        yield
        while self._move_key(slot, source, target):
            pass
        for port in (target, source, *(it.port for it in self.masters())):
            ask(port, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    @contextmanager
    def stuck_slot(self, slot: int, source: int, target: int) -> Iterator[None]:
        """A reshard of it was interrupted before its first key was moved, until the block ends."""
        ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ask(source, "CLUSTER", "MYID"))
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ask(target, "CLUSTER", "MYID"))
        try:
            yield
        finally:
            for port in (source, target):
                ask(port, "CLUSTER", "SETSLOT", slot, "STABLE")

    @staticmethod
    def _move_key(slot: int, source: int, target: int) -> bool:
        keys = ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 1)
        if keys:
            ask(source, "MIGRATE", HOST, target, "", 0, 5000, "REPLACE", "KEYS", *keys)
        return bool(keys)

    @staticmethod
    def id_of(node: PrivateRedis) -> str:
        """Its name within the cluster."""
        return str(ask(node.port, "CLUSTER", "MYID"))

    @staticmethod
    def _node(program: Path, timeout_ms: int) -> PrivateRedis:
        own = ("--cluster-enabled", "yes", "--cluster-port", free_port(), "--cluster-node-timeout", timeout_ms)
        return PrivateRedis(program, options=(*published_user(), *map(str, own)))

    @staticmethod
    def _knows_all(node: PrivateRedis) -> bool:
        return len(ask(node.port, "CLUSTER", "NODES").splitlines()) == 6

    @staticmethod
    def _is_ok(node: PrivateRedis) -> bool:
        facts = ask(node.port, "CLUSTER", "INFO").split()
        link = info(node.port).get("master_link_status", "up")
        return {"cluster_state:ok", "cluster_slots_ok:16384"} <= set(facts) and link == "up"


@contextmanager
def watched(**options: Any) -> Iterator[Watched]:
    """Starts them for the length of the block."""
    with ExitStack() as stack:
        yield Watched(stack, **options)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Starts a cluster for the length of the block."""
    with ExitStack() as stack:
        yield Cluster(stack)


def ask(port: int, *words: Any) -> Any:
    """Sends one command, as administrator."""
    once: Any = Retry(NoBackoff(), 0)
    with redis.Redis(HOST, port, decode_responses=True, protocol=3, socket_timeout=ANSWER_S, retry=once) as client:
        return client.execute_command(*words)


def info(port: int) -> dict[str, Any]:
    found: dict[str, Any] = ask(port, "INFO")
    return found
