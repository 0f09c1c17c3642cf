"""``cobalance sims journal``: the journals of production groups, from Redis into Parquet."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from cobalance.coordinator.open import open_transport
from cobalance.errors import UsageError
from cobalance.redact import redact
from cobalance_sims.commands.redis_options import add_key_prefix
from cobalance_sims.spark.errors import INSTALL, SparkMissing
from cobalance_sims.spark.interruption import sigterm_interrupts, stop_wished
from cobalance_sims.spark.journal_folder import CHECKPOINT, EVENTS, lost_its_place
from cobalance_sims.spark.journal_options import DEFAULT_VARIABLE, JournalOptions
from cobalance_sims.spark.manifest import only_writer
from cobalance_sims.spark.session import add_spark_options, find_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from cobalance_sims.spark.journal_export import Exported

DEFAULT_URL = "redis://127.0.0.1:6379/0"
USAGE = 2
ATTEMPTS = 20
"""In a row, of a stream whose Python process was too slow to start."""
BUSY = "This machine is busy: a Python process of Spark's took more than ten seconds to start. Trying again.\n"
ASKED_EVERY_S = 1
"""Whether the query has ended."""


def main(words: Sequence[str]) -> int:
    """Exports, and says what there is then; 2 when the command was wrong."""
    try:
        options = _parser().parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    _check_folder(options.out)
    try:
        from cobalance_sims.spark.session import session_of
    except ImportError as error:
        raise SparkMissing(f"Spark cannot be loaded ({error}): {INSTALL}") from None
    with sigterm_interrupts(), only_writer(options.out), _address(options) as address:
        settings = _settings(options, address)
        with session_of(options) as spark:
            _export(spark, options, settings)
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """What was mistyped may be a URL with a password."""
        super().error(redact(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cobalance sims journal",
        description="Export the journals of groups from Redis to Parquet. The same command again goes on where it stopped.",
    )
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="its sub-folder events is for calibrate, report and you"
    )
    parser.add_argument(
        "--group", action="append", required=True, metavar="NAME", help="or a pattern such as 'orders-*'; repeatable"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="2026-11-21T10:00:00Z, or 2h for two hours ago; the first export into DIR decides",
    )
    parser.add_argument("--follow", action="store_true", help="go on with whatever happens, until Ctrl-C")
    parser.add_argument(
        "--every", type=_seconds, default=10.0, metavar="S", help="with --follow, so often; 10 by default"
    )
    parser.add_argument("--on-gap", choices=("report", "fail"), default="report", help="when Redis has trimmed entries")
    parser.add_argument(
        "--max-entries", type=_count, default=1_000_000, metavar="N", help="in one folder; 1,000,000 by default"
    )
    parser.add_argument(
        "--redis-url",
        metavar="URL",
        help=f"by default {DEFAULT_VARIABLE}, or the Redis on this machine; on a cluster, set the variable for its workers",
    )
    parser.add_argument(
        "--redis-url-file", type=_path, metavar="PATH", help="a file with the URL, there for every worker"
    )
    add_key_prefix(parser)
    add_spark_options(parser)
    return parser


def _check_folder(out: str) -> None:
    parts = urlsplit(out)
    folder = Path(parts.path if parts.scheme == "file" else out)
    if parts.scheme in {"", "file"} and (folder / EVENTS).exists() and not (folder / CHECKPOINT).exists():
        raise lost_its_place(str(folder))


@contextmanager
def _address(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The option by which the workers find Redis. On this machine the URL goes through a file that only we can read."""
    if options.redis_url_file:
        yield {"redisUrlFile": options.redis_url_file}
        return
    if not find_target(options.master, os.environ).local:
        if options.redis_url:
            raise UsageError(
                f"On a cluster, --redis-url would not reach the workers but in plans and logs: set {DEFAULT_VARIABLE} in their "
                "environment (spark.executorEnv shows it on Spark's web page), or give --redis-url-file."
            )
        yield {}
        return
    with tempfile.NamedTemporaryFile("w", prefix="cobalance-redis-") as file:
        file.write(options.redis_url or os.environ.get(DEFAULT_VARIABLE) or DEFAULT_URL)
        file.flush()
        yield {"redisUrlFile": file.name}


def _settings(options: argparse.Namespace, address: dict[str, str]) -> dict[str, str]:
    """The options of the source. What is wrong with them shows before Spark is started, as far as this machine can tell."""
    settings = {
        "groups": ",".join(options.group),
        "onGap": options.on_gap,
        "maxEntriesPerBatch": str(options.max_entries),
        "keyPrefix": options.key_prefix,
        **({"since": options.since} if options.since else {}),
        **address,
    }
    known = JournalOptions.read(settings)
    if find_target(options.master, os.environ).local:
        open_transport(known.redis_url()).close()
    return settings


def _export(spark: SparkSession, options: argparse.Namespace, settings: dict[str, str]) -> None:
    from cobalance_sims.spark.journal_export import exported, own_words, start_export

    with own_words("reading the journal"):
        ended = follow(lambda: start_export(spark, options.out, settings, options.every if options.follow else None))
    if not (ended or options.follow):
        raise KeyboardInterrupt
    for found in exported(spark, options.out):
        sys.stdout.write(told(found) + "\n")


def follow(start: Callable[[], StreamingQuery]) -> bool:
    """To the end of the query, or (False) to Ctrl-C. One whose Python process was too slow to start is started again."""
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
    """Whether it ended by itself, and not because somebody wished it."""
    while not wished.is_set():
        if query.awaitTermination(ASKED_EVERY_S):
            return True
    query.stop()
    return False


def _path(text: str) -> str:
    if "://" in text:  # with a password, perhaps, so it is not repeated
        raise argparse.ArgumentTypeError(
            "it is no path but a URL: give the path of a file that holds it, or --redis-url"
        )
    return str(Path(text).absolute())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.001 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.001 to 86400")
    return seconds


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def told(found: Exported) -> str:
    """A line about one group."""
    gaps = f"; MISSING: {', '.join(found.gaps[:5])}{', …' if len(found.gaps) > 5 else ''}" if found.gaps else ""
    return f"{found.group}: {found.events:,} events, {_moment(found.first_at_ms)} to {_moment(found.last_at_ms)}{gaps}"


def _moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
