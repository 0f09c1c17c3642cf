"""The broker behind one name: its thread, its port, and access for tests."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from cobalance.rabbitmq.memory.broker import MemoryBroker
from cobalance.rabbitmq.memory.clock import Clock
from cobalance.rabbitmq.memory.connection import MemoryConnection

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_brokers: dict[str, MemoryRabbitMQ] = {}
_brokers_lock = threading.Lock()


class MemoryRabbitMQ:
    """Listens on a free local port until it is closed, or the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.broker = MemoryBroker(Clock(self._loop))
        self._connections: set[MemoryConnection] = set()
        listening: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name="cobalance-memory-rabbitmq", daemon=True
        )
        self._thread.start()
        self.port = listening.result()

    @classmethod
    def named(cls, name: str) -> MemoryRabbitMQ:
        """The broker with this name in this process; it is created on first use."""
        with _brokers_lock:
            if name not in _brokers:
                _brokers[name] = cls()
            return _brokers[name]

    @property
    def url(self) -> str:
        """The AMQP URL it listens on."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def close(self) -> None:
        """Drops all connections, and forgets what it holds. The next use of its name creates an empty one."""
        with _brokers_lock:
            for name in [name for name, it in _brokers.items() if it is self]:
                del _brokers[name]
        with suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def call(self, do: Callable[[MemoryBroker], T]) -> T:
        """Inspects or changes the broker between two methods of its clients. Any thread."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(do(self.broker))
            except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result()

    def shut_out(self, name: str) -> None:
        """Drops the connections with this name without closing them, and refuses new ones."""

        def shut_out(broker: MemoryBroker) -> None:
            broker.shut_out.add(name)
            for connection in [it for it in self._connections if it.name == name]:
                connection.cut()

        self.call(shut_out)

    def let_in(self, name: str) -> None:
        """Undoes `shut_out`."""
        self.call(lambda broker: broker.shut_out.discard(name))

    def advance(self, ms: float) -> None:
        """Lets time pass for the broker, whose clock alone goes ahead: messages and queues expire, for example."""
        self.call(lambda broker: broker.clock.advance(ms))

    def _run(self, listening: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        serve = self._loop.create_server(lambda: MemoryConnection(self.broker, self._connections), "127.0.0.1", 0)
        try:
            server = self._loop.run_until_complete(serve)
        except BaseException as error:  # noqa: BLE001 -- no descriptor to spare, say; raised where it is waited for
            self._loop.close()
            listening.set_exception(error)
            return
        listening.set_result(server.sockets[0].getsockname()[1])
        self._loop.run_forever()
        self._loop.run_until_complete(self._end(server))
        self._loop.close()

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        await asyncio.sleep(0)  # what was accepted is a connection now
        for connection in list(self._connections):
            connection.cut()
        await asyncio.sleep(0)  # they end
        await server.wait_closed()
