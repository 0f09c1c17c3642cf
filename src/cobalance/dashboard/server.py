"""Serves the dashboard, on this machine only unless a password guards it."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import signal
import socket
import ssl
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import uvicorn

from cobalance.dashboard.app import dashboard_app
from cobalance.dashboard.feeds import Feeds
from cobalance.errors import UsageError
from cobalance.limits import check_integer, check_kind
from cobalance.operate.http_listener import LOCALHOST

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin

PORT = 8642

SHORTEST_PASSWORD = 12

GRACE_S = 3.0
"""How long answers may take once the server stops; then their connections are cut."""


class DashboardServer:
    """Listens from when it is made. :meth:`serve` answers until a signal; in a ``with`` a thread does.

    Args:
        admin: of the groups to show. Keep it open for as long.
        host: the address to listen at. All but those of this machine need a password.
        port: 0 chooses a free one; see ``port``.
        hosts: names under which it may be asked, besides addresses, ``localhost``, ``host`` and the name of this machine.
        password: asked for by HTTP Basic, with any user name.
        allow_actions: see :func:`~cobalance.dashboard.app.dashboard_app`.
        user_header: the same; only with actions.
        certificate: a file with a certificate chain, for HTTPS; and
        key: one with its key, if that is not in the same file.

    Raises:
        UsageError: there is no password where one is needed, it cannot listen there, the certificate is none, or the
            header is.
    """

    def __init__(
        self,
        admin: GroupAdmin,
        *,
        host: str = LOCALHOST,
        port: int = PORT,
        hosts: Collection[str] = frozenset(),
        password: str | None = None,
        allow_actions: bool = False,
        user_header: str | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        check_kind("host", host, str)
        check_integer("port", port, least=0, most=65_535)
        if password is None and not is_local(host):
            raise UsageError(
                f"at {host} other machines could look at your groups{' and change them' if allow_actions else ''}: give a password file, or listen at 127.0.0.1 behind a reverse proxy "
                "that asks who they are"
            )
        if user_header is not None and not (allow_actions and re.fullmatch(r"[A-Za-z0-9-]+", user_header)):
            raise UsageError(
                f"the header {user_header!r} says who asks for an action: allow actions, and give its name, such as X-Forwarded-User"
            )
        self._feeds = Feeds(admin)
        config = uvicorn.Config(
            dashboard_app(
                admin,
                hosts=(*hosts, host),
                password=password,
                allow_actions=allow_actions,
                user_header=user_header,
                feeds=self._feeds,
            ),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        _load(config)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http{'s' if certificate else ''}://{f'[{host}]' if ':' in host else host}:{self.port}/"
        self._server = _Server(config, self._feeds)
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Answers until SIGTERM or Ctrl-C."""
        with suppress(
            ValueError
        ):  # uvicorn raises a signal again when it has ended; tests run commands in other threads
            signal.signal(signal.SIGTERM, lambda *_: None)
        with suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="cobalance-dashboard", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


def is_local(host: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_password(file: Path) -> str:
    """The first line of a file.

    Raises:
        UsageError: it cannot be read, or is too short to guard anything.
    """
    try:
        found = file.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"cannot read the password file {file} ({reason})") from None
    if len(found) < SHORTEST_PASSWORD:
        raise UsageError(
            f"the first line of {file} is the password, and has fewer than {SHORTEST_PASSWORD} characters: "
            f"choose a longer one, such as that of `openssl rand -hex 16 > {file}`"
        )
    return found


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, feeds: Feeds) -> None:
        super().__init__(config)
        self._feeds = feeds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feeds.closing = True
        asyncio.get_running_loop().call_later(GRACE_S, self._cut)
        await super().shutdown(sockets)

    def _cut(self) -> None:
        """An answer that nobody reads would never end. uvicorn's own time limit logs a traceback for each."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _load(config: uvicorn.Config) -> None:
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use that certificate and key ({error.strerror or error})") from None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except OSError as error:
        found.close()
        raise UsageError(
            f"cannot listen at {host}, port {port} ({error.strerror}): choose another port, or an address of this machine"
        ) from None
    return found
