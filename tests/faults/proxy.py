"""A TCP proxy that misbehaves on demand: delay, a black hole in either direction, RST, a cut in the middle of a
message.

It runs on a thread of its own, so that plain tests and a supervisor of processes use it alike: every method may be
called from any thread, and has taken effect when it returns. A black hole holds bytes back and loses none, as TCP does
when packets are dropped for a while; what `heal` releases then arrives late, and in order.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

HOST = "127.0.0.1"

Direction = Literal["to_server", "to_client"]
BOTH: tuple[Direction, Direction] = ("to_server", "to_client")

_CHUNK = 65_536
_RST_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, with no time: close() sends RST.
_ANSWER_S = 10.0
_TURNS = 10
"""Of the loop: asyncio takes fewer to hand over a connection that it has accepted, and to close one."""

T = TypeVar("T")


class FaultProxy:
    """Listens on a free port of this machine and passes every connection on to a server there."""

    def __init__(self, server_port: int) -> None:
        """Starts it, without faults."""
        self._server_port = server_port
        self._loop = asyncio.new_event_loop()
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._delay_s = dict.fromkeys(BOTH, 0.0)
        self._flowing = {direction: asyncio.Event() for direction in BOTH}
        self._server: asyncio.Server | None = None
        self._socket = _bound(0)
        self._budget: tuple[Direction, int] | None = None
        self._loses_farewells = False
        self._bytes_per_s = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        self.port: int = self._socket.getsockname()[1]
        """The port where clients connect."""
        self.heal()

    def through(self, url: str) -> str:
        """Returns the URL with this proxy's port in place of the server's."""
        return url.replace(f":{self._server_port}", f":{self.port}")

    def lead_to(self, server_port: int) -> None:
        """Passes new connections on to another server, as a name does that was given to it. Open ones stay where they are."""
        self._do(lambda: setattr(self, "_server_port", server_port))

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return self._do(lambda: len(self._links))

    def delay(self, ms: float, *directions: Direction) -> None:
        """Delays every byte by this much from now on; order is kept."""
        self._do(lambda: self._delay_s.update(dict.fromkeys(directions or BOTH, ms / 1000)))

    def black_hole(self, *directions: Direction) -> None:
        """Lets nothing through any more, in this direction or both, without any sign to the ends."""
        self._do(lambda: self._stop_flowing(directions or BOTH))

    def pace(self, bytes_per_s: int) -> None:
        """Lets no more through on new connections, in either direction; and little waits on the way."""
        self._do(lambda: self._limit(bytes_per_s))

    def lose_farewells(self) -> None:
        """When the server ends a connection, lets nothing through to clients any more: they do not learn of it."""
        self._do(lambda: setattr(self, "_loses_farewells", True))

    def heal(self) -> None:
        """Ends every black hole, delay, cut and refusal. What was held back arrives."""
        self._do(self._heal)
        self._wait(self._listen())

    def refuse(self) -> None:
        """Stops listening, as when a server is down; open connections stay."""
        self._wait(self._stop_listening())

    def reset(self) -> None:
        """Sends RST to both ends of every connection."""
        self._do(self._reset)

    def cut_after(self, count: int, direction: Direction = "to_server") -> None:
        """Resets each connection, open or new, after this many more bytes: most likely in the middle of a message."""
        self._do(lambda: self._cut_after(count, direction))

    def close(self) -> None:
        """Ends every connection and the thread."""
        if self._loop.is_closed():
            return
        self.refuse()
        self.reset()
        self._wait(self._finish_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_S)
        self._loop.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Everything below runs on the proxy's thread, except the entry points.

    def _do(self, change: Callable[[], T]) -> T:
        async def run() -> T:
            return change()

        return self._wait(run())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_S)

    async def _finish_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await _take_turns()  # lets closed connections disappear

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, sock=self._socket)

    async def _stop_listening(self) -> None:
        """A connection that is being handed over when its server is closed would never be closed itself."""
        if self._server is not None:
            server, self._server = self._server, None
            for it in server.sockets:
                self._loop.remove_reader(it.fileno())
            await _take_turns()
            server.close()
            self._socket = _bound(self.port)

    def _limit(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        for it in self._server.sockets if self._server is not None else ():
            it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)

    def _heal(self) -> None:
        self._budget, self._loses_farewells = None, False
        for direction in BOTH:
            self._delay_s[direction] = 0.0
            self._flowing[direction].set()
        for link in self._links:
            link.budgets.clear()

    def _stop_flowing(self, directions: tuple[Direction, ...]) -> None:
        for direction in directions:
            self._flowing[direction].clear()

    def _reset(self) -> None:
        for link in tuple(self._links):
            link.reset()

    def _cut_after(self, count: int, direction: Direction) -> None:
        self._budget = direction, count
        for link in self._links:
            link.budgets[direction] = count

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A task that is cancelled before it begins closes nothing."""
        task = self._loop.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(HOST, self._server_port)
        except (OSError, asyncio.CancelledError):
            _reset(writer)
            return
        link = _Link(writer, to_server)
        if self._budget is not None:
            link.budgets.update([self._budget])
        self._links.add(link)
        try:
            with suppress(asyncio.CancelledError):  # by `close`
                await asyncio.gather(
                    self._pump(link, reader, to_server, "to_server"), self._pump(link, from_server, writer, "to_client")
                )
        finally:
            link.close()
            self._links.discard(link)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Reading continues while bytes are delayed, so that a delay adds latency and does not limit throughput."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.create_task(self._send(link, queue, writer, direction))
        data = b"-"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                link.reset()
                data = b""
            if not data and direction == "to_client" and self._loses_farewells:
                self._stop_flowing((direction,))
            queue.put_nowait((self._loop.time() + self._delay_s[direction], data))
            if self._bytes_per_s:
                await asyncio.sleep(len(data) / self._bytes_per_s)
        await sender

    async def _send(
        self,
        link: _Link,
        queue: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        direction: Direction,
    ) -> None:
        while (item := await queue.get())[1]:
            due, data = item
            await asyncio.sleep(due - self._loop.time())
            await self._flowing[direction].wait()
            if writer.is_closing():
                continue
            with suppress(OSError):
                writer.write(link.spend(direction, data))
                await writer.drain()
            if link.budgets.get(direction) == 0:
                link.reset()
        await self._flowing[direction].wait()  # in a black hole no end learns that the other has hung up
        with suppress(OSError):
            writer.write_eof()


