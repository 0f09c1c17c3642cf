"""What ``reset-offsets`` would do: one of Kafka's scenarios, worked out for each stream.

Offsets are Kafka's here, on the command line and in files: that of the next message to be read. The committed offset, which is
that of the last one processed, is one below.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs

from cobalance.cli.options import duration_ms
from cobalance.errors import UsageError
from cobalance.rabbitmq.stream_extent import Extent, read_extents, read_offsets_at

_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Scenario:
    """Where to, as it was asked for; exactly one of these."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    to_datetime: str | None = None
    by_duration: str | None = None
    shift_by: int | None = None
    from_file: Path | None = None

    def __attrs_post_init__(self) -> None:
        given = [name for name, value in attrs.asdict(self).items() if value is not None and value is not False]
        if len(given) != 1:
            flags = ", ".join(f"--{field.name.replace('_', '-')}" for field in attrs.fields(Scenario))
            raise UsageError(f"Give one of {flags}.")

    @property
    def time(self) -> datetime | None:
        """The time to go to, if that is what was asked for."""
        if self.to_datetime is not None:
            return read_time("--to-datetime", self.to_datetime)
        return None if self.by_duration is None else _ago(self.by_duration)


@attrs.frozen
class Step:
    """One stream's."""

    stream: str
    next: int
    """The next message to be read."""
    asked: int
    """The same before it was brought within what the stream has."""

    @property
    def committed(self) -> int:
        """The committed offset that comes to that."""
        return self.next - 1


def plan(scenario: Scenario, streams: Sequence[str], committed: Mapping[str, int | None], amqp_url: str) -> list[Step]:
    """A step for each stream.

    Raises:
        UsageError: a stream has no committed offset to go by.
    """
    extents = read_extents(amqp_url, streams)
    wanted = _wanted(scenario, streams, committed, extents, amqp_url)
    return [Step(name, extents[name].nearest(wanted[name]), wanted[name]) for name in streams]


def _wanted(
    scenario: Scenario,
    streams: Sequence[str],
    committed: Mapping[str, int | None],
    extents: Mapping[str, Extent],
    amqp_url: str,
) -> dict[str, int]:
    if scenario.to_earliest:
        return {name: extents[name].begin for name in streams}
    if scenario.to_latest:
        return {name: extents[name].end for name in streams}
    if scenario.to_offset is not None:
        return dict.fromkeys(streams, scenario.to_offset)
    if scenario.time is not None:
        found = read_offsets_at(amqp_url, streams, scenario.time)
        return {name: extents[name].end if (at := found[name]) is None else at for name in streams}
    if scenario.from_file is not None:
        return read_plan(scenario.from_file)
    return {name: _current(name, committed) + (scenario.shift_by or 0) for name in streams}


def _current(stream: str, committed: Mapping[str, int | None]) -> int:
    offset = committed.get(stream)
    if offset is None:
        raise UsageError(f"{stream!r} has no committed offset to go by: use --to-earliest, --to-latest or --to-offset.")
    return offset + 1


# -- files ---------------------------------------------------------------------------------------------------------------------


def read_plan(path: Path) -> dict[str, int]:
    """Lines of topic, partition and offset, as ``--export`` writes them; a stream that is no topic's has an empty topic.

    Raises:
        UsageError: it cannot be read, or a line is another.
    """
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--from-file {path}: it cannot be read ({type(error).__name__}).") from None
    found: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        words = [word.strip() for word in row]
        if len(words) != 3 or not words[1] or not words[2].isdecimal():
            raise UsageError(
                f"--from-file {path}, line {number}: expected topic,partition,offset, not {','.join(row)!r}."
            )
        topic, partition, offset = words
        found[f"{topic}-{partition}" if topic else partition] = int(offset)
    return found


# -- times ---------------------------------------------------------------------------------------------------------------------


def read_time(flag: str, text: str) -> datetime:
    """Kafka's ``YYYY-MM-DDTHH:mm:SS.sss``, UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{flag} {text!r} is no time: write it as 2026-01-31T12:00:00, with +02:00 if it is not UTC."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _ago(text: str) -> datetime:
    try:
        return datetime.now(UTC) - _duration(text)
    except OverflowError:
        raise UsageError(f"--by-duration {text!r} leads to before our era: use --to-earliest.") from None


def _duration(text: str) -> timedelta:
    """Kafka's ``PnDTnHnMnS``, or ours."""
    found = _ISO_DURATION.fullmatch(text)
    if found is not None and any(found.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    try:
        return timedelta(milliseconds=duration_ms(text))
    except ValueError:
        raise UsageError(f"--by-duration {text!r} is no duration: write P1D, PT2H30M, or 90s, 30m, 2h.") from None
