"""Queues declared by others, found through the management API, since AMQP cannot list anything."""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import CobalanceError, UsageError
from cobalance.names import validate_name
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.layouts import Look
from cobalance.rabbitmq.topics.management import bound_queues, message_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cobalance.coordinator.client import ResourceRow
    from cobalance.rabbitmq.topics.queue_state import QueueState

log = logging.getLogger("cobalance.rabbitmq")

ASK_S = 10.0
"""How long a look goes on asking about queues, and how long it then waits for the last answer."""

OURS = re.compile(r"last-will .*|last-wills\..*|lock\.(.* .*|[0-9a-f]{64})")
"""The queues that members have for themselves: `consume/last_will.py` and `wire/lock_queue.py`."""


@attrs.frozen
class BoundQueues:
    """The queues bound to an exchange, such as a consistent-hash or a modulus-hash one.

    A queue that is unbound is consumed until it is empty, then given up. The exchange decides where a key's messages go
    while bindings change, so their order is not kept. A :class:`Topic` keeps it when it is grown.
    """

    exchange: str

    def among(self, names: Iterable[str], amqp_url: str, management_url: str | None) -> set[str]:
        """Those of the names that are bound to the exchange."""
        return set(names) & bound_queues(amqp_url, self.exchange, management_url)

    def __str__(self) -> str:
        return f"bound to exchange {self.exchange}"


def _valid_pattern(_: object, __: object, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(f"{value!r} is not a regular expression: {error}") from None


@attrs.frozen
class MatchingQueues:
    """The queues of the virtual host whose whole name matches a regular expression, such as `orders-[0-9]+`."""

    pattern: str = attrs.field(validator=_valid_pattern)

    def among(self, names: Iterable[str], amqp_url: str, management_url: str | None) -> set[str]:
        """Those of the names that match."""
        del amqp_url, management_url
        return {name for name in names if re.fullmatch(self.pattern, name)}

    def __str__(self) -> str:
        return f"matching {self.pattern}"


class ManagedSource:
    """Finds queues through the management API.

    A missing queue may be back a moment later, so it must be missing twice to be removed; and one that has messages is
    consumed until it is empty. The API's counts lag, and a queue is on none of its pages if others before it are deleted
    meanwhile; so RabbitMQ itself is asked before a queue is let go, and again afterwards, until its holder has gone: it
    may have returned some messages. What comes later is of somebody else.
    """

    def __init__(self, wanted: BoundQueues | MatchingQueues, amqp_url: str, management_url: str | None) -> None:
        self._wanted, self._amqp_url, self._management_url = wanted, amqp_url, management_url
        self._missing: set[str] = set()
        self._let_go: set[str] = set()
        self._warned_of: set[str] = set()
        self._is_empty = False
        """Whether the last look found none, which has been logged."""

    def find(self) -> set[str]:
        """The matching queues that exist now. Blocks; raises if the management API cannot be asked."""
        return self._nameable(self._wanted.among(self._counts(), self._amqp_url, self._management_url))

    def look(self, listed: Mapping[str, ResourceRow]) -> Look:
        """What to consume now, given the group's resources. Blocks; raises as :meth:`find`."""
        counts = self._counts()
        wanted = self._nameable(self._wanted.among({*counts, *listed}, self._amqp_url, self._management_url))
        found = wanted & counts.keys()
        was_empty, self._is_empty = self._is_empty, not found
        if not found:
            if not was_empty:
                log.warning("there are no queues %s; what is consumed stays as it is", self._wanted)
            return Look(None)
        gone = {name for name, row in listed.items() if name not in found and not row.removing}
        uncounted = {name for name in gone if not counts.get(name, 0)}
        states = self._states(uncounted | self._let_go)
        there = {name: state for name, state in states.items() if state is not None}
        found |= wanted & there.keys()
        held_back = {name for name, it in there.items() if it.ready and (name in listed or not it.consumers)}
        unfinished = (gone - uncounted) | (uncounted - states.keys()) | held_back
        missing = gone - unfinished - found
        kept, self._missing = missing - self._missing, missing
        released = states.keys() - listed.keys() - held_back - {name for name, it in there.items() if it.consumers}
        self._let_go = ((self._let_go - released) | (missing & there.keys())) - found - kept
        return Look(tuple(sorted(found | unfinished | kept)))

    def _states(self, names: set[str]) -> dict[str, QueueState | None]:
        """As RabbitMQ has them, None where there is none; without those of which it says nothing in time."""
        states: dict[str, QueueState | None] = {}
        until = time.monotonic() + ASK_S
        if names:
            with connected(self._amqp_url, give_up_at=until + ASK_S) as admin:
                for name in names:
                    if time.monotonic() >= until:
                        break
                    with suppress(CobalanceError):
                        states[name] = admin.state(name)
        return states

    def _counts(self) -> dict[str, int]:
        return message_counts(self._amqp_url, self._management_url)

    def _nameable(self, names: set[str]) -> set[str]:
        unnameable = set()
        names = {name for name in names if not OURS.fullmatch(name)}
        for name in names:
            try:
                validate_name("queue", name)
            except UsageError as error:
                unnameable.add(name)
                if name not in self._warned_of:
                    log.warning("a queue is left out. %s", error)
        self._warned_of = unnameable
        return names - unnameable
