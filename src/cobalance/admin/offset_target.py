"""Parses the targets of ``reset-offsets``: Kafka's flags, files and times."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs

from cobalance.admin.offset_plan import Shift, Target
from cobalance.errors import UsageError
from cobalance.settings import duration_ms

_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class OffsetTarget:
    """The target as given; exactly one of these."""

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
            flags = ", ".join(f"--{field.name.replace('_', '-')}" for field in attrs.fields(OffsetTarget))
            raise UsageError(f"Give one of {flags}.")

    @property
    def target(self) -> Target:
        """The target for :class:`GroupAdmin`."""
        if self.to_datetime is not None:
            return read_time("--to-datetime", self.to_datetime)
        if self.by_duration is not None:
            return _ago(self.by_duration)
        if self.from_file is not None:
            return read_plan(self.from_file)
        if self.to_offset is not None:
            return self.to_offset
        return "earliest" if self.to_earliest else "latest" if self.to_latest else Shift(self.shift_by or 0)


# -- files ---------------------------------------------------------------------------------------------------------------------


def read_plan(path: Path) -> dict[str, int]:
    """Reads lines of topic, partition and offset, as written by ``--export``; a stream outside of topics has an empty
    topic.

    Raises:
        UsageError: the file cannot be read, or a line is invalid.
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
    """Kafka's ``YYYY-MM-DDTHH:mm:SS.sss``, in UTC unless it has a time zone."""
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