class _Link:
    """The two ends of a connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._ends = (client, server)
        self.budgets: dict[Direction, int] = {}
        """Bytes that may still pass before the link is cut; without an entry, any number."""

    def spend(self, direction: Direction, data: bytes) -> bytes:
        left = self.budgets.get(direction)
        if left is None:
            return data
        self.budgets[direction] = max(0, left - len(data))
        return data[:left]

    def reset(self) -> None:
        for end in self._ends:
            _reset(end)

    def close(self) -> None:
        for end in self._ends:
            end.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    writer.transport.abort()


def _bound(port: int) -> socket.socket:
    """Returns a socket that has the port (0: a free one) and refuses connections until it listens. Nobody else gets it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # its last connections may not have ended yet
    held.bind((HOST, port))
    return held


async def _take_turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def proxy_to(url: str) -> FaultProxy:
    """A proxy in front of a server."""
    port = urlsplit(url).port
    assert port is not None
    return FaultProxy(port)


@contextmanager
def black_holes(count: int, server_port: int) -> Iterator[list[int]]:
    """The ports of this many addresses that accept connections and then say nothing."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(FaultProxy(server_port)) for _ in range(count)]
        for proxy in proxies:
            proxy.black_hole()
        yield [proxy.port for proxy in proxies]
