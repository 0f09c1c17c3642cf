"""``cobalance sims journal``: exports the journals of production groups from Redis to Parquet."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import attrs
from cyclopts import App, Parameter, Token
from cyclopts.validators import Number

from cobalance.cli.options import KeyPrefix
from cobalance.cli.sims.places import check_groups
from cobalance.cli.sims.spark_options import HERE, SparkOptions
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.open import DEFAULT_REDIS_URL, open_transport
from cobalance.errors import UnknownGroup, UsageError, counted
from cobalance_sims.spark.interruption import sigterm_interrupts, stop_wished
from cobalance_sims.spark.journal_folder import CHECKPOINT, EVENTS, exported_here, holds_everything, lost_its_place
from cobalance_sims.spark.journal_options import DEFAULT_VARIABLE, JournalOptions
from cobalance_sims.spark.manifest import folder_of, only_writer
from cobalance_sims.spark.session import check_streams, find_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from cobalance_sims.spark.journal_folder import Exported

ATTEMPTS = 20
"""In a row, for a stream whose Python process was too slow to start."""
BUSY = "This machine is busy: a Python process of Spark's took more than ten seconds to start. Trying again.\n"
ASKED_EVERY_S = 1
"""How often to check whether the query has ended."""

app = App(name="journal")


def _path(_: object, tokens: Sequence[Token]) -> str:
    text = tokens[0].value
    if "://" in text:  # it may contain a password, so it is not repeated
        raise UsageError(
            "--redis-url-file: it is a URL, not a path: give the path of a file that holds it, or --redis-url"
        )
    return str(Path(text).absolute())


def _seconds(_: object, tokens: Sequence[Token]) -> float:
    try:
        seconds = float(tokens[0].value)
    except ValueError:
        seconds = math.nan
    if not 0.001 <= seconds <= 86_400:
        raise ValueError(f"{tokens[0].value!r} is no number of seconds from 0.001 to 86400")
    return seconds


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class WhereRedisIs:
    """How the workers find Redis."""

    redis_url: Annotated[
        str | None,
        Parameter(
            help=f"By default {DEFAULT_VARIABLE}, or the Redis on this machine; on a cluster, set the variable for its workers."
        ),
    ] = None
    redis_url_file: Annotated[
        str | None, Parameter(converter=_path, help="A file with the URL, present on every worker.")
    ] = None
    key_prefix: KeyPrefix = DEFAULT_PREFIX


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Reading:
    """What to read, and how to continue."""

    group: Annotated[
        tuple[str, ...],
        Parameter(negative="", required=True, help="A group, or a pattern such as 'orders-*'; repeatable."),
    ]
    since: Annotated[
        str | None,
        Parameter(help="2026-11-21T10:00:00Z, or 2h for two hours ago; the first export into the folder decides."),
    ] = None
    on_gap: Annotated[Literal["report", "fail"], Parameter(help="What to do if Redis has trimmed entries.")] = "report"
    max_entries: Annotated[int, Parameter(validator=Number(gte=1), help="In one folder.")] = 1_000_000


HERE_TOO = WhereRedisIs()


@app.default
def journal(
    *,
    out: Annotated[str, Parameter(help="Its subfolder events is the input of calibrate and report.")],
    reading: Reading,
    follow: Annotated[bool, Parameter(negative="", help="Continue with new entries until Ctrl-C.")] = False,
    every: Annotated[float, Parameter(converter=_seconds, help="With --follow, the interval in seconds.")] = 10.0,
    redis: WhereRedisIs = HERE_TOO,
    spark: SparkOptions = HERE,
) -> None:
    """Export the journals of groups from Redis to Parquet. Repeating the command continues where it stopped."""
    _check_folder(out)
    check_streams()
    with sigterm_interrupts(), only_writer(out), _address(redis, spark.master) as address:
        settings = _settings(reading, redis, address, spark.master)
        if find_target(spark.master, os.environ).local and not follow:  # whoever follows, waits
            known = JournalOptions.read(settings)
            _check_groups(known)
            if _is_up_to_date(out, known):
                return
        with spark.session() as session:
            _export(session, out, settings, every if follow else None)


def _check_groups(known: JournalOptions) -> None:
    from cobalance_sims.spark.journal_export import KEPT

    try:
        check_groups(known)
    except UnknownGroup as error:
        raise UnknownGroup(f"{error} {KEPT}") from None


def _is_up_to_date(out: str, known: JournalOptions) -> bool:
    """Whether the folder, if it is one of this machine, holds all there is; then it is shown here, without Spark."""
    folder = folder_of(out)
    if folder is None or not holds_everything(folder, known):
        return False
    found = exported_here(folder)
    for it in found:
        print(summary(it))
    return bool(found)


def _check_folder(out: str) -> None:
    folder = folder_of(out)
    if folder is not None and (folder / EVENTS).exists() and not (folder / CHECKPOINT).exists():
        raise lost_its_place(str(folder))


@contextmanager
def _address(redis: WhereRedisIs, master: str | None) -> Iterator[dict[str, str]]:
    """The option by which the workers find Redis. On this machine the URL is passed in a file that only this user can
    read.
    """
    if redis.redis_url_file:
        yield {"redisUrlFile": redis.redis_url_file}
        return
    if not find_target(master, os.environ).local:
        if redis.redis_url:
            raise UsageError(
                f"On a cluster, --redis-url would not reach the workers but in plans and logs: set {DEFAULT_VARIABLE} in their "
                "environment (spark.executorEnv shows it on Spark's web page), or give --redis-url-file."
            )
        yield {}
        return
    with tempfile.NamedTemporaryFile("w", prefix="cobalance-redis-") as file:
        file.write(redis.redis_url or os.environ.get(DEFAULT_VARIABLE) or DEFAULT_REDIS_URL)
        file.flush()
        yield {"redisUrlFile": file.name}


def _settings(reading: Reading, redis: WhereRedisIs, address: dict[str, str], master: str | None) -> dict[str, str]:
    """The options of the source. Errors in them are reported before Spark starts, as far as this machine can tell."""
    settings = {
        "groups": ",".join(reading.group),
        "onGap": reading.on_gap,
        "maxEntriesPerBatch": str(reading.max_entries),
        "keyPrefix": redis.key_prefix,
        **({"since": reading.since} if reading.since else {}),
        **address,
    }
    known = JournalOptions.read(settings)
    if find_target(master, os.environ).local:
        open_transport(known.redis_url()).close()
    return settings


def _export(spark: SparkSession, out: str, settings: dict[str, str], every_s: float | None) -> None:
    from cobalance_sims.spark.journal_export import exported, own_words, start_export

    with own_words("reading the journal"):
        ended = to_the_end(lambda: start_export(spark, out, settings, every_s))
    if not (ended or every_s):
        raise KeyboardInterrupt
    for found in exported(spark, out):
        print(summary(found))


def to_the_end(start: Callable[[], StreamingQuery]) -> bool:
    """Runs to the end of the query, or (False) until Ctrl-C. A query whose Python process was too slow to start is
    restarted.
    """
    from cobalance_sims.spark.journal_export import KEPT, JournalFailed, is_starved

    attempts = 0
    with stop_wished() as wished:
        while attempts < ATTEMPTS:
            query = start()
            try:
                return _ended(query, wished)
            except Exception as error:
                if not is_starved(error):
                    raise
                attempts = 1 if query.lastProgress else attempts + 1
                sys.stderr.write(BUSY)
    raise JournalFailed(
        f"This machine is too busy for Spark: {ATTEMPTS} times in a row a Python process took more than ten seconds to start. {KEPT}"
    )


def _ended(query: StreamingQuery, wished: threading.Event) -> bool:
    """Whether it ended by itself, rather than on request."""
    while not wished.is_set():
        if query.awaitTermination(ASKED_EVERY_S):
            return True
    query.stop()
    return False


def summary(found: Exported) -> str:
    """A line about one group."""
    gaps = f"; MISSING: {', '.join(found.gaps[:5])}{', …' if len(found.gaps) > 5 else ''}" if found.gaps else ""
    return f"{found.group}: {counted(found.events, 'event')}, {_moment(found.first_at_ms)} to {_moment(found.last_at_ms)}{gaps}"


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
