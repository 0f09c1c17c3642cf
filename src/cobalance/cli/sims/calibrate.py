"""``cobalance sims calibrate``: derives a group's churn, drain and handler times from its journal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
from cyclopts import App, Parameter
from cyclopts.validators import Number

from cobalance.cli.options import KeyPrefix, duration_option
from cobalance.cli.sims.places import check_folder, check_groups, check_sources, writing
from cobalance.cli.sims.spark_options import HERE, SparkOptions
from cobalance.coordinator.advice import command
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.errors import UsageError
from cobalance.settings import GroupSettings
from cobalance_sims.simulate.churn import CHURNS, Churn
from cobalance_sims.spark.interruption import interruptible, quiet_interrupts
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.session import find_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cobalance_sims.calibrate.calibration import Calibration
    from cobalance_sims.verify import check

EPILOGUE = """\
From a group's journal to its churn, by way of Parquet that can be read again:

    cobalance sims journal --group orders --redis-url URL --out JOURNAL
    cobalance sims calibrate JOURNAL --out DIR

or straight from Redis, whose URL is then in COBALANCE_REDIS_URL or in a file:

    cobalance sims calibrate --group orders --out DIR

What `cobalance sims sweep` writes is read, too. DIR then holds churn.json (for `cobalance sims tune --churn DIR` and for sweeps),
calibration.json and calibration.txt, and in check.json how the churn, simulated under the settings in force, compares with the
journal. What the events do not tell is taken from the churn that --assume names, and marked as assumed.
"""

app = App(name="calibrate", help_epilogue=EPILOGUE, help_format="plaintext")


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class JournalSelection:
    """Which events to read, and from where."""

    group: Annotated[
        tuple[str, ...],
        Parameter(
            negative="", show_default=False, help="Only these groups; without events, read from Redis. Repeatable."
        ),
    ] = ()
    since: Annotated[str | None, Parameter(help="With Redis: 2026-11-21T10:00:00Z, or 2h for two hours ago.")] = None
    redis_url_file: Annotated[
        str | None, Parameter(help="With Redis: a file with its URL; else COBALANCE_REDIS_URL.")
    ] = None
    key_prefix: KeyPrefix = DEFAULT_PREFIX


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class TimesInForce:
    """Settings that were in force, if the events do not contain them."""

    session_timeout_ms: Annotated[
        int | None, duration_option("session-timeout", "That was in force, if the events do not tell.")
    ] = None
    heartbeat_interval_ms: Annotated[int | None, duration_option("heartbeat-interval", "The same.")] = None
    prefetch: Annotated[
        int | None,
        Parameter(validator=Number(gte=1, lte=65_535), help="The prefetch of the consumers, which no event tells."),
    ] = None

    @property
    def times(self) -> dict[str, int | None]:
        """By the name of the setting."""
        return {"session_timeout_ms": self.session_timeout_ms, "heartbeat_interval_ms": self.heartbeat_interval_ms}


NO_JOURNAL = JournalSelection()
UNTOLD = TimesInForce()


@app.default
def calibrate(
    *events: Annotated[str, Parameter(help="Folders of events, or of an export or a sweep, as Parquet.")],
    out: Annotated[Path, Parameter(help="The folder for the results.")],
    assume: Annotated[
        str, Parameter(help=f"The churn for what the events do not tell: {', '.join(CHURNS)}.")
    ] = "steady",
    journal: JournalSelection = NO_JOURNAL,
    in_force: TimesInForce = UNTOLD,
    spark: SparkOptions = HERE,
) -> None:
    """Fit churn, drain and handler times to a group's events."""
    from cobalance_sims.calibrate.written import page, write
    from cobalance_sims.verify import check

    check_folder(out)
    spark.check()
    check_sources(events, spark.master)
    base = Churn.of(assume)
    if not (events or journal.group):
        raise UsageError("Give folders of events, or --group NAME to read its journal from Redis.")
    if not events:
        check_redis(journal, spark.master)
    with (
        interruptible() as interrupted,
        spark.session() as session,
        quiet_interrupts(interrupted),
        events_of(session, events, journal) as frame,
    ):
        calibration = calibrated(frame, out.name, base, in_force.times, in_force.prefetch)
        checked = compared(session, frame, calibration, in_force_of(calibration))
    print(check.page(checked))
    print(page(calibration), end="")
    with writing(out):
        write(calibration, out)
        check.write(checked, out)
    print(f"Next: {command('sims tune', key_prefix=None, churn=out)}")


def check_redis(journal: JournalSelection, master: str | None) -> None:
    """Checks what is to be read from Redis before Spark starts, as far as this machine can tell.

    Raises:
        InvalidSettings, Unreachable, UnknownGroup: an option is wrong, Redis does not answer, or has no such group.
    """
    known = JournalOptions.read(journal_options(journal))
    if find_target(master, os.environ).local:
        check_groups(known)


def journal_options(journal: JournalSelection) -> dict[str, str]:
    """As the data source takes them."""
    given = {
        "groups": ",".join(journal.group),
        "since": journal.since,
        "redisUrlFile": journal.redis_url_file,
        "keyPrefix": journal.key_prefix,
    }
    return {name: value for name, value in given.items() if value}


def in_force_of(calibration: Calibration) -> GroupSettings:
    """The settings that were in force; unknown ones have their default."""
    return GroupSettings(**calibration.settings)  # type: ignore[arg-type]  # GroupSettings checks them


def compared(spark: SparkSession, events: DataFrame, calibration: Calibration, settings: GroupSettings) -> check.Check:
    """Simulates the churn under these settings, which were in force when the events happened, and compares."""
    from cobalance_sims.verify import check
    from cobalance_sims.verify.as_journal import observed
    from cobalance_sims.verify.prediction import on_spark, rows, warm_ms

    seen = observed(events, warm_ms(settings))
    sys.stderr.write("simulating the churn, to compare it with its journal\n")
    return check.check(calibration, seen, on_spark(spark, rows(calibration, settings, seen), settings))


def calibrated(
    events: DataFrame, name: str, base: Churn, given: dict[str, int | None], prefetch: int | None = None
) -> Calibration:
    """Fits everything; see calibrate/calibration.py."""
    from cobalance_sims.calibrate.calibration import calibrate
    from cobalance_sims.calibrate.tallies import tallies

    found = tallies(events)
    known = {**found.settings, **{setting: it for setting, it in given.items() if it}}
    settings = {**attrs.asdict(GroupSettings()), **known}
    calibration = calibrate(
        found,
        base,
        name=name,
        session_timeout_ms=int(settings["session_timeout_ms"]),
        heartbeat_interval_ms=int(settings["heartbeat_interval_ms"]),
        prefetch=prefetch,
    )
    notes = [_untold(setting, settings[setting]) for setting in given if setting not in known]
    return attrs.evolve(calibration, settings=known, notes=[*calibration.notes, *notes])


def _untold(setting: str, ms: int) -> str:
    name = setting.removesuffix("_ms")
    return (
        f"The events do not tell the {name.replace('_', ' ')}, which is taken to be {ms} ms: if it is "
        f"not, give --{name.replace('_', '-')}."
    )


@contextmanager
def events_of(spark: SparkSession, folders: tuple[str, ...], journal: JournalSelection) -> Iterator[DataFrame]:
    from cobalance_sims.calibrate.source import from_parquet

    if folders:
        yield from_parquet(spark, list(folders), list(journal.group))
    else:
        yield spark.read.format("cobalance").options(**journal_options(journal)).load()
