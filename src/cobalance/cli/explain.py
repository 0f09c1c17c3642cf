"""``cobalance group explain``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, ManagementUrl, Name, RedisOptions
from cobalance.cli.output import print_json, remark
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL


def explain(
    name: Name,
    partition: Annotated[str | None, Parameter(help="As describe names it; by default the group.")] = None,
    /,
    *,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Explain in sentences why a group, or a partition, is as it is: where it is, why it moved there, and what it waits
    for.

    From what describe shows and what history has, so a journal that was trimmed explains less.
    """
    with redis.admin(amqp_url, management_url) as admin:
        sentences = admin.explain(name, partition, on_unknown=lambda why: remark(f"warning: {why}"))
    if json:
        print_json({"group": name, "partition": partition, "sentences": sentences})
    else:
        print(*sentences, sep="\n")
