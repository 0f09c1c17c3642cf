"""``cobalance metrics``: the exporter of groups."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter
from prometheus_client import CollectorRegistry

from cobalance.cli.desired_members import AS_USUAL, ScalingOptions
from cobalance.cli.options import THIS_REDIS, AmqpUrl, ManagementUrl, RedisOptions
from cobalance.cli.output import remark
from cobalance.cli.watching import until_interrupted
from cobalance.errors import Unreachable
from cobalance.operate.desired_page import desired_pages
from cobalance.operate.http_listener import LOCALHOST, HttpListener
from cobalance.operate.lag_page import lag_pages
from cobalance.operate.metrics_page import metrics_pages
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL
from cobalance.threads.gate import Gate

PORT = 9464


def metrics(
    *names: Annotated[str, Parameter(help="Groups; by default all.")],
    port: Annotated[int, Parameter(env_var="COBALANCE_METRICS_PORT", help="Where to listen; 0 chooses.")] = PORT,
    host: Annotated[
        str, Parameter(env_var="COBALANCE_METRICS_HOST", help="The address to listen at; 0.0.0.0 for all.")
    ] = LOCALHOST,
    host_name: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="A host name under which it may be asked, besides this machine's; repeatable."),
    ] = (),
    partitions: Annotated[bool, Parameter(negative="", help="Also the lag of each partition: a series each.")] = False,
    scaling: ScalingOptions = AS_USUAL,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Serve Prometheus metrics of groups at /metrics, until SIGTERM or Ctrl-C. One exporter is enough for all groups.

    Each scrape is a look at the groups as they are: lag, verdicts, handovers and their causes. Members' processes have
    metrics of their own; see `consume --metrics`. Autoscalers read what a group has left to do at
    /api/v1/groups/GROUP/lag, and how many members it should have at /api/v1/groups/GROUP/desired-members.
    """
    registry, asked_to_stop = CollectorRegistry(auto_describe=False), Gate()
    with redis.admin(amqp_url, management_url) as admin:
        groups = admin.metrics(*names, partitions=partitions)
        registry.register(groups)
        pages, lag = metrics_pages(registry), lag_pages(groups.snapshot)
        desired = desired_pages(groups.snapshot, scaling.settings())
        find = lambda path: lag(path) or desired(path)  # noqa: E731
        with HttpListener(pages, find_page=find, host=host, port=port, hosts=host_name) as listener:
            with suppress(ValueError):  # tests run commands in other threads
                signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.open())
            remark(f"metrics at http://{host}:{listener.port}/metrics")
            with until_interrupted():
                try:
                    admin.list()  # what is wrong is reported at once; but that Redis is away has to be told to those who ask
                except Unreachable as error:
                    remark(f"warning: {error}")
                asked_to_stop.wait()
