"""What the fits need of any number of events, reduced by Spark: histograms, sums, and one row for each member.

It uses the DataFrame API alone, with SQL functions only: except for the lines of scripts that died, no row passes
through Python before it is aggregated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from cobalance.errors import CobalanceError
from cobalance.ownership import BEGINNINGS, CUT_SHORT
from cobalance.settings import STORED_NAMES
from cobalance_sims import histogram
from cobalance_sims.calibrate.pauses import LatenessReports, Return
from cobalance_sims.calibrate.sample import DurationSample
from cobalance_sims.outcomes import Event
from cobalance_sims.outcomes.crashes import SEEN, UNSAID
from cobalance_sims.outcomes.repairs import AFTER, undone
from cobalance_sims.records import EVENT
from cobalance_sims.spark.errors import spark_errors
from cobalance_sims.spark.kept import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


T = TypeVar("T")


class StrangeEvents(CobalanceError):
    """The rows are not events, or those of another version."""


@attrs.frozen(kw_only=True)
class Handlers:
    """Handler times: each tenure reports how many messages it handled, and how long that took in all."""

    tenures: int
    handled: int
    busy_ms: int
    squares: float
    """Sum over tenures of busy² / handled, from which the spread of one handler call follows."""
    held_ms: int
    """How long those tenures were, as far as their beginning was seen too."""
    held_handled: int
    """Messages handled in those."""


@attrs.frozen(kw_only=True)
class Life:
    """One member, according to the events. Times are on the group's clock; ``None`` is not known, or not yet."""

    run: str
    member: str
    joined_at_ms: int | None
    leaving_at_ms: int | None
    """When it began to leave gracefully, if that was seen."""
    previous: str
    """The member that the same process was before its session broke, if it was one."""
    gone_at_ms: int | None
    gone: str
    """How it first ended: left, expired_member or graced; empty while it has not."""
    reason: str
    kept: str
    """What happened to a graced one: inherited by its successor, or the grace ran out; empty if neither yet."""
    capacity: int = 1


@attrs.frozen(kw_only=True)
class Observation:
    """What was observed of one run or group."""

    run: str
    source: str
    from_ms: int
    to_ms: int
    events: int
    missing: int
    resources: int
    is_whole: bool
    """Whether the group's very first event is among them."""

    @property
    def hours(self) -> float:
        return (self.to_ms - self.from_ms) / 3_600_000


@attrs.frozen(kw_only=True)
class Tallies:
    windows: list[Observation]
    lives: list[Life]
    drains: dict[str, DurationSample]
    handlers: dict[str, Handlers]
    late: dict[int, LatenessReports]
    """Reports of lateness, by the bin of the lateness; without those of members that have just come back."""
    settings: dict[str, int | str]
    """The latest settings in ``configured`` entries, by their names in GroupSettings, if all groups agree."""
    returns: list[Return] = attrs.field(factory=list)
    """Members that expired, and came back."""


def tallies(events: DataFrame) -> Tallies:
    """Reduces rows of EVENT (records.py), in any order. Several groups or runs are taken together as one."""
    nothing = Tallies(windows=[], lives=[], drains={}, handlers={}, late={}, settings={})
    return _tallied(events, "''").get("", nothing)


def tallies_by_run(events: DataFrame) -> dict[str, Tallies]:
    """The same for each group or run by itself, with as many jobs."""
    return _tallied(events, "run")


def _tallied(events: DataFrame, whose: str) -> dict[str, Tallies]:
    """By the value of an SQL expression: what has the same is taken together."""
    with spark_errors("tallying the events"):
        rows = events.where("kind IS NULL OR kind <> 'gap'").selectExpr("*", f"{whose} AS whose")
        with kept(rows) as there:
            windows, happened = _windows(there), _happened(there)
            drains, handlers, late = _drains(happened), _handlers(happened), _late(happened)
            lives, returns, settings = _lives(happened), _returns(happened), _settings(happened)
    return {
        name: Tallies(
            windows=found,
            lives=lives.get(name, []),
            drains=drains.get(name, {}),
            handlers=handlers.get(name, {}),
            late=late.get(name, {}),
            returns=returns.get(name, []),
            settings=agreed(settings, [it.run for it in found]),
        )
        for name, found in windows.items()
    }


