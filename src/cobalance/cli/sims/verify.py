"""``cobalance sims verify``: tells whether new settings did what was promised of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import attrs
from cyclopts import App, Parameter

from cobalance.cli.exits import OK
from cobalance.cli.options import Json
from cobalance.cli.output import print_json
from cobalance.cli.sims.calibrate import (
    NO_JOURNAL,
    UNTOLD,
    TimesInForce,
    calibrated,
    events_of,
    in_force_of,
)
from cobalance.cli.sims.places import check_sources
from cobalance.cli.sims.spark_options import HERE, SparkOptions
from cobalance.cli.sims.tune import REFUSED, given_time
from cobalance_sims.simulate.churn import CHURNS, Churn
from cobalance_sims.spark.interruption import interruptible, quiet_interrupts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cobalance_sims.verify.promise import Promise, PromiseOutcome

CODES: dict[PromiseOutcome, int] = {"kept": OK, "broken": REFUSED, "unknown": 6}

EPILOGUE = """\
Export the journal before the settings are changed, and again some time later with --since that moment:

    cobalance sims journal --group orders --out J1
    cobalance group configure orders --session-timeout 6s
    cobalance sims journal --group orders --since 24h --out J2
    cobalance sims verify --before J1 --after J2

Exit codes: 0 what was promised came true, 1 it failed, 2 wrong usage, 5 it did not come true,
6 the events from after are too few to tell.
"""

app = App(name="verify", help_epilogue=EPILOGUE, help_format="plaintext")


@app.default
def verify(
    *,
    before: Annotated[tuple[str, ...], Parameter(negative="", help="Folders of events from before; repeatable.")],
    after: Annotated[tuple[str, ...], Parameter(negative="", help="Folders of events from after; repeatable.")],
    group: Annotated[tuple[str, ...], Parameter(negative="", help="Only these groups; repeatable.")] = (),
    setting: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="SETTING=TIME, one of the new settings, if the events do not tell; repeatable."),
    ] = (),
    assume: Annotated[
        str, Parameter(help=f"The churn for what the events do not tell: {', '.join(CHURNS)}.")
    ] = "steady",
    in_force: TimesInForce = UNTOLD,
    json: Json = False,
    spark: SparkOptions = HERE,
) -> int:
    """Compare what a group did under new settings with what its old churn does under them."""
    from cobalance_sims.verify.promise import page

    base, given = Churn.of(assume), dict(given_time(word, "--setting") for word in setting)
    spark.check()
    check_sources([*before, *after], spark.master)
    with interruptible() as interrupted, spark.session() as session, quiet_interrupts(interrupted):
        selection = attrs.evolve(NO_JOURNAL, group=group)
        with events_of(session, before, selection) as old, events_of(session, after, selection) as new:
            found = _verified(old, new, base, given, in_force)
    if json:
        print_json({"outcome": found.outcome, **attrs.asdict(found)})
    else:
        sys.stdout.write(page(found))
    return CODES[found.outcome]


def _verified(
    old_events: DataFrame, new_events: DataFrame, base: Churn, given: dict[str, int], in_force: TimesInForce
) -> Promise:
    from cobalance_sims.verify import check
    from cobalance_sims.verify.as_journal import observed
    from cobalance_sims.verify.prediction import on_spark, rows, warm_ms
    from cobalance_sims.verify.promise import Promise, drifts, figures_of

    old = calibrated(old_events, "before", base, in_force.times, in_force.prefetch)
    before = in_force_of(old)
    times = {name: getattr(before, name) for name in in_force.times}
    new = calibrated(new_events, "after", base, {**times, **given}, in_force.prefetch)
    after = attrs.evolve(before, **{**new.settings, **given})  # type: ignore[arg-type]  # it checks them
    were, are = observed(old_events, warm_ms(before)), observed(new_events, warm_ms(after))
    sys.stderr.write("simulating the old churn under the new settings\n")
    predicted = on_spark(new_events.sparkSession, rows(old, after, are), after)
    return Promise(
        before=before,
        after=after,
        were=figures_of(were),
        check=check.check(old, are, predicted),
        drifts=drifts(old, new),
    )
