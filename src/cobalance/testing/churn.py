"""A group in memory whose members come and go on demand."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Unpack, overload

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.memory.store import MemoryStore, real_clock_us
from cobalance.coordinator.transport import Script
from cobalance.errors import UnknownGroup, UsageError
from cobalance.group.group import Group
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.settings import GroupSettings, MemberSettings
from cobalance.testing.member import Member, connection_name
from cobalance.testing.transport import OwnTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.group.group import GroupOptions
    from cobalance.group.membership import Work
    from cobalance.rabbitmq.consume.consumer_options import ConsumerOptions, ConsumerSource
    from cobalance.rabbitmq.consume.handlers import BatchHandler, Handler
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.testing.broker import Broker

SETTINGS = GroupSettings(
    session_timeout_ms=3_000, heartbeat_interval_ms=200, revocation_timeout_ms=10_000, rejoin_grace_ms=0, gather_ms=0
)
"""Tests never wait for a session timeout: crashed members are expired at once."""

OWN = MemberSettings(drain_timeout_ms=5_000)

_EXPIRE = Script.of(
    "expire",
    "local field = 'r:' .. ARGV[1] local vitals = redis.call('HGET', KEYS[1], field) "
    "if vitals then redis.call('HSET', KEYS[1], field, string.match(vitals, '^%d+') .. ' 0') "
    "redis.call('ZADD', KEYS[2], '0', 's:' .. ARGV[1]) end",
)
"""Sets the end of the member's session to a time in the past."""


SERVERS = ("amqp_url", "management_url", "redis_url", "transport", "key_prefix")


class Churn:
    """The members of one group, each with its own event loop and connections, all in this process."""

    def __init__(self, name: str, broker: Broker) -> None:
        self.name, self.broker = name, broker
        self.members: list[Member] = []
        self._ahead_us = 0
        self._store = MemoryStore(clock_us=lambda: real_clock_us() + self._ahead_us)
        self._coordinator = Coordinator(OwnTransport(self._store), name)
        self._coordinator.create(SETTINGS)

    @overload
    def join(
        self, source: ConsumerSource, handler: Handler, *, batch: None = None, **options: Unpack[ConsumerOptions]
    ) -> Member: ...

    @overload
    def join(
        self, source: ConsumerSource, handler: BatchHandler, *, batch: Batch, **options: Unpack[ConsumerOptions]
    ) -> Member: ...

    def join(self, source: ConsumerSource, handler: Callable[..., Any], **options: Any) -> Member:
        """Starts a member that consumes, with the options of :class:`cobalance.ConsumerGroup`. Returns once it has
        joined.

        Raises:
            UsageError: an option says where the servers are, which this group knows.
        """
        _check_options(options)
        return self.enter(lambda **own: ConsumerGroup(self.name, source, handler, **{**own, **options}))

    def join_resources(
        self, resources: Iterable[str], *, work: Work | None = None, **options: Unpack[GroupOptions]
    ) -> Member:
        """Starts a member that works these resources, with the options of :class:`cobalance.Group`. Returns once it
        has joined.

        Raises:
            UsageError: an option says where the servers are, which this group knows.
        """
        _check_options(options)

        def make(**own: Any) -> Group:
            del own["amqp_url"]
            return Group(self.name, resources, work=work, **{**own, **options})

        return self.enter(make)

    def enter(self, make: Callable[..., Group]) -> Member:
        """Starts a member of a group that the caller makes: ``make(amqp_url=…, transport=…, settings=…, member=…)``."""
        transport = OwnTransport(self._store)
        group = make(amqp_url=self.broker.url, transport=transport, settings=SETTINGS, member=OWN)
        if group.name != self.name:
            raise UsageError(f"this is group {self.name!r}: make the group with that name, not {group.name!r}")
        member = Member(group, transport)
        member.start()
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        """Leaves gracefully: drains, hands over and ends."""
        self._remove(member)
        member.stop()

    def crash(self, member: Member) -> None:
        """Ends the member without leaving, and expires its session at once."""
        self._remove(member)
        self._cut_off(member)
        member.die()
        self._end_session(member.id)

    def hang(self, member: Member) -> None:
        """Cuts the member off from both servers and expires its session; its handlers go on."""
        self._check(member)
        self._cut_off(member)
        self._end_session(member.id)

    def wake(self, member: Member) -> None:
        """Ends :meth:`hang`: the member notices what it has lost and joins again."""
        self._check(member)
        if name := connection_name(member.group):
            self.broker.let_in(name)
        member.transport.is_cut = False

    def expire(self, member: Member) -> None:
        """Expires the session of a live member, which learns of it with its next heartbeat and joins again."""
        self._check(member)
        hangs, member.transport.is_cut = member.transport.is_cut, True
        self._end_session(member.id)
        member.transport.is_cut = hangs

    def lose_redis(self) -> None:
        """Empties Redis. Returns when the members have joined again and reclaimed what they hold. Those that hang, or have
        failed, are not awaited: if all of them do, Redis stays empty until one wakes.
        """
        self._store.flush()
        self._store.identity = secrets.token_hex(20)
        self.until(lambda: self._present() >= {it.id for it in self._living()})
        if self._living():
            self.advance(SETTINGS.session_timeout_ms)  # Redis waits this long for other members
            self.until(lambda: self._coordinator.state()["recovering"] == "0")

    def advance(self, ms: int) -> None:
        """Advances Redis's clock, as if everyone had slept: timeouts fire, and live members get a chance to report."""
        self._ahead_us += ms * 1_000
        with suppress(UnknownGroup):
            self._coordinator.tick()

    def _living(self) -> list[Member]:
        return [it for it in self.members if not it.transport.is_cut and it.group.failed is None]

    def _present(self) -> set[str]:
        with suppress(UnknownGroup):
            return {it.id for it in self._coordinator.members()}
        return set()

    def committed(self) -> dict[str, int | None]:
        """The committed offsets by resource."""
        with suppress(UnknownGroup):
            return {row.name: row.committed for row in self._coordinator.resources()}
        return {}

    def until(self, condition: Callable[[], object], within_s: float = 20.0) -> None:
        """Waits until the condition is true.

        Raises:
            TimeoutError: it was not true in time.
        """
        give_up_at = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{getattr(condition, '__name__', condition)} was not true within {within_s} s")
            time.sleep(0.005)

    def close(self) -> None:
        """Makes all members leave. Then raises what ended a member; if it ended several, the others are the context."""
        with ExitStack() as leaving:  # all of it is carried out, whatever raises
            for member in self.members:
                leaving.callback(self.leave, member)

    def _check(self, member: Member) -> None:
        if member not in self.members:
            raise UsageError("this member has left, or crashed, before: give one that join() has returned since")

    def _remove(self, member: Member) -> None:
        self._check(member)
        self.members.remove(member)

    def _cut_off(self, member: Member) -> None:
        member.transport.is_cut = True
        if name := connection_name(member.group):
            self.broker.shut_out(name)

    def _end_session(self, member: str) -> None:
        keys = dict(
            zip(
                ("state", "timers"),
                (it for it in group_keys(self.name) if it.endswith((":state", ":timers"))),
                strict=True,
            )
        )
        self._store.run(_EXPIRE, [keys["state"], keys["timers"]], [member])
        while member in self._present():
            self._coordinator.tick()


def _check_options(options: Iterable[str]) -> None:
    for name in options:
        if name in SERVERS:
            raise UsageError(f"leave {name} out: the members of this group share its servers in memory")
