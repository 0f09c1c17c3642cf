"""The options of a reader of journals, and where it finds Redis's address: never in the plan, which Spark shows."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs

from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.transport import not_a_coordinator_url
from cobalance.errors import InvalidSettings
from cobalance.names import validate_name
from cobalance.redact import redact

OnGap = Literal["report", "fail"]

DEFAULT_VARIABLE = "COBALANCE_REDIS_URL"

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@attrs.frozen(kw_only=True)
class JournalOptions:
    """The options of ``spark.read.format("cobalance")`` and of ``readStream``; in Spark they may be written ``onGap`` or ``on_gap``."""

    groups: tuple[str, ...]
    """Names, or patterns such as ``orders-*``, with commas between them. Required."""
    since_ms: int | None = None
    """``since``: start time, by Redis's clock: ISO 8601, milliseconds since 1970, or ``2h`` for two hours ago. In a
    stream, it applies to groups that were not read before.
    """
    until_ms: int | None = None
    """``until``: end time (exclusive), in the same forms; in a batch only."""
    on_gap: OnGap = "report"
    """``onGap``: entries that are gone become a row of kind ``gap``, or the query fails."""
    max_entries_per_batch: int | None = None
    """``maxEntriesPerBatch``: about how many entries a micro-batch takes, over all groups."""
    partition_entries: int = 125_000
    """``partitionEntries``: about how many entries one task reads at most."""
    min_partitions: int = attrs.field(factory=lambda: os.cpu_count() or 1)
    """``minPartitions``: how many tasks read at a time, if there is enough to read: the cores of the cluster. By default those
    of the machine that plans the query.
    """
    retry_s: int = 30
    """``retryS``: how long a Redis that does not answer is retried."""
    url_variable: str = DEFAULT_VARIABLE
    """``redisUrlEnv``: the environment variable, on driver and executors, that holds the URL."""
    url_file: str | None = None
    """``redisUrlFile``: a file, on driver and executors, that holds the URL; takes precedence over the variable."""
    plain_url: str | None = None
    """``redisUrl``: the URL itself, only if it contains no password."""
    key_prefix: str = DEFAULT_PREFIX
    """``keyPrefix``: the key prefix of the groups."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> JournalOptions:
        """Reads Spark's options.

        Raises:
            InvalidSettings: one is unknown, missing or invalid; the message says what to give.
        """
        words = {name.lower().replace("_", ""): str(value).strip() for name, value in given.items()}
        unknown = sorted(words.keys() - _READERS.keys())
        if unknown:
            raise InvalidSettings(f"The cobalance source has no option {unknown[0]!r}; it has {', '.join(_SPELT)}.")
        values: dict[str, Any] = dict(_READERS[name](word) for name, word in words.items())
        if not values.get("groups"):
            raise InvalidSettings(
                'The cobalance source needs option("groups", "orders") or a pattern such as "orders-*".'
            )
        options = cls(**values)
        if options.since_ms is not None and options.until_ms is not None and options.since_ms >= options.until_ms:
            raise InvalidSettings("since is not before until, so there is nothing to read.")
        return options

    def redis_url(self) -> str:
        """The address, looked up where this process runs.

        Raises:
            InvalidSettings: it is not there.
        """
        if self.url_file is not None:
            return _from_file(self.url_file)
        url = self.plain_url or os.environ.get(self.url_variable, "").strip()
        if not url:
            raise InvalidSettings(
                f"Redis's URL is not known here: {self.url_variable} is not set in the process of Spark that reads the journal. "
                'Set it before Spark is started, on driver and executors, or give option("redisUrlFile", PATH) with a file '
                "that holds the URL."
            )
        return _readable(url)


def _from_file(path: str) -> str:
    try:
        url = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
    else:
        if url:
            return _readable(url)
        reason = "it is empty"
    raise InvalidSettings(f"The file {path!r}, which should hold Redis's URL, cannot be read: {reason}.")


def _readable(url: str) -> str:
    if url.startswith("memory:"):
        raise InvalidSettings(
            "memory:// lives in one process, where Spark cannot read it; give the URL of a real Redis."
        )
    return url


def instant_ms(text: str) -> int:
    """Returns milliseconds since 1970 from ISO 8601, such a number, or a duration ago such as ``90m``. Times before
    1970 become 1970.

    Raises:
        InvalidSettings: it is none of these.
    """
    try:
        return max(0, _instant_ms(text))
    except (ValueError, OverflowError):
        raise InvalidSettings(
            f"{text[:40]!r} is not a point in time: write 2026-11-21T10:00:00Z, milliseconds since 1970, or 2h for two hours ago."
        ) from None


def _instant_ms(text: str) -> int:
    if re.fullmatch(r"[0-9]{12,14}", text):  # Fewer digits are likely to be seconds.
        return int(text)
    ago = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])", text)
    if ago:
        return int(time.time() * 1000 - float(ago[1]) * _UNITS_MS[ago[2]])
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _names(text: str) -> tuple[str, ...]:
    if "://" in text:
        raise InvalidSettings("groups holds a URL: give the names of groups, and the URL where Spark does not show it.")
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _variable(text: str) -> str:
    """A value given by mistake may be the URL itself, so it is not repeated."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise InvalidSettings(
            "redisUrlEnv is not the name of an environment variable: give that of one that holds Redis's URL."
        )
    return text


def _path(text: str) -> str:
    """A value given by mistake may be the URL itself, so it is not repeated."""
    if "://" in text:
        raise InvalidSettings("redisUrlFile is a URL, not a path: give the path of a file that holds Redis's URL.")
    return text


def _count(name: str, *, least: int = 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,15}", text) or int(text) < least:
            raise InvalidSettings(f"{name} is {text!r}: give a whole number from {least} on.")
        return int(text)

    return read


def _policy(text: str) -> OnGap:
    policies: dict[str, OnGap] = {"report": "report", "fail": "fail"}
    if text not in policies:
        raise InvalidSettings(f"onGap is {text!r}: give 'report' for rows of kind gap, or 'fail'.")
    return policies[text]


def _plain(url: str) -> str:
    if "@" in url or redact(url) != url:
        raise InvalidSettings(
            "Options of a query are shown in plans and logs, so redisUrl may hold no password: set "
            f'{DEFAULT_VARIABLE}, or give option("redisUrlFile", PATH).'
        )
    if "://" not in url:
        raise not_a_coordinator_url()
    return url


def _reader(name: str, convert: Callable[[str], object]) -> Callable[[str], tuple[str, object]]:
    return lambda text: (name, convert(text))


_SPELT: dict[str, Callable[[str], tuple[str, object]]] = {
    "groups": _reader("groups", _names),
    "since": _reader("since_ms", instant_ms),
    "until": _reader("until_ms", instant_ms),
    "onGap": _reader("on_gap", _policy),
    "maxEntriesPerBatch": _reader("max_entries_per_batch", _count("maxEntriesPerBatch")),
    "partitionEntries": _reader("partition_entries", _count("partitionEntries")),
    "minPartitions": _reader("min_partitions", _count("minPartitions")),
    "retryS": _reader("retry_s", _count("retryS", least=0)),
    "redisUrlEnv": _reader("url_variable", _variable),
    "redisUrlFile": _reader("url_file", _path),
    "redisUrl": _reader("plain_url", _plain),
    "keyPrefix": _reader("key_prefix", partial(validate_name, "key prefix")),
}
_READERS = {name.lower(): read for name, read in _SPELT.items()}
