"""``cobalance dashboard``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cobalance.cli.options import THIS_REDIS, AmqpUrl, ManagementUrl, RedisOptions
from cobalance.cli.output import remark
from cobalance.coordinator.transport import Listing
from cobalance.dashboard.server import PORT, DashboardServer, is_local, read_password
from cobalance.operate.http_listener import LOCALHOST
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL


def dashboard(
    *,
    port: Annotated[int, Parameter(env_var="COBALANCE_DASHBOARD_PORT", help="Where to listen; 0 chooses.")] = PORT,
    host: Annotated[
        str,
        Parameter(
            env_var="COBALANCE_DASHBOARD_HOST", help="The address to listen at; 0.0.0.0 for all, with a password file."
        ),
    ] = LOCALHOST,
    host_name: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="A host name under which it may be asked, besides this machine's; repeatable."),
    ] = (),
    password_file: Annotated[
        Path | None,
        Parameter(help="Its first line is the password that browsers ask for; with any user name."),
    ] = None,
    certificate_file: Annotated[Path | None, Parameter(help="A certificate chain (PEM), for HTTPS.")] = None,
    key_file: Annotated[Path | None, Parameter(help="Its key, if that is not in the same file.")] = None,
    allow_actions: Annotated[
        bool,
        Parameter(
            negative="",
            help="Whoever may look may also resume partitions, change settings and reset offsets. The journal has who did.",
        ),
    ] = False,
    user_header: Annotated[
        str | None,
        Parameter(
            help="With --allow-actions: the header in which a reverse proxy says who asks, such as X-Forwarded-User. It is believed."
        ),
    ] = None,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Show groups in a browser, until SIGTERM or Ctrl-C: who works what, what moved and why, and what it waits for.

    It only reads unless --allow-actions is given, and keeps nothing that Redis does not have: start as many as you
    like. Other machines cannot reach it unless --host says so, and then a password is needed.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("cobalance.dashboard.actions").setLevel(logging.INFO)
    password = read_password(password_file) if password_file is not None else None
    with redis.admin(amqp_url, management_url) as admin:
        listing = Listing.of(admin.list)  # an unreachable Redis is reported at once
        if listing.problem is not None:
            remark(f"warning: {listing.problem}")
        server = DashboardServer(
            admin,
            host=host,
            port=port,
            hosts=host_name,
            password=password,
            allow_actions=allow_actions,
            user_header=user_header,
            certificate=certificate_file,
            key=key_file,
        )
        if password is not None and certificate_file is None and not is_local(host):
            remark("warning: without --certificate-file the password travels in clear text.")
        remark(f"dashboard at {server.url}")
        server.serve()
