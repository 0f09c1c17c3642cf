"""``cobalance group lag``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import attrs
from cyclopts import Parameter

from cobalance.admin import GroupDescription
from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, ManagementUrl, RedisOptions
from cobalance.cli.output import seconds
from cobalance.cli.watching import Page, Watching
from cobalance.cli.watching import watch as watch_pages
from cobalance.errors import CobalanceError, UnknownGroup, Unreachable
from cobalance.operate.topics import topics_of
from cobalance.operate.watch import Looks, Watch
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL

COLUMNS = {
    "GROUP": "group",
    "TOPIC": "topic",
    "#PARTITIONS": "partitions",
    "LAG": "lag",
    "MAX-LAG": "max_lag",
    "IN-FLIGHT": "in_flight",
    "OLDEST": "oldest_ms",
    "STATE": "state",
    "VERDICT": "verdict",
}

Row = dict[str, Any]


def lag(
    *names: Annotated[str, Parameter(help="Groups; by default all.")],
    watch: Watching = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Show what groups have left to do, by topic.

    LAG is the sum of its partitions, MAX-LAG that of the partition with the most. A sum of which a part is unknown is
    unknown, and shown as "-". `describe` shows each partition, and what the columns mean.
    """
    unknown: dict[str, None] = {}
    with redis.admin(amqp_url, management_url) as admin:
        watches, looks = dict[str, Watch](), Looks()

        def read(name: str, within_ms: int) -> GroupDescription:
            if name not in watches:
                watches[name] = admin.watch(name, on_unknown=unknown.setdefault)
            return watches[name].snapshot(within_ms=within_ms)

        def read_if_possible(name: str, within_ms: int) -> GroupDescription | CobalanceError | None:
            try:
                return read(name, within_ms)
            except UnknownGroup:  # deleted meanwhile
                return None
            except CobalanceError as error:  # it hides no other
                return error

        def look() -> Page:
            unknown.clear()
            found = looks.read(names, read) if names else _readable(looks.read(admin.list(), read_if_possible), unknown)
            rows = [attrs.asdict(row) for group in found for row in topics_of(group)]
            return _page(rows, [f"warning: {why}" for why in unknown])

        if watch:
            watch_pages(look, json=json)
        look().print(json=json)


def _readable(
    found: Sequence[GroupDescription | CobalanceError | None], unknown: dict[str, None]
) -> Sequence[GroupDescription]:
    """Those that could be read; the reasons of the others become unknown.

    Raises:
        Unreachable: none could be read, at least one of them since Redis did not answer.
    """
    failures = [it for it in found if isinstance(it, CobalanceError)]
    readable = [it for it in found if isinstance(it, GroupDescription)]
    unreachable = [it for it in failures if isinstance(it, Unreachable)]
    if unreachable and not readable:
        raise unreachable[0]
    unknown.update({str(it): None for it in failures})
    return readable


def _page(rows: Sequence[Row], remarks: Sequence[str]) -> Page:
    cells = [[seconds(row[key]) if key.endswith("_ms") else row[key] for key in COLUMNS.values()] for row in rows]
    return Page(columns=list(COLUMNS), rows=cells, json=rows, remarks=remarks)
