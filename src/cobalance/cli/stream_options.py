"""How ``consume`` treats streams."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, cast

import attrs
from cyclopts import Parameter

from cobalance.cli.offset_plan import read_time
from cobalance.cli.options import duration_option
from cobalance.rabbitmq import StreamSettings
from cobalance.rabbitmq.model.stream_settings import Place, Start

DEFAULTS = StreamSettings()


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class StreamOptions:
    """For streams only."""

    start: Annotated[
        str,
        Parameter(
            help="Where a new group starts in a stream: first, last, next, an offset, or 2026-01-31T12:00:00 (UTC)."
        ),
    ] = "first"
    on_unknown_offset: Annotated[
        Literal["stop", "first"] | None,
        Parameter(
            help="If it is unknown how far a stream was read. By default first if that is the start, otherwise stop."
        ),
    ] = None
    commit_every: Annotated[int, Parameter(help="Commit after this many messages of a stream …")] = (
        DEFAULTS.commit_every
    )
    commit_interval_ms: Annotated[int, duration_option("commit-interval", "… or so long after the first of them.")] = (
        int(DEFAULTS.commit_interval_ms)
    )
    lock: Annotated[bool, Parameter(negative="", help="Guard each stream by an exclusive queue, lock.NAME.")] = False

    def settings(self) -> StreamSettings:
        return StreamSettings(
            start=_start(self.start),
            on_unknown_offset=self.on_unknown_offset,
            commit_every=self.commit_every,
            commit_interval_ms=self.commit_interval_ms,
            lock=self.lock,
        )


def _start(text: str) -> Start:
    if text.isdecimal():
        return int(text)
    time: datetime | None = read_time("--start", text) if "-" in text else None
    return cast("Place", text) if time is None else time
