"""Actions of operators, under ``/api/v1``, only where the dashboard was started with ``--allow-actions``.

A dry run says what would change and gives a token; a confirmation with it makes exactly that change. The token is good
once, for a few minutes, in the browser session and for the user that it was given to, and as long as what the dry run
rests on has not changed. The journal has who it was.

A page of another site can neither make a browser ask nor confirm: only POST changes anything, its ``Origin`` has to be
this server's, its body JSON, and the session's cookie is sent to this site's own pages only.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cobalance.dashboard.api import answer_json, answering, name_in
from cobalance.dashboard.guard import credentials
from cobalance.dashboard.plans import PLANS, Plan
from cobalance.errors import UsageError
from cobalance.limits import parse_json
from cobalance.operate.wording import dashboard_user
from cobalance.redact import redact
from cobalance.threads.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin

log = logging.getLogger("cobalance.dashboard.actions")

VALID_S = 300.0
"""How long a dry run can be confirmed."""

MOST_PENDING = 1_000
"""Dry runs that wait for a confirmation; beyond that the oldest are dropped."""

MOST_BYTES = 65_536
"""Of a request's body."""

MOST_BYTES_OF_NAME = 80
"""With that of a machine it fits the journal."""

COOKIE = "cobalance_session"


class Refused(UsageError):
    """A request is refused before anything is changed."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@attrs.frozen(kw_only=True)
class _Pending:
    plan: Plan
    action: str
    group: str
    user: str
    session: str
    until: float


@attrs.define
class Actions:
    """Plans what operators ask for, and does what they confirm."""

    _admin: GroupAdmin
    _password: str | None = attrs.field(default=None, repr=False)
    _user_header: str | None = None
    """The header in which a reverse proxy says who asks. None: the user name that comes with the password counts."""
    _clock: Callable[[], float] = time.monotonic
    _pending: dict[str, _Pending] = attrs.field(factory=dict, init=False, repr=False)
    _lock: Lock = attrs.field(factory=Lock, init=False, repr=False)
    _threads: WorkerThreads = attrs.field(factory=WorkerThreads, init=False, repr=False)

    def routes(self) -> list[Route]:
        """Both answer to POST only."""
        return [
            Route("/api/v1/groups/{group}/dry-runs", answering(self._dry_run), methods=["POST"]),
            Route("/api/v1/groups/{group}/actions", answering(self._confirm), methods=["POST"]),
        ]

    async def _dry_run(self, request: Request) -> Response:
        """What would change, and the token with which to confirm it; none if nothing would."""
        user, given = self._user(request), await _body(request)
        group, action = name_in(request, "group"), str(given.get("action"))
        if action not in PLANS:
            raise UsageError(f"there is no action {action!r}; there are {', '.join(PLANS)}")
        plan = await self._threads.run(lambda: PLANS[action](self._admin, group, given))
        known = request.cookies.get(COOKIE, "")
        session = known if re.fullmatch(r"[\w-]{43}", known, re.ASCII) else secrets.token_urlsafe(32)
        token = None
        if plan.act is not None:
            until = self._clock() + VALID_S
            token = self._keep(_Pending(plan=plan, action=action, group=group, user=user, session=session, until=until))
        found = {"sentences": [redact(it) for it in plan.sentences], "token": token, "valid_s": VALID_S, "user": user}
        answer = answer_json(found)
        path, is_https = f"{request.scope.get('root_path', '')}/", request.url.scheme == "https"
        answer.set_cookie(COOKIE, session, path=path, secure=is_https, httponly=True, samesite="strict")
        return answer

    async def _confirm(self, request: Request) -> Response:
        """Makes the change of a dry run, if it is still the one that was shown."""
        user, given = self._user(request), await _body(request)
        group, pending = name_in(request, "group"), self._take(str(given.get("token")))
        session = request.cookies.get(COOKIE, "")
        is_theirs = hmac.compare_digest(session.encode(), pending.session.encode()) and user == pending.user
        if not is_theirs or group != pending.group:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "Nothing was changed: the dry run was made by another user, in another browser, or for another group.",
            )
        who = dashboard_user(user, self._cleaned(socket.gethostname()))
        done = await self._threads.run(lambda: self._act(pending, who))
        return answer_json({"sentences": [redact(it) for it in done]})

    def _act(self, pending: _Pending, who: str) -> list[str]:
        plan = pending.plan
        if plan.act is None or plan.basis(self._admin) != plan.seen:
            raise Refused(
                HTTPStatus.CONFLICT,
                "Nothing was changed: what the dry run goes by has changed since. Make it again, and look at it.",
            )
        done = [*plan.act(self._admin.on_behalf_of(who))]
        log.info("group %s: %s by %s: %s", pending.group, pending.action, who, " ".join(done))
        return done

    def _keep(self, pending: _Pending) -> str:
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            kept = [(key, it) for key, it in self._pending.items() if it.until > now]
            self._pending = dict([*kept, (token, pending)][-MOST_PENDING:])
        return token

    def _take(self, token: str) -> _Pending:
        """Once, whatever comes of it."""
        with self._lock:
            found = self._pending.pop(token, None)
        if found is None or found.until <= self._clock():
            raise Refused(
                HTTPStatus.CONFLICT,
                f"Nothing was changed: a dry run is confirmed once, within {VALID_S / 60:.0f} min, at the dashboard that made it. Make it again.",
            )
        return found

    def _user(self, request: Request) -> str:
        """Who asks, as far as that is known; "" if not. A browser that is not on a page of ours is refused."""
        headers = request.headers
        if headers.get("origin") is None or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Refused(HTTPStatus.FORBIDDEN, "only this dashboard's own pages can change anything")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "give JSON, as application/json")
        if self._user_header is None:
            return "" if self._password is None else self._cleaned(credentials(headers)[0])
        given = headers.getlist(self._user_header)
        user = self._cleaned(given[0]) if len(given) == 1 else ""
        if not user:
            raise Refused(HTTPStatus.FORBIDDEN, f"the reverse proxy does not say who you are, in {self._user_header}")
        return user

    def _cleaned(self, user: str) -> str:
        """A word that the journal can have; "" for what may be a secret, since people paste those for a name."""
        has_secret = redact(user) != user or (self._password is not None and self._password in user)
        word = "" if has_secret else re.sub(r"[^\w.@+-]", "_", user)
        return word.encode()[:MOST_BYTES_OF_NAME].decode(errors="ignore")


async def _body(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {MOST_BYTES} bytes")
    try:
        return parse_json(body, dict)
    except ValueError:
        raise UsageError("the request is no JSON object") from None
