"""The wake-up delay: from a release in Redis to the next holder knowing of its grant, against a raw PUBLISH → receive.

Ours is more than a message: a script that moves a resource and publishes a hint, the listener's thread, the session's, a
heartbeat that fetches the change, and the start of the tenure.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from typing import TYPE_CHECKING

import redis

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Header, Heartbeat, Join, Release, ReleaseItem, Request, SetResources
from cobalance.group.engine import Engine
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.settings import GroupSettings, MemberSettings
from proof.bench.figures import Figure, compare

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cobalance.coordinator.replies import Change, CoordinatorReply

RESOURCES = 200
SETTINGS = GroupSettings(
    session_timeout_ms=60_000, heartbeat_interval_ms=20_000, revocation_timeout_ms=60_000, gather_ms=0
)


def figures(redis_url: str, rounds: int) -> list[Figure]:
    """Medians over the handovers of half of the resources, one at a time."""
    detail = f"median of {RESOURCES // 2} a round; ours includes the grant's script and the heartbeat that fetches it"
    return [
        compare(
            "wake-up ÷ raw PUBLISH → receive",
            "ms",
            lambda: _ours(redis_url),
            lambda: _raw(redis_url),
            rounds=rounds,
            detail=detail,
        )
    ]


def _raw(redis_url: str) -> float:
    """PUBLISH by one connection, received by another that waits for it."""
    publisher, subscriber = redis.Redis.from_url(redis_url), redis.Redis.from_url(redis_url).pubsub()  # type: ignore[no-untyped-call]
    channel = f"bench-{uuid.uuid4().hex}"
    subscriber.subscribe(channel)
    subscriber.get_message(timeout=5)
    received = threading.Semaphore(0)
    arrived: list[int] = []

    def listen() -> None:
        while len(arrived) < RESOURCES // 2:
            if subscriber.get_message(timeout=5) is not None:
                arrived.append(time.monotonic_ns())
                received.release()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    sent = []
    for _ in range(RESOURCES // 2):
        sent.append(time.monotonic_ns())
        publisher.publish(channel, "1")
        received.acquire(timeout=5)
    thread.join()
    subscriber.close()
    publisher.close()
    return statistics.median((there - here) / 1e6 for here, there in zip(sent, arrived, strict=True))


def _ours(redis_url: str) -> float:
    """One member is simulated by hand and releases; the other one is real."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    by_hand = _MemberByHand(Coordinator(open_transport(redis_url), group))
    other = open_transport(redis_url)
    grants = _Grants()
    engine = Engine(Coordinator(other, group), grants, SETTINGS, MemberSettings())
    engine.start()
    delays = []
    for item in by_hand.surplus():
        began = time.monotonic_ns()
        by_hand.ask(Release((item,)))
        delays.append((grants.wait_for(item.resource) - began) / 1e6)
    engine.post(ev.StopAsked())
    engine.wait_left(5)
    other.close()
    by_hand.close()
    return statistics.median(delays)


class _MemberByHand:
    """A member without an engine."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self._number = coordinator, 0
        self._reply: CoordinatorReply | None = None
        self._heard: list[Change] = []
        coordinator.create(SETTINGS)
        self.ask(Join(settings=SETTINGS))
        self._declare([f"r{number:04}" for number in range(RESOURCES)])
        self._hear("hold", RESOURCES)  # what it has not heard of would be withdrawn from it, not asked back

    def _declare(self, names: list[str]) -> None:
        after, result = "", "NEXT"
        while result == "NEXT":
            rest = tuple(name for name in names if name > after)
            result, *further = self.ask(SetResources(version=1, digest="bench", after=after, names=rest)).results
            after = further[0] if further else ""

    def ask(self, payload: object) -> CoordinatorReply:
        last, self._number = self._reply, self._number + 1
        header = Header("by-hand", self._number, *((last.incarnation, last.version, last.cursor) if last else ()))
        self._reply = reply = self._coordinator.execute(Request(header, payload))  # type: ignore[arg-type]
        self._heard += reply.changes
        return reply

    def surplus(self) -> list[ReleaseItem]:
        """What is revoked once the other one has joined."""
        return [ReleaseItem(resource=name, token=token) for name, token in self._hear("revoke", RESOURCES // 2).items()]

    def _hear(self, kind: str, count: int) -> dict[str, int]:
        """The tokens of this many resources, by name, once they have changed like that."""
        heard = {change.resource: change.token for change in self._heard if change.kind == kind}
        while len(heard) < count:
            self.ask(Heartbeat())
            heard |= {change.resource: change.token for change in self._heard if change.kind == kind}
        return heard

    def close(self) -> None:
        self._coordinator.transport.close()


class _Grants:
    """Work that only notes when it could have begun."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._changed = threading.Condition()

    def wait_for(self, resource: str) -> int:
        with self._changed:
            if not self._changed.wait_for(lambda: resource in self._at, timeout=30):
                raise TimeoutError(f"{resource} was not granted within 30 s")
            return self._at[resource]

    def begin(self, resource: str, token: int, committed: int | None, tries: int = 0) -> None:
        del token, committed, tries
        with self._changed:
            self._at[resource] = time.monotonic_ns()
            self._changed.notify()

    def drain(self, resource: str, token: int, abort_in_ms: int) -> None: ...

    def hasten(self, resource: str, token: int, abort_in_ms: int) -> None: ...

    def keep(self, resource: str, token: int) -> None: ...

    def abort(self, resource: str, token: int, reason: act.AbortReason) -> None: ...

    def commit_done(self, ticket: int, outcome: ev.CommitOutcome) -> None: ...

    def joined(self, member: str) -> None: ...

    def problem(self, problem: act.Problem) -> None: ...

    def left(self) -> None: ...

    def sample(self) -> Iterable[ev.Sample]:
        return ()

    def settings_read(self, settings: GroupSettings) -> None: ...

    def in_flight(self) -> str:
        return ""

    def flush(self) -> None: ...
