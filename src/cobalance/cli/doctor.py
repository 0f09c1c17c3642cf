"""``cobalance doctor``."""

from __future__ import annotations

from typing import Annotated

import attrs
from cyclopts import Parameter

from cobalance.cli.exits import FAILED, OK, UNREACHABLE
from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, ManagementUrl, RedisOptions
from cobalance.cli.output import print_json
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL
from cobalance.redact import printable


def doctor(
    *names: Annotated[str, Parameter(help="Groups; by default all.")],
    quiet: Annotated[bool, Parameter(negative="", help="Leave out what is well.")] = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> int:
    """Check both servers and the groups, and say what to do.

    Looks at versions, permissions, memory policy, persistence, replicas, clocks, the management API, guards of queues,
    late heartbeats, handovers that overran, halted partitions and stale groups. Changes nothing. Exit code 1 if something is
    wrong, 3 if a server cannot be reached; warnings are no failure. Where no group has queues, --amqp-url none leaves
    RabbitMQ out.
    """
    with redis.admin(amqp_url, management_url) as admin:
        findings = admin.examine(*names)
    shown = [it for it in findings if not quiet or it.level != "ok"]
    if json:
        print_json([attrs.asdict(it) for it in shown])
    else:
        for it in shown:
            print(printable(f"{it.level:8} {it.subject}: {it.check}: {it.message}"))
            if it.advice is not None:
                print(printable(f"{'':8} → {it.advice}"))
    wrong = [it for it in findings if it.level == "error"]
    return UNREACHABLE if any(it.check == "reachable" for it in wrong) else FAILED if wrong else OK
