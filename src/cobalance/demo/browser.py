"""The story in a browser: a dashboard that shows it while it happens, and replays it afterwards until Ctrl-C."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from cobalance.admin import GroupAdmin
from cobalance.dashboard.server import DashboardServer
from cobalance.servers import Servers
from cobalance.threads.gate import Gate


@contextmanager
def shown_in_a_browser(servers: Servers, group: str, console: Console) -> Iterator[None]:
    """Opens a browser where there is a screen; the address is printed in any case."""
    with (
        GroupAdmin(servers.redis_url, amqp_url=servers.amqp_url) as admin,
        DashboardServer(admin, port=0) as server,
    ):
        address = f"{server.url}groups/{group}/handovers?story"
        console.print(f"Dashboard: {address}", soft_wrap=True)
        if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(address)
        yield
        console.print("The dashboard replays it until Ctrl-C.")
        with suppress(KeyboardInterrupt):  # the demo has come to its end
            Gate().wait()
