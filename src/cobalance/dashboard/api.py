"""The JSON API that the pages use, under ``/api/v1``. It only reads.

Names may have slashes, so they come percent-encoded, and a path is taken apart before it is decoded.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import unquote

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cobalance.dashboard.feed import FRESH_S, Feed
from cobalance.dashboard.feeds import Feeds
from cobalance.dashboard.member import member_answer
from cobalance.dashboard.timeline import history, timeline
from cobalance.dashboard.tuning import tuning_answer
from cobalance.dashboard.values import plain, text
from cobalance.errors import CobalanceError, UsageError
from cobalance.operate.http_listener import status_of
from cobalance.redact import redact
from cobalance.threads.worker_threads import WorkerThreads

T = TypeVar("T")

Answers = Callable[[Request], Awaitable[Response]]

HOUR_MS = 3_600_000

COMPRESSION = 4
"""A fast level, since answers are made for each browser."""


class Api:
    """The answers. What waits for Redis does so in threads."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds, self._threads = feeds, WorkerThreads()

    def routes(self) -> list[Route]:
        """Path → answer."""
        found: dict[str, Answers] = {
            "/api/v1/groups": self._groups,
            "/api/v1/events": self._overview_events,
            "/api/v1/groups/{group}": self._group,
            "/api/v1/groups/{group}/events": self._events,
            "/api/v1/groups/{group}/handovers": self._handovers,
            "/api/v1/groups/{group}/partitions/{partition}": self._partition,
            "/api/v1/groups/{group}/members/{member}": self._member,
            "/api/v1/groups/{group}/tuning": self._tuning,
            "/api/v1/topics": self._topics,
            "/api/v1/topics/events": self._topics_events,
            "/api/v1/status": self._status,
        }
        return [Route(path, answering(answer)) for path, answer in found.items()]

    async def _groups(self, _: Request) -> Response:
        return answer_json(await self._threads.run(self._feeds.overview.groups))

    async def _group(self, request: Request) -> Response:
        """The snapshot as Python has it, and why the group is as it is."""
        feed = await self._feed(request)
        view = await self._threads.run(feed.look)
        return answer_json(plain(view.group) | {"sentences": view.sentences})

    async def _handovers(self, request: Request) -> Response:
        feed = await self._feed(request)
        now_ms = (await self._threads.run(feed.glance)).group.at_ms
        to_ms = _number(request, "to_ms", now_ms)
        from_ms, after_seq = _number(request, "from_ms", to_ms - HOUR_MS), _number(request, "after_seq", 0)

        def read() -> dict[str, Any]:
            with feed.past.lock:
                return timeline(feed.past, from_ms, to_ms, after_seq) | {"now_ms": now_ms}

        return answer_json(await self._threads.run(read))

    async def _partition(self, request: Request) -> Response:
        feed, name = await self._feed(request), name_in(request, "partition")

        def read() -> dict[str, Any]:
            sentences, view = feed.explain(name), feed.look()
            with feed.past.lock:
                past = history(feed.past, name)
            return {"at_ms": view.group.at_ms, "partition": view.rows[name][1], "sentences": sentences, "history": past}

        return answer_json(await self._threads.run(read))

    async def _member(self, request: Request) -> Response:
        feed, name = await self._feed(request), name_in(request, "member")

        def read() -> dict[str, Any]:
            view = feed.look()
            with feed.past.lock:
                return member_answer(view, feed.past, name)

        return answer_json(await self._threads.run(read))

    async def _tuning(self, request: Request) -> Response:
        feed = await self._feed(request)

        def read() -> dict[str, Any]:
            group, tuned = feed.look().group, feed.tuned()
            with feed.past.lock:
                return tuning_answer(group, feed.past, tuned)

        return answer_json(await self._threads.run(read))

    async def _topics(self, _: Request) -> Response:
        return answer_json(await self._threads.run(self._feeds.overview.topics))

    async def _status(self, _: Request) -> Response:
        return answer_json(await self._threads.run(self._feeds.status.look))

    async def _events(self, request: Request) -> Response:
        feed = await self._feed(request)
        first = await self._threads.run(feed.glance)  # a group that is gone is no stream that breaks

        async def look() -> AsyncIterator[dict[str, Any] | None]:
            yield first.since(0)
            number = first.number
            while True:
                view = feed.fresh
                if view is None:
                    view = await self._threads.run(feed.look)
                yield view.since(number) if view.number != number else None
                number = view.number

        return self._stream(request, look(), first_pause_s=0)

    async def _overview_events(self, request: Request) -> Response:
        return self._stream(request, self._repeated(self._feeds.overview.groups))

    async def _topics_events(self, request: Request) -> Response:
        return self._stream(request, self._repeated(self._feeds.overview.topics))

    async def _repeated(self, look: Callable[[], dict[str, Any]]) -> AsyncIterator[dict[str, Any] | None]:
        while True:
            yield await self._threads.run(look)

    def _stream(
        self, request: Request, looks: AsyncIterator[dict[str, Any] | None], *, first_pause_s: float = FRESH_S
    ) -> Response:
        """Server-sent events, one a second, until the browser goes, a server fails, or this one stops."""

        async def events() -> AsyncIterator[str]:
            pause_s = first_pause_s
            try:
                async for found in looks:
                    yield ": nothing new\n\n" if found is None else f"data: {text(found)}\n\n"
                    await anyio.sleep(pause_s)
                    pause_s = FRESH_S
                    if self._feeds.closing:
                        return
            except CobalanceError as error:
                yield f"event: problem\ndata: {text({'error': redact(str(error))})}\n\n"

        headers = {"X-Accel-Buffering": "no", "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return StreamingResponse(events(), media_type="text/event-stream", headers=headers)
        headers["Content-Encoding"] = "gzip"
        return StreamingResponse(_compressed(events()), media_type="text/event-stream", headers=headers)

    async def _feed(self, request: Request) -> Feed:
        group = name_in(request, "group")
        known = self._feeds.known(group)
        return known if known is not None else await self._threads.run(lambda: self._feeds.feed(group))


async def _compressed(events: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Each event whole, as soon as it is there; what has been sent before makes the next one shorter."""
    packer = zlib.compressobj(COMPRESSION, wbits=31)
    async for event in events:
        yield packer.compress(event.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)


def answering(answer: Answers) -> Answers:
    """Errors as an answer."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except CobalanceError as error:
            return answer_json({"error": redact(str(error))}, getattr(error, "status", None) or status_of(error))

    return answered


def answer_json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A value as it comes from the API."""
    return Response(text(value) + "\n", status, media_type="application/json")


def name_in(request: Request, key: str) -> str:
    """A name in the path, decoded."""
    return unquote(request.path_params[key])


def _number(request: Request, key: str, default: int) -> int:
    given = request.query_params.get(key, "")
    if not given:
        return default
    if not given.isdecimal() or len(given) > 16:
        raise UsageError(f"{key} is {given!r}: give a whole number")
    return int(given)
