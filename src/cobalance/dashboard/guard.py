"""Who may ask, and what browsers may do with the answers. Around every page, file and answer of the API.

- ``Host`` is an address or a known name, so that no page of the internet asks under a name that resolves to this machine.
- ``Origin``, where a browser sends one, is this server.
- The password, if there is one, comes with every request (HTTP Basic; any user name, which counts for actions only).
- Scripts and styles come from this server only; nobody frames a page; nothing is kept by caches.
- An error that nobody foresaw is logged without secrets, and the answer does not quote it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import logging
from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import urlsplit

import attrs
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cobalance.operate.http_listener import is_known
from cobalance.redact import redacted_traceback

log = logging.getLogger("cobalance")

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@attrs.frozen
class Guard:
    """An ASGI application around another one."""

    app: ASGIApp
    hosts: Collection[str] | None
    """Names under which it may be asked, besides addresses. None leaves that to the application around it."""
    password: str | None = attrs.field(repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_begun = False

        async def guarded(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(Headers(scope=scope))
        try:
            await (refusal or self.app)(scope, receive, guarded)
        except Exception as error:  # noqa: BLE001 -- the server would log it as it is
            log.error("the dashboard could not answer: %s", redacted_traceback(error))
            if not has_begun:
                await _answer(HTTPStatus.INTERNAL_SERVER_ERROR, "unexpected; the log has more")(scope, receive, guarded)

    def _refusal(self, headers: Headers) -> Response | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.hosts is not None and not is_known(host, self.hosts):
            return _answer(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this is not the Host of this server; see --host-name, or hosts of dashboard_app",
            )
        if origin is not None and _host_of(origin) != host.lower():
            return _answer(HTTPStatus.FORBIDDEN, "the request comes from another site")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _answer(HTTPStatus.FORBIDDEN, "the request comes from another site")
        if self.password is not None and not _is_right(headers, self.password):
            found = _answer(HTTPStatus.UNAUTHORIZED, "a password is needed")
            found.headers["WWW-Authenticate"] = 'Basic realm="cobalance", charset="UTF-8"'
            return found
        return None


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _answer(status: HTTPStatus, error: str) -> Response:
    return Response(json.dumps({"error": error}) + "\n", status, media_type="application/json")


def _is_right(headers: Headers, password: str) -> bool:
    return hmac.compare_digest(credentials(headers)[1], password.encode())


def credentials(headers: Headers) -> tuple[str, bytes]:
    """User name and password of HTTP Basic; both empty if there are none."""
    kind, _, words = headers.get("authorization", "").partition(" ")
    try:
        user, _, password = base64.b64decode(words, validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return "", b""
    return (user.decode(errors="replace"), password) if kind.lower() == "basic" else ("", b"")
