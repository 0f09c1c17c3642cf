"""An exchange: its declaration, its bindings, and which queues a routing key leads to."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.rabbitmq.memory.refusal import described, inequivalent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ALTERNATE = "alternate-exchange"


def _matches_topic(pattern: str, routing_key: str | bytes) -> bool:
    """Whether a key has the pattern's words, where ``*`` is any word, and ``#`` any number of them."""
    if isinstance(routing_key, bytes):  # as pika has it if it is not UTF-8, which no pattern is
        routing_key = routing_key.decode(errors="surrogateescape")
    words, keys = pattern.split("."), routing_key.split(".")

    def match(at: int, key: int) -> bool:
        if at == len(words):
            return key == len(keys)
        if words[at] == "#":
            return any(match(at + 1, it) for it in range(key, len(keys) + 1))
        return key < len(keys) and words[at] in {"*", keys[key]} and match(at + 1, key + 1)

    return match(0, 0)


MATCHES: dict[str, Callable[[str, str | bytes], bool]] = {
    "direct": operator.eq,
    "fanout": lambda _, __: True,
    "topic": _matches_topic,
}
"""Exchange type → whether a binding's key matches a routing key."""


@attrs.define(eq=False)
class Exchange:
    """An exchange."""

    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    bindings: list[tuple[str, str]] = attrs.field(factory=list)
    """Pairs of binding key and queue, each once."""
    onward: list[tuple[str, str]] = attrs.field(factory=list)
    """Pairs of binding key and exchange, each once."""

    def queues_for(self, routing_key: str) -> Iterator[str]:
        """The queues that this routing key leads to, each once."""
        matches = MATCHES[self.kind]
        yield from dict.fromkeys(queue for key, queue in self.bindings if matches(key, routing_key))

    def exchanges_for(self, routing_key: str) -> Iterator[str]:
        """The exchanges that this routing key leads to, each once."""
        matches = MATCHES[self.kind]
        yield from dict.fromkeys(name for key, name in self.onward if matches(key, routing_key))

    def check(self, asked: Exchange) -> None:
        """Refuses a declaration that differs. RabbitMQ does not compare other arguments."""
        if asked.kind != self.kind:
            raise self._inequivalent("type", f"'{asked.kind}'", f"'{self.kind}'")
        for name in ("durable", "auto_delete", "internal"):
            received, current = getattr(asked, name), getattr(self, name)
            if received != current:
                raise self._inequivalent(name, f"'{str(received).lower()}'", f"'{str(current).lower()}'")
        received, current = asked.arguments.get(ALTERNATE), self.arguments.get(ALTERNATE)
        if received != current:
            raise self._inequivalent(ALTERNATE, described(received), described(current))

    def _inequivalent(self, argument: str, received: str, current: str) -> Exception:
        return inequivalent(argument, f"exchange '{self.name}'", received, current)
