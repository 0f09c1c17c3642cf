"""The methods that declare and delete exchanges, queues and bindings."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from pika.spec import Exchange, Queue

from cobalance.rabbitmq.memory.exchanges import Exchange as Exchanged
from cobalance.rabbitmq.memory.queue import Declaration

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.rabbitmq.memory.broker import MemoryBroker


class Declarations:
    """The exchanges and queues as one connection sees them."""

    def __init__(self, broker: MemoryBroker, connection: object) -> None:
        self._broker, self._connection = broker, connection
        self.methods: dict[type, Callable[[Any], object]] = {
            Exchange.Declare: self._declare_exchange,
            Exchange.Delete: self._delete_exchange,
            Exchange.Bind: self._bind_exchange,
            Exchange.Unbind: self._unbind_exchange,
            Queue.Declare: self._declare_queue,
            Queue.Delete: self._delete_queue,
            Queue.Purge: self._purge,
            Queue.Bind: self._bind,
            Queue.Unbind: self._unbind,
        }
        """What answers each method."""

    def _declare_exchange(self, method: Exchange.Declare) -> object:
        name = method.exchange or ""
        if method.passive:
            self._broker.find_exchange(name)
        else:
            flags = bool(method.durable), bool(method.auto_delete), bool(method.internal)
            self._broker.declare_exchange(Exchanged(name, str(method.type), *flags, arguments=method.arguments or {}))
        return Exchange.DeclareOk()

    def _delete_exchange(self, method: Exchange.Delete) -> object:
        self._broker.delete_exchange(method.exchange or "", if_unused=bool(method.if_unused))
        return Exchange.DeleteOk()

    def _bind_exchange(self, method: Exchange.Bind) -> object:
        self._broker.bind_exchange(method.destination or "", method.source or "", method.routing_key or "")
        return Exchange.BindOk()

    def _unbind_exchange(self, method: Exchange.Unbind) -> object:
        self._broker.unbind_exchange(method.destination or "", method.source or "", method.routing_key or "")
        return Exchange.UnbindOk()

    def _declare_queue(self, method: Queue.Declare) -> object:
        name = method.queue or f"amq.gen-{secrets.token_urlsafe(16)}"
        if method.passive:
            queue = self._broker.find(name, self._connection)
        else:
            asked = Declaration(
                name,
                method.arguments or {},
                durable=bool(method.durable),
                auto_delete=bool(method.auto_delete),
                owner=self._connection if method.exclusive else None,
            )
            queue = self._broker.declare_queue(asked) if method.queue else self._broker.add_queue(asked)
        return Queue.DeclareOk(name, len(queue.contents), len(queue.consumers))

    def _delete_queue(self, method: Queue.Delete) -> object:
        asked = {"if_unused": bool(method.if_unused), "if_empty": bool(method.if_empty)}
        return Queue.DeleteOk(self._broker.delete_queue(method.queue or "", self._connection, **asked))

    def _purge(self, method: Queue.Purge) -> object:
        return Queue.PurgeOk(self._broker.find(method.queue or "", self._connection).purge())

    def _bind(self, method: Queue.Bind) -> object:
        binding = method.queue or "", method.exchange or "", method.routing_key or ""
        self._broker.bind(*binding, self._connection)
        return Queue.BindOk()

    def _unbind(self, method: Queue.Unbind) -> object:
        self._broker.unbind(method.queue or "", method.exchange or "", method.routing_key or "")
        return Queue.UnbindOk()
