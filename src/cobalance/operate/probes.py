"""``/livez`` and ``/readyz``: what Kubernetes and load balancers ask a member's process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, Protocol

import attrs

from cobalance.errors import UsageError
from cobalance.group.health import Health
from cobalance.operate.http_listener import LOCALHOST, Answer, HttpListener, Pages, is_known

Probe = Literal["live", "ready"]

PORT = 8080

PATHS: Mapping[str, Probe] = {"/livez": "live", "/readyz": "ready"}

Message = dict[str, Any]


class Probed(Protocol):
    """A group of any kind."""

    @property
    def health(self) -> Health:
        """Whether it is alive and ready."""


class ProbeServer(HttpListener):
    """Answers probes from :meth:`start` to :meth:`close`, or for the length of a ``with``, on a thread of its own.

    ``/livez`` answers 200 while the threads that keep the groups going work, ``/readyz`` while all groups have joined
    and none has failed or begun to leave; otherwise 503. The body, JSON, says why. See :class:`cobalance.group.health
    .Health`.

    Args:
        groups: of this process, entered or not.
        host: the address to listen at. By default this machine can ask, and nobody else: Kubernetes' ``httpGet`` needs
            "0.0.0.0".
        port: 0 chooses a free one.
        hosts: names under which it may be asked, besides addresses and the name of this machine.
        pages: further pages.

    Raises:
        UsageError: there is no group, or it cannot listen there.
    """

    def __init__(
        self,
        *groups: Probed,
        host: str = LOCALHOST,
        port: int = PORT,
        hosts: Collection[str] = frozenset(),
        pages: Pages | None = None,
    ) -> None:
        _check(groups)
        super().__init__({**probe_pages(groups), **(pages or {})}, host=host, port=port, hosts=hosts)


def probe_pages(groups: Sequence[Probed]) -> Pages:
    """Path → the answer of a probe."""
    return {
        "/livez": lambda: answer(groups, "live"),
        "/readyz": lambda: answer(groups, "ready"),
    }


def answer(groups: Sequence[Probed], probe: Probe) -> Answer:
    """The answer to a probe: 200 if all groups are well, 503 otherwise."""
    found = [group.health for group in groups]
    is_well = all(getattr(it, probe) for it in found)
    body = {probe: is_well, "groups": [attrs.asdict(it) for it in found]}
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, json.dumps(body).encode() + b"\n")


def probe_app(*groups: Probed, hosts: Collection[str] | None = None) -> Callable[..., Awaitable[None]]:
    """The same pages as an ASGI application, to be mounted in one that is there already, such as FastAPI's:
    ``app.mount("/probes", probe_app(group))``. It answers as long as the event loop does.

    Args:
        groups: of this process, entered or not.
        hosts: names under which it may be asked, besides addresses. None leaves that check to the application.
    """
    _check(groups)
    pages = probe_pages(groups)

    async def app(scope: Message, receive: Any, send: Callable[[Message], Awaitable[None]]) -> None:
        del receive
        if scope["type"] != "http":
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        found = _found(pages, path) if hosts is None or is_known(host, hosts) else _NOT_OURS
        head = [(b"content-type", found.content_type.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": int(found.status), "headers": head})
        await send({"type": "http.response.body", "body": found.body})

    return app


_NOT_OURS = Answer(HTTPStatus.MISDIRECTED_REQUEST, b"{}\n")


def _found(pages: Pages, path: str) -> Answer:
    return pages[path]() if path in pages else Answer(HTTPStatus.NOT_FOUND, b"{}\n")


def _check(groups: Sequence[Probed]) -> None:
    if not groups:
        raise UsageError("name at least one group to be asked about")
    for group in groups:
        if not isinstance(getattr(type(group), "health", None), property):
            raise UsageError(f"probes are about groups, and this is an object of type {type(group).__name__}")
