"""``cobalance sims calibrate``: the churn of a group, and its drain and handler times, from its journal."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cobalance.cli.options import duration_ms
from cobalance.errors import CobalanceError, UsageError
from cobalance.settings import GroupSettings
from cobalance_sims.commands.places import check_folder, writing
from cobalance_sims.commands.redis_options import add_key_prefix
from cobalance_sims.simulate.churn import CHURNS
from cobalance_sims.spark.errors import INSTALL, SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cobalance_sims.calibrate.calibration import Calibration

FAILED, USAGE = 1, 2

EPILOG = """\
From a group's journal to its churn, by way of Parquet that can be read again:

    cobalance sims journal --group orders --redis-url URL --out JOURNAL
    cobalance sims calibrate JOURNAL --out DIR

or straight from Redis, whose URL is then in COBALANCE_REDIS_URL or in a file:

    cobalance sims calibrate --group orders --out DIR

What `cobalance sims sweep` writes is read, too. DIR then holds churn.json (for `cobalance sims tune --churn DIR` and for sweeps), calibration.json and calibration.txt. What the
events do not tell is taken from the churn that --assume names, and marked as assumed.
"""


def main(words: Sequence[str]) -> int:
    """Runs the command; its exit code: 1 when it could not be done, 2 when the command was wrong."""
    try:
        options = _parser().parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    from cobalance_sims.calibrate.written import page, write

    try:
        check_folder(options.out)
        calibration = _calibrate(options)
        sys.stdout.write(page(calibration))
        with writing(options.out):
            write(calibration, options.out)
    except CobalanceError as error:
        sys.stderr.write(f"error: {error}\n")
        return USAGE if isinstance(error, UsageError) else FAILED
    sys.stdout.write(f"Next: cobalance sims tune --churn {shlex.quote(str(options.out))}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    from cobalance_sims.spark.session import add_spark_options

    parser = argparse.ArgumentParser(
        prog="cobalance sims calibrate",
        description="Fit churn, drain and handler times to what a group did.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("events", nargs="*", metavar="PARQUET", help="folders of events, or of an export or a sweep")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--group", action="append", default=[], metavar="NAME", help="of these groups only; without PARQUET, from Redis"
    )
    parser.add_argument("--since", metavar="TIME", help="with Redis: 2026-11-21T10:00:00Z, or 2h for two hours ago")
    parser.add_argument(
        "--redis-url-file", metavar="PATH", help="with Redis: a file with its URL; else COBALANCE_REDIS_URL"
    )
    add_key_prefix(parser)
    parser.add_argument(
        "--assume",
        default="steady",
        metavar="CHURN",
        help=f"what the events do not tell: {', '.join(CHURNS)}; steady by default",
    )
    parser.add_argument("--session-timeout", metavar="TIME", help="that was in force, if the events do not tell")
    parser.add_argument("--heartbeat-interval", metavar="TIME", help="the same")
    add_spark_options(parser)
    return parser


def _calibrate(options: argparse.Namespace) -> Calibration:
    try:
        from cobalance_sims.calibrate.calibration import calibrate
        from cobalance_sims.calibrate.tallies import tallies
        from cobalance_sims.simulate.churn import Churn
        from cobalance_sims.spark.session import session_of
    except ImportError as error:
        raise SparkMissing(f"Spark cannot be loaded ({error}): {INSTALL}") from None
    base = Churn.of(options.assume)
    given = {
        f"{name}_ms": _duration(name, getattr(options, name)) for name in ("session_timeout", "heartbeat_interval")
    }
    with session_of(options) as spark, _events(spark, options) as events:
        found = tallies(events)
    settings = {**attrs.asdict(GroupSettings()), **found.settings, **{name: it for name, it in given.items() if it}}
    calibration = calibrate(
        found,
        base,
        name=options.out.name,
        session_timeout_ms=int(settings["session_timeout_ms"]),
        heartbeat_interval_ms=int(settings["heartbeat_interval_ms"]),
    )
    known = {**found.settings, **{name: it for name, it in given.items() if it}}
    notes = [
        f"The events do not tell the {name.removesuffix('_ms').replace('_', ' ')}, which is taken to be {settings[name]} ms: if it is "
        f"not, give --{name.removesuffix('_ms').replace('_', '-')}."
        for name in given
        if name not in known
    ]
    return attrs.evolve(calibration, settings=known, notes=[*calibration.notes, *notes])


def _duration(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else duration_ms(text)
    except ValueError as error:
        raise UsageError(f"--{name.replace('_', '-')}: {error}") from None


@contextmanager
def _events(spark: SparkSession, options: argparse.Namespace) -> Iterator[DataFrame]:
    from cobalance_sims.calibrate.source import from_parquet, from_redis

    if options.events:
        yield from_parquet(spark, options.events, options.group)
    elif options.group:
        yield from_redis(
            spark,
            options.group,
            since=options.since,
            url_file=options.redis_url_file,
            key_prefix=options.key_prefix,
        )
    else:
        raise UsageError("Give folders of events, or --group NAME to read its journal from Redis.")