def _by_whose(rows: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for whose, it in rows:
        found.setdefault(whose, []).append(it)
    return found


def _windows(events: DataFrame) -> dict[str, list[Observation]]:
    """The seq may jump where an incarnation begins; any other jump is a gap.

    The jumps of a run add up to its whole range less what is there. So only those of its few incarnations are looked for,
    and no run has to be sorted, which one task would do alone, however long the run is.
    """
    from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

    begun = events.where("kind = 'incarnation'").select("whose", "run", F.col("seq").alias("begun"))
    jumps = (
        events.join(F.broadcast(begun), ["whose", "run"])
        .where("seq < begun")
        .groupBy("whose", "run", "begun")
        .agg((F.col("begun") - F.max("seq") - 1).alias("jump"))
        .groupBy("whose", "run")
        .agg(F.sum("jump").alias("jumped"))
    )
    strange = F.col("run").isNull() | F.col("seq").isNull() | F.col("kind").isNull() | F.col("at_ms").isNull()
    rows = (
        events.groupBy("whose", "run")
        .agg(
            F.first("source").alias("source"),
            F.min("at_ms").alias("from_ms"),
            F.max("at_ms").alias("to_ms"),
            F.count("*").alias("events"),
            (F.max("seq") - F.min("seq") + 1 - F.count("*")).alias("absent"),
            F.count_distinct("resource").alias("resources"),
            (F.min("seq") == 1).alias("is_whole"),
            F.count_if(strange).alias("strange"),
        )
        .join(F.broadcast(jumps), ["whose", "run"], "left")
        .withColumn("missing", F.col("absent") - F.coalesce("jumped", F.lit(0)))
        .orderBy("run")
        .collect()
    )
    if any(row["strange"] for row in rows):
        raise StrangeEvents(
            "There are rows without run, seq, kind or time: other data, or of another version of Cobalance. Export the journal "
            "again with cobalance sims journal."
        )
    names = attrs.fields_dict(Observation)
    return _by_whose((row["whose"], Observation(**{name: row[name] for name in names})) for row in rows)


def _happened(events: DataFrame) -> DataFrame:
    """Removes what repairs took back. Only the few lines of scripts that died pass through Python."""
    from pyspark.sql import functions as F  # noqa: N812

    after = F.regexp_extract("reason", AFTER, 1)
    repairs = events.where((F.col("kind") == "repaired") & (after != "")).select(
        "run", after.cast("long").alias("after"), F.col("seq").alias("until")
    )
    torn = events.join(F.broadcast(repairs), "run").where("seq > after AND seq <= until").select(*EVENT.names)
    by_run: dict[str, list[Event]] = {}
    for row in torn.distinct().orderBy("seq").collect():
        by_run.setdefault(row["run"], []).append(Event(*row))
    gone = [(run, seq) for run, lines in by_run.items() for seq in undone(lines)]
    if not gone:
        return events
    rows = events.sparkSession.createDataFrame(gone, "run string, seq bigint")
    return events.join(F.broadcast(rows), ["run", "seq"], "left_anti")


def _by_seq(*keys: str) -> Any:
    from pyspark.sql import Window

    return Window.partitionBy(*keys).orderBy("seq")


def _lives(events: DataFrame) -> dict[str, list[Life]]:
    from pyspark.sql import functions as F  # noqa: N812

    joined, leaving = F.col("kind") == "joined", F.col("kind") == "leaving"
    gone = F.col("kind").isin("left", "expired_member", "graced")
    ending = F.when(gone, F.struct("seq", "at_ms", "kind", F.coalesce("reason", F.lit("")).alias("reason")))
    rows = (
        events.where(joined | leaving | gone)
        .groupBy("whose", "run", "member")
        .agg(
            F.min(F.when(joined, F.col("at_ms"))).alias("joined_at_ms"),
            F.min(F.when(leaving, F.col("at_ms"))).alias("leaving_at_ms"),
            F.max(F.when(joined, F.col("reason"))).alias("previous"),
            F.max(F.when(joined, F.col("capacity"))).alias("capacity"),
            F.min(ending).alias("first"),
            F.max(ending).alias("last"),
        )
        .orderBy("run", "joined_at_ms", "member")
    )
    return _by_whose((row["whose"], _life(row.asDict(recursive=True))) for row in rows.collect())


def _life(row: dict[str, Any]) -> Life:
    first, last = row["first"], row["last"]
    is_kept = first is not None and first["kind"] == "graced" and last["seq"] > first["seq"]
    return Life(
        run=row["run"],
        member=row["member"],
        joined_at_ms=row["joined_at_ms"],
        leaving_at_ms=row["leaving_at_ms"],
        previous="" if row["previous"] in (None, "-") else row["previous"],
        gone_at_ms=first and first["at_ms"],
        gone=first["kind"] if first else "",
        reason=first["reason"] if first else "",
        kept=last["reason"] if is_kept else "",
        capacity=1 if row["capacity"] is None else row["capacity"],
    )


def _drains(events: DataFrame) -> dict[str, dict[str, DurationSample]]:
    """A tenure that ended with a deadline set had been revoked: its drain was over, or was cut short.

    An expiry says nothing about drains: its holder was gone before, since an unknown time.
    """
    from pyspark.sql import functions as F  # noqa: N812

    ended = F.col("kind").isin("released", *sorted(CUT_SHORT)) & F.col("deadline_ms").isNotNull()
    drains = events.where((ended | (F.col("kind") == "cancelled")) & F.col("drain_ms").isNotNull()).select(
        "whose",
        "resource",
        (F.col("kind") == "released").alias("exact"),
        F.expr(histogram.sql("drain_ms")).alias("bin"),
    )
    rows = drains.groupBy("whose", "resource", "exact", "bin").count().collect()
    found: dict[str, dict[str, dict[bool, dict[int, int]]]] = {}
    for row in rows:
        both = found.setdefault(row["whose"], {}).setdefault(row["resource"], {True: {}, False: {}})
        both[row["exact"]][row["bin"]] = row["count"]
    return {
        whose: {resource: DurationSample(both[True], both[False]) for resource, both in sorted(them.items())}
        for whose, them in found.items()
    }


def _handlers(events: DataFrame) -> dict[str, dict[str, Handlers]]:
    from pyspark.sql import functions as F  # noqa: N812

    begun = F.col("kind").isin(*sorted(BEGINNINGS))
    tenures = (
        events.where(begun | F.col("busy_ms").isNotNull())
        .groupBy("whose", "run", "resource", "token")
        .agg(
            F.min(F.when(begun, F.col("at_ms"))).alias("from_ms"),
            F.max(F.when(F.col("busy_ms").isNotNull(), F.struct("at_ms", "handled", "busy_ms"))).alias("end"),
        )
        .where("end IS NOT NULL")
        .select(
            "whose", "resource", (F.col("end.at_ms") - F.col("from_ms")).alias("held_ms"), "end.handled", "end.busy_ms"
        )
    )
    busy = F.col("busy_ms").cast("double")
    rows = (
        tenures.groupBy("whose", "resource")
        .agg(
            F.sum((F.col("handled") > 0).cast("int")).alias("tenures"),
            F.sum("handled").alias("handled"),
            F.sum("busy_ms").alias("busy_ms"),
            F.coalesce(F.sum(F.when(F.col("handled") > 0, busy * busy / F.col("handled"))), F.lit(0.0)).alias(
                "squares"
            ),
            F.coalesce(F.sum("held_ms"), F.lit(0)).alias("held_ms"),
            F.coalesce(F.sum(F.when(F.col("held_ms").isNotNull(), F.col("handled"))), F.lit(0)).alias("held_handled"),
        )
        .orderBy("resource")
    )
    names = attrs.fields_dict(Handlers)
    each = [
        (row["whose"], (row["resource"], Handlers(**{name: row[name] for name in names}))) for row in rows.collect()
    ]
    return {whose: dict(them) for whose, them in _by_whose(each).items()}


def _late(events: DataFrame) -> dict[str, dict[int, LatenessReports]]:
    """A report covers the time since the member's last one, or since its join. The first one of a member that came back
    tells of its silence before that, which :func:`_returns` has: what it has been since is no later. So it counts as no
    late heartbeat, but its time does: to leave that out, but not the time of those that expired again, would make pauses
    look more frequent than they are.
    """
    from pyspark.sql import functions as F  # noqa: N812

    reporting = events.where((F.col("kind") == "joined") | F.col("late_ms").isNotNull())
    before = _by_seq("run", "member")
    reports = (
        reporting.withColumn("covered_ms", F.col("at_ms") - F.lag("at_ms").over(before))
        .withColumn("after_return", F.lag(_came_back()).over(before))
        .where("late_ms IS NOT NULL AND covered_ms IS NOT NULL")
        .groupBy("whose", F.expr(histogram.sql("late_ms")).alias("bin"))
        .agg(F.count_if(~F.col("after_return")).alias("count"), F.sum("covered_ms").alias("covered_ms"))
    )
    found: dict[str, dict[int, LatenessReports]] = {}
    for row in reports.orderBy("bin").collect():
        found.setdefault(row["whose"], {})[row["bin"]] = LatenessReports(row["count"], row["covered_ms"])
    return found


def _came_back() -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return (F.col("kind") == "joined") & ~F.coalesce(F.col("reason"), F.lit("")).isin("", "-")


def _returns(events: DataFrame) -> dict[str, list[Return]]:
    from pyspark.sql import functions as F  # noqa: N812

    back = events.where(_came_back()).select("run", F.col("reason").alias("member"), F.col("at_ms").alias("back_ms"))
    expired = F.col("kind").isin("expired_member", "graced") & F.col("reason").isin(*sorted(UNSAID))
    rows = (
        events.where((F.col("kind") == "joined") | F.col("late_ms").isNotNull() | expired)
        .withColumn("told_ms", F.lag("at_ms").over(_by_seq("run", "member")))
        .where(expired & F.col("told_ms").isNotNull())
        .join(back, ["run", "member"])
        .where("back_ms >= at_ms")
        .orderBy("run", "seq")
        .selectExpr("whose", "back_ms - told_ms AS covered_ms", "back_ms - at_ms AS behind_ms", "reason")
    )
    return _by_whose(
        (row["whose"], Return(row["covered_ms"], row["behind_ms"], row["reason"] == SEEN)) for row in rows.collect()
    )


Settings = dict[str, int | str]


def _settings(events: DataFrame) -> dict[str, Settings]:
    """The settings of each run. An entry says what was changed, as pairs of words."""
    rows = events.where("kind = 'configured'").orderBy("at_ms", "seq").select("run", "reason").collect()
    names = {stored: name for name, stored in STORED_NAMES.items()}
    found: dict[str, Settings] = {}
    for row in rows:
        words = (row["reason"] or "").split()
        for stored, value in zip(words[::2], words[1::2], strict=False):
            if stored in names:
                found.setdefault(row["run"], {})[names[stored]] = int(value) if value.isdigit() else value
    return found


def agreed(settings: Mapping[str, Settings], runs: Sequence[str]) -> Settings:
    """The settings that all runs are known to share. Where they differ, there is none for several groups together."""
    first, *others = [settings.get(run, {}) for run in runs] or [{}]
    return {name: value for name, value in first.items() if all(it.get(name) == value for it in others)}
