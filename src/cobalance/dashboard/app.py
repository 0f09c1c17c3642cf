"""The dashboard as an ASGI application."""

from __future__ import annotations

import re
import socket
from collections.abc import Awaitable, Callable, Collection
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from cobalance.dashboard.actions import Actions
from cobalance.dashboard.api import COMPRESSION, Api
from cobalance.dashboard.feeds import Feeds
from cobalance.dashboard.guard import Guard

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin

STATIC = Path(str(files("cobalance.dashboard") / "static"))

PAGES = {
    "/": "groups",
    "/topics": "topics",
    "/status": "status",
    "/groups/{group}": "group",
    "/groups/{group}/handovers": "handovers",
    "/groups/{group}/tuning": "tuning",
    "/groups/{group}/partitions/{partition}": "partition",
    "/groups/{group}/members/{member}": "member",
}
"""Path → the module in static/pages that fills it."""


def dashboard_app(
    admin: GroupAdmin,
    *,
    hosts: Collection[str] | None = (),
    password: str | None = None,
    allow_actions: bool = False,
    user_header: str | None = None,
    feeds: Feeds | None = None,
) -> ASGIApp:
    """The pages and their API, to be served, or mounted in an application that is there already:
    ``app.mount("/cobalance", dashboard_app(admin))``. It only reads, unless actions are allowed.

    Args:
        admin: of the groups to show. Keep it open.
        hosts: names under which it may be asked, besides addresses, ``localhost`` and the name of this machine: without
            that check, a page of the internet may ask under a name of its own that resolves to this machine. None leaves
            it to the application around.
        password: asked for by HTTP Basic, with any user name. None leaves that to the application around.
        allow_actions: whoever may look may also resume partitions, change settings and reset offsets, each after a dry
            run. Without a password, that is whoever reaches it.
        user_header: the header in which a reverse proxy, or the application around, says who asks, for the journal. It
            is believed: whatever is in front has to remove what clients send in it.
        feeds: of this admin, to stop them; by default its own.
    """
    pages = [Route(path, _page(name, allow_actions=allow_actions)) for path, name in PAGES.items()]
    static = Mount("/static", _Files(directory=STATIC))
    routes = [*pages, *Api(feeds or Feeds(admin)).routes(), static]
    if allow_actions:
        routes += Actions(admin, password, user_header).routes()
    app = Starlette(
        routes=routes, middleware=[Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=COMPRESSION)]
    )
    names = None if hosts is None else {it.lower() for it in (*hosts, "localhost", socket.gethostname())}
    return Guard(_undecoded(app), names, password)


def _undecoded(app: ASGIApp) -> ASGIApp:
    """Routes see the path before it is decoded, as a name may have a slash."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            scope = {**scope, "path": raw.decode("latin-1").partition("?")[0]}
        await app(scope, receive, send)

    return wrapped


def _page(name: str, *, allow_actions: bool) -> Callable[[Request], Awaitable[HTMLResponse]]:
    async def answer(request: Request) -> HTMLResponse:
        given = {key: unquote(value) for key, value in request.path_params.items()}
        words = {
            "base": f"{request.scope.get('root_path', '')}/",
            "page": name,
            "group": given.get("group", ""),
            "partition": given.get("partition", ""),
            "member": given.get("member", ""),
            "actions": "allowed" if allow_actions else "",
        }
        links = (f'<link rel="modulepreload" href="{escape(words["base"])}static/{it}" />' for it in _modules(name))
        modules = "\n    ".join(links)
        return HTMLResponse(
            re.sub(r"\{\{(\w+)\}\}", lambda it: modules if it[1] == "modules" else escape(words[it[1]]), _shell())
        )

    return answer


class _Files(StaticFiles):
    """What a browser has, it need not fetch again: it asks whether that is still the same."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        found = super().file_response(*args, **kwargs)
        found.headers["Cache-Control"] = "no-cache"
        return found


@cache
def _modules(page: str) -> tuple[str, ...]:
    """All modules of a page, so that browsers fetch them at once, rather than each when its importer has come."""
    found: dict[Path, None] = {}
    todo = [STATIC / "app.js", STATIC / "pages" / f"{page}.js"]
    while todo:
        module = todo.pop().resolve()
        if module not in found:
            found[module] = None
            todo += [module.parent / it for it in re.findall(r'from "([^"]+)"', module.read_text())]
    return tuple(it.relative_to(STATIC.resolve()).as_posix() for it in found)


@cache
def _shell() -> str:
    return (STATIC / "page.html").read_text()
