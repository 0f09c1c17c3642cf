"""``cobalance group lag``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import attrs
from cyclopts import Parameter

from cobalance.admin import GroupAdmin, GroupDescription
from cobalance.cli.exits import OK, UNREACHABLE, check_any_read
from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, ManagementUrl, RedisOptions
from cobalance.cli.output import seconds
from cobalance.cli.watching import Page, Watching
from cobalance.cli.watching import watch as watch_pages
from cobalance.coordinator.transport import Listing
from cobalance.errors import CobalanceError, UnknownGroup
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
) -> int:
    """Show what groups have left to do, by topic.

    LAG is the sum of its partitions, MAX-LAG that of the partition with the most. A sum of which a part is unknown is
    unknown, and shown as "-". `describe` shows each partition, and what the columns mean.
    """
    with redis.admin(amqp_url, management_url) as admin:
        lags = Lags(admin, names)
        if watch:
            watch_pages(lags.look, json=json)
        lags.look().print(json=json)
    return lags.code


class Lags:
    """Looks at these groups, or at all that there are."""

    def __init__(self, admin: GroupAdmin, names: Sequence[str]) -> None:
        self._admin, self._names = admin, names
        self._watches, self._looks = dict[str, Watch](), Looks()
        self._unknown: dict[str, None] = {}
        self.code = OK
        """Of the last look."""

    def look(self) -> Page:
        """The groups as they are.

        Raises:
            UnknownGroup: there is no such group.
            ServerError: Redis cannot be queried.
        """
        self._unknown.clear()
        found = self._looks.read(self._names, self._read) if self._names else self._all()
        rows = [attrs.asdict(row) for group in found for row in topics_of(group)]
        return _page(rows, [f"warning: {why}" for why in self._unknown])

    def _all(self) -> Sequence[GroupDescription]:
        listing = Listing.of(self._admin.list)
        found = self._looks.read(listing.names, self._read_if_possible)
        failures = [it for it in found if isinstance(it, CobalanceError)]
        readable = [it for it in found if isinstance(it, GroupDescription)]
        self.code = check_any_read(failures, is_any_read=bool(readable))
        if listing.problem is not None:
            self.code = UNREACHABLE
            failures.append(listing.problem)
        self._unknown.update({str(it): None for it in failures})
        return readable

    def _read(self, name: str, within_ms: int) -> GroupDescription:
        if name not in self._watches:
            self._watches[name] = self._admin.watch(name, on_unknown=self._unknown.setdefault)
        return self._watches[name].snapshot(within_ms=within_ms)

    def _read_if_possible(self, name: str, within_ms: int) -> GroupDescription | CobalanceError | None:
        try:
            return self._read(name, within_ms)
        except UnknownGroup:  # deleted meanwhile
            return None
        except CobalanceError as error:  # it hides no other
            return error


def _page(rows: Sequence[Row], remarks: Sequence[str]) -> Page:
    cells = [[seconds(row[key]) if key.endswith("_ms") else row[key] for key in COLUMNS.values()] for row in rows]
    return Page(columns=list(COLUMNS), rows=cells, json=rows, remarks=remarks)
