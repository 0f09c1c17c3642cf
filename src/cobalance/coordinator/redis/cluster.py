"""Redis Cluster: all keys of a group share a hash tag and so are on one node. This finds the node and follows it.

The layout of the cluster is learned from any node that answers; addresses that do not answer never keep a call for
longer than two of its timeouts, however many there are. A node that is not, or no longer, in charge names the
one that is (MOVED). It has executed nothing, so the call may be sent there. While a slot moves, neither of its two
nodes runs a script if one of its keys is not there, though it may be nowhere (ASK, TRYAGAIN): the call waits, up to its
timeout. After a failover or a move of the slot the group finds itself on another server, and recovers as after any change of
server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TypeVar, cast

from redis.crc import key_slot

from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.redis.address import RedisAddress
from cobalance.coordinator.redis.failures import Redirected, Resharding
from cobalance.coordinator.redis.hosts import HostsUrl, shown
from cobalance.coordinator.redis.listener import RedisListener
from cobalance.coordinator.redis.transport import RedisTransport
from cobalance.coordinator.transport import CALL_TIMEOUT_MS, OnHint, PartlyListed, Reply, Script, not_a_coordinator_url
from cobalance.errors import ServerError, Unreachable
from cobalance.threads.forks import ForkSafe

_REDIRECTIONS = 5
"""Redis Cluster settles within one or two; more would mean that its nodes disagree."""

_AT_LEAST_ASKED = 2
"""This many nodes are asked in one call, though they do not answer: the one believed last, and another one."""

_REMEMBERED = 8
"""How many nodes are remembered that the cluster does not name any more: one may only have been away when it was asked."""

_UNNAMED = "?"
"""The host of a node without a host name, where nodes name each other by host names."""

_RESHARDING_PAUSE_S = 0.02
"""Nodes do not announce when a slot has been moved. For a small one it takes milliseconds."""

T = TypeVar("T")
Node = tuple[str, int]


class ClusterTransport(ForkSafe):
    """A :class:`Transport` with a connection to each node in use."""

    database = ""
    """A cluster has number 0 only."""

    def __init__(self, url: str, *, call_timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Parses a ``redis+cluster://`` URL, or ``rediss+cluster://`` for TLS.

        Raises:
            UsageError: it is not one.
        """
        parts = HostsUrl.parse(url)
        if parts.path not in {(), ("0",)}:
            raise not_a_coordinator_url("a cluster has the database 0 only")
        self.place = shown(f"{parts.scheme}+cluster", parts.hosts)
        self._seeds = [parts.address(host, login=parts.login) for host in parts.hosts]
        self._timeout_ms = call_timeout_ms
        self._nodes: list[Node] = [seed.address for seed in self._seeds]
        """In the order in which they are asked: those in the URL, those named last, and some that were named before, since all others
        may be gone when they are needed.
        """
        self._current = frozenset(self._nodes)
        """Those in the URL, and those that were named last."""
        self._silent: set[Node] = set()
        """Those that did not answer when they were asked last."""
        self._informant: Node | None = None
        """The one that was believed last."""
        self._transports: dict[Node, RedisTransport] = {}
        self._warned: set[str] = set()
        self._owners: list[tuple[range, Node]] = []
        """Which node is in charge of which slots; the first matching entry counts. Replaced, never changed: listeners read it at any
        time.
        """
        self._turns = count()
        self._closed = False
        super().__init__()

    def __repr__(self) -> str:
        return f"<ClusterTransport to {self.place}>"

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Runs the script once, on the node that has the keys; see :class:`Transport`."""
        return self._at(keys[0], lambda node: node.call(script, keys, args))

    def server(self, key: str) -> tuple[str, str | None]:
        """The node that has the key; see :class:`RedisTransport`."""
        return self._at(key, lambda node: node.server(key))

    def read_info(self, key: str) -> tuple[str, dict[str, str]]:
        """Of the node that has the key; see :class:`RedisTransport`."""
        return self._at(key, lambda node: node.read_info(key))

    def read_time(self, key: str) -> float:
        """The clock of the node that has the key; see :class:`RedisTransport`."""
        return self._at(key, lambda node: node.read_time(key))

    def read_missing_permissions(self, key: str) -> set[str] | None:
        """On the node that has the key; see :class:`RedisTransport`."""
        return self._at(key, lambda node: node.read_missing_permissions(key))

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        return self._at(key, lambda node: node.read_stream(key, after, count))

    def read_range(self, key: str, first: str, last: str, count: int) -> Reply:
        """Entries between two ids; see :class:`RedisTransport`."""
        return self._at(key, lambda node: node.read_range(key, first, last, count))

    def read_range_raw(self, key: str, first: str, last: str, count: int, room: int) -> tuple[bytearray, int]:
        """The same, unparsed; see :class:`RedisTransport`."""
        return self._at(key, lambda node: node.read_range_raw(key, first, last, count, room))

    def read_newest(self, key: str, last: str = "+") -> Reply:
        """The newest entry; see :class:`RedisTransport`."""
        return self._at(key, lambda node: node.read_newest(key, last))

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]:
        found = set[str]()
        failures = list[str]()
        for node in self._masters():
            try:
                found.update(node.list_groups(key_prefix))
            except Unreachable as error:
                failures.append(str(error))
        if failures:
            raise PartlyListed(f"Groups may be missing, since a node is silent: {' '.join(failures)}", found)
        return sorted(found)

    def list_keys(self, pattern: str) -> set[str]:
        """The matching keys of all nodes; see :class:`RedisTransport`."""
        return {key for node in self._masters() for key in node.list_keys(pattern)}

    def _masters(self) -> list[RedisTransport]:
        with self._learning():
            self._learn()
            return [self._known(node) for node in {node for _, node in self._owners}]

    def listen(self, on_hint: OnHint) -> RedisListener:
        """Listens at the node in charge of the channel's slot, which is the group's: hints arrive at all nodes, but each counts its own
        listeners only. At any node until it is known.
        """
        return RedisListener(self, on_hint, home=lambda channel: self._known_owner(key_slot(channel.encode())))

    def locate(self, timeout_ms: int) -> RedisAddress:
        """For a listener that knows no better. Rotates through the nodes, so that it leaves a dead one behind: those that answered,
        then one of the silent ones, which may answer by now.
        """
        del timeout_ms
        with self._lock:
            silent = sorted(self._current & self._silent)
            nodes = sorted(self._current - self._silent)
        turn, place = divmod(next(self._turns), len(nodes) + bool(silent))
        return self._seeds[0].at(*(nodes[place] if place < len(nodes) else silent[turn % len(silent)]))

    def set_call_timeout(self, timeout_ms: int) -> None:
        """Replaces the timeout of calls to all nodes; see :class:`RedisTransport`."""
        with self._lock:
            self._timeout_ms, transports = timeout_ms, list(self._transports.values())
        for transport in transports:
            transport.set_call_timeout(timeout_ms)

    def close(self) -> None:
        """Closes all connections, after calls in progress."""
        with self._lock:
            self._closed = True
            transports, self._transports = list(self._transports.values()), {}
        for transport in transports:
            transport.close()

    def _at(self, key: str, action: Callable[[RedisTransport], T]) -> T:
        patient_until = time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return self._at_owner(key_slot(key.encode()), action)
            except Resharding:
                if time.monotonic() > patient_until:
                    raise
            time.sleep(_RESHARDING_PAUSE_S)

    def _at_owner(self, slot: int, action: Callable[[RedisTransport], T]) -> T:
        for _ in range(_REDIRECTIONS):
            node = self._owner(slot)
            try:
                return action(self._transport(node))
            except Redirected as redirected:
                if redirected.host == _UNNAMED:
                    with self._learning():
                        self._ask_layout(node)  # it has the address
                    continue
                owner = (redirected.host or node[0], redirected.port)
            except Resharding:
                raise
            except ServerError:
                self._forget()  # It may have been replaced: ask the others before the next call.
                raise
            self._put_in_charge(slot, owner)
        self._forget()
        raise Unreachable(f"The nodes of {self.place} send us from one to the other; is the cluster changing?")

    def _owner(self, slot: int) -> Node:
        with self._learning():
            if self._known_owner(slot) is None:
                self._learn(slot)
            found = self._known_owner(slot)
        if found is None:
            raise Unreachable(f"No node of the cluster {self.place} is in charge of slot {slot}; is it complete?")
        return found

    def _known_owner(self, slot: int) -> Node | None:
        return next((node for slots, node in self._owners if slot in slots), None)

    def _put_in_charge(self, slot: int, node: Node) -> None:
        with self._lock:
            self._owners = [(range(slot, slot + 1), node), *self._owners]

    def _forget(self) -> None:
        with self._lock:
            self._owners = []

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Connections to nodes that are gone are closed afterwards: calls on them may be in progress."""
        gone: list[RedisTransport] = []
        try:
            with self._lock:
                yield
                gone += [self._transports.pop(node) for node in self._transports.keys() - self._needed()]
        finally:
            for transport in gone:
                transport.close()

    def _needed(self) -> set[Node]:
        return {*self._current, *(node for _, node in self._owners)}

    def _learn(self, slot: int | None = None) -> None:
        """A layout may lack the slot, as that of a node does that was taken out of the cluster: then another node is asked."""
        failure: ServerError = Unreachable(f"The cluster {self.place} has no nodes.")
        until = time.monotonic() + self._timeout_ms / 1000
        asked, has_heard = list[Node](), False
        while to_ask := self._to_ask(asked):
            if (
                len(asked) >= _AT_LEAST_ASKED
                and self._informant is not None
                and (has_heard or time.monotonic() >= until)
            ):
                break  # a member has to hear from Redis within its session: the next call goes on with the others
            asked.append(to_ask[0])
            try:
                self._ask_layout(to_ask[0])
            except ServerError as error:
                failure = error
                continue
            has_heard = True
            if slot is None or self._known_owner(slot) is not None:
                return
        if not has_heard:
            raise failure

    def _ask_layout(self, node: Node) -> None:
        self._nodes = [*(it for it in self._nodes if it != node), node]
        try:
            reply = self._known(node).ask("CLUSTER", "SLOTS", doing="asking for the nodes of the cluster")
        except ServerError:
            self._silent.add(node)
            raise
        self._silent.discard(node)
        self._take_in(cast("list[list[Reply]]", reply), node)

    def _to_ask(self, asked: Sequence[Node]) -> list[Node]:
        """Another one than last time comes first, so that one which was cut off is not believed twice; then that one. Of the others,
        those that answered last time.
        """
        others = [node for node in self._nodes if node != self._informant and node not in asked]
        others.sort(key=lambda node: (node in self._silent, node not in self._current))
        if self._informant is None or self._informant in asked:
            return others
        first = 0 if asked else 1
        return [*others[:first], self._informant, *others[first:]]

    def _take_in(self, rows: list[list[Reply]], asked: Node) -> None:
        """Each row: first slot, last slot, the master, its replicas."""
        owners: list[tuple[range, Node]] = []
        current = {asked, *(seed.address for seed in self._seeds)}
        for first, last, *nodes in rows:
            named = [_node(cast("list[Reply]", node), asked) for node in nodes]
            owners.append((range(cast("int", first), cast("int", last) + 1), named[0]))
            current.update(named)
        self._owners = owners
        former = sorted((node for node in self._nodes if node not in current), key=self._current.__contains__)
        kept = [node for node in self._nodes if node in current]
        self._nodes = [*kept, *sorted(current.difference(kept)), *former[-_REMEMBERED:]]
        self._current, self._informant = frozenset(current), asked
        self._silent.intersection_update(self._nodes)

    def _transport(self, node: Node) -> RedisTransport:
        with self._lock:
            return self._known(node)

    def _known(self, node: Node) -> RedisTransport:
        if self._closed:
            raise Unreachable(f"This connection to {self.place} was closed: open another.")
        if node not in self._transports:
            address = self._seeds[0].at(*node)
            self._transports[node] = RedisTransport(
                address, call_timeout_ms=self._timeout_ms, fails_over=True, in_cluster=True, warned=self._warned
            )
        return self._transports[node]


def _node(described: list[Reply], asked: Node) -> Node:
    """Host (empty if it is that of the node that was asked), port, id, and since Redis 7 other names of it."""
    host, port = (cast("bytes | None", described[0]) or b"").decode(), cast("int", described[1])
    if host == _UNNAMED:
        others = cast("list[bytes]", described[3] if len(described) > 3 else [])
        host = dict(zip(others[::2], others[1::2], strict=True)).get(b"ip", b"").decode()
    return host or asked[0], port
