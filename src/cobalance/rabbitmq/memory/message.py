"""A message in a queue, and how RabbitMQ describes the death of one."""

from __future__ import annotations

import re
from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.rabbitmq.memory.refusal import precondition_failed
from cobalance.redact import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pika.spec import BasicProperties

MOST_EXPIRATION_MS = 315_360_000_000
"""Ten years."""

_INTEGER = re.compile(r"([+-]?[0-9]+)(.*)")


@attrs.define(eq=False)
class Message:
    """A message in a queue."""

    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes
    place: tuple[bool, int] = (True, 0)
    """It comes before the messages with a greater one."""
    redelivered: bool = False
    returns: int = 0
    expires_at_ms: float | None = None
    offset: int = 0
    """Its offset in a stream."""
    written_at_s: float = 0.0
    """When it was appended to a stream, in seconds since 1970."""

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.properties.headers or {}

    @property
    def deaths(self) -> list[Mapping[str, Any]]:
        """Where it was dead-lettered before, latest first."""
        found = self.headers.get("x-death")
        return [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []

    def expiration_ms(self) -> int | None:
        """After how long the publisher lets it expire."""
        given = self.properties.expiration
        if given is None:
            return None
        number = _INTEGER.match(printable(given))
        if number is None:
            why = "no_integer"
        elif number[2]:
            why = f'{{leftover_string,"{number[2]}"}}'
        elif not 0 <= (found := int(number[1])) <= MOST_EXPIRATION_MS:
            why = f"{{{'value_negative' if found < 0 else 'value_too_large'},{found}}}"
        else:
            return found
        raise precondition_failed(f"invalid expiration '{printable(given)}': {why}")

    def check(self, user: str) -> None:
        """Refuses what RabbitMQ does not take from this user."""
        properties = self.properties
        if properties.user_id not in {None, user}:
            said = printable(properties.user_id)
            raise precondition_failed(f"user_id property set to '{said}' but authenticated user was '{user}'")
        self.expiration_ms()
        if properties.delivery_mode not in {None, 1, 2}:
            raise precondition_failed(f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}")

    def with_headers(self, more: Mapping[str, Any]) -> BasicProperties:
        """Its properties with these headers added."""
        properties = copy(self.properties)
        properties.headers = {**self.headers, **more}
        return properties

    def dead(self, queue: str, reason: str, time_s: float) -> BasicProperties:
        """Its properties once it has died in that queue."""
        same = [it for it in self.deaths if (it.get("queue"), it.get("reason")) == (queue, reason)]
        death = {
            "reason": reason,
            "queue": queue,
            "time": datetime.fromtimestamp(int(time_s), UTC),
            "exchange": self.exchange,
            "routing-keys": [self.routing_key],
        }
        if self.properties.expiration is not None:
            death["original-expiration"] = self.properties.expiration
        count = 1 + sum(it.get("count", 0) for it in same)
        latest = {**death, **(same[0] if same else {}), "count": count}
        first = {f"x-first-death-{it}": death[it] for it in ("exchange", "queue", "reason")}
        earlier = [it for it in self.deaths if it not in same]
        properties = self.with_headers({**first, **self.headers, "x-death": [latest, *earlier]})
        properties.expiration = None
        return properties

    def would_circle(self, queue: str) -> bool:
        """Whether it has come from this queue by itself, without any consumer rejecting it."""
        queues = [it.get("queue") for it in self.deaths]
        return queue in queues and all(it.get("reason") != "rejected" for it in self.deaths[: queues.index(queue) + 1])
