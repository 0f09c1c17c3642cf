"""From events to a churn, through Spark: the simulator's parameters are recovered, and bad input is explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.calibration import Calibration, calibrate
from cobalance_sims.calibrate.source import NoEvents, from_parquet
from cobalance_sims.calibrate.tallies import StrangeEvents, tallies
from cobalance_sims.records import EVENT, OUTCOME
from cobalance_sims.simulate.churn import CHURNS, Churn
from cobalance_sims.simulate.distributions import parse
from cobalance_sims.simulate.kernel import run_row
from cobalance_sims.spark.schemas import arrow_schema
from cobalance_sims.tune.runners import InProcess, OnSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long_campaign]  # half an hour of a group's life, five times

TRUTH = Churn(
    name="truth",
    members=6,
    resources=24,
    length_ms=1_800_000,
    deploy="rolling",
    deploy_every_ms=900_000,
    crashes_per_member_hour=3.0,
    pauses_per_member_hour=30.0,
    pause_ms="lognormal:2000:1.0",
    drain_ms="lognormal:3000:1.2",
    messages_per_s=2.0,
)
SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=10_000)
"""Many drains are cut short, and sessions outlast most pauses; test_round_trip.py has the defaults that are shipped."""


@attrs.frozen
class Recovered:
    """The fits, and what the simulator knows to have happened."""

    found: Calibration
    crashes: int
    pauses: int


@pytest.fixture(scope="module")
def recovered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recovered:
    """From five simulated half hours."""
    folder = tmp_path_factory.mktemp("events")
    names = ("session_timeout_ms", "heartbeat_interval_ms", "revocation_timeout_ms")
    row = {"churn": TRUTH, "checks": "none", **{name: getattr(SETTINGS, name) for name in names}}
    results = [run_row({**row, "seed": seed, "run": f"run{seed}"}) for seed in range(5)]
    rows, schema = [event for it in results for event in it.events], arrow_schema(EVENT)
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), folder / "part.parquet")
    found = calibrate(
        tallies(from_parquet(spark, [str(folder)])),
        CHURNS["steady"],
        name="recovered",
        session_timeout_ms=SETTINGS.session_timeout_ms,
        heartbeat_interval_ms=SETTINGS.heartbeat_interval_ms,
    )
    outcomes = [dict(zip(OUTCOME.names, it.outcome, strict=True)) for it in results]
    return Recovered(found, *(sum(it[name] for it in outcomes) for name in ("crashes", "pauses")))


def test_what_was_put_in_comes_out(recovered: Recovered) -> None:
    """Drains, many cut short, and pauses: each truth lies in its interval; rates are compared with what happened."""
    found = recovered.found
    intervals = {it.name: it.interval for it in found.parameters if it.interval is not None}
    assert 3_000 in intervals["drain_ms"]
    assert found.drains.sigma is not None
    assert 1.2 in found.drains.sigma
    assert found.drains.cut_short > 25
    assert recovered.crashes / found.group.member_hours in intervals["crashes_per_member_hour"]
    assert recovered.pauses / found.group.member_hours in intervals["pauses_per_member_hour"]
    assert found.pauses.median_ms is not None
    assert 2_000 in found.pauses.median_ms


def test_the_shape_of_the_group_comes_out(recovered: Recovered) -> None:
    """Its size, how it is deployed, and how many messages come."""
    found = recovered.found
    churn = found.churn()
    assert (churn.members, churn.resources, churn.deploy, churn.instances) == (6, 24, "rolling", False)
    assert churn.deploy_every_ms == pytest.approx(900_000, rel=0.3)
    assert churn.startup_ms.quantile(0.5) == pytest.approx(parse("lognormal:3000:0.4").quantile(0.5), rel=0.3)
    assert churn.messages_per_s == pytest.approx(2.0, rel=0.1)
    assert found.missing_events == 0


def test_spark_makes_the_same_runs(spark: SparkSession) -> None:
    """Two choices, two seeds: outcome for outcome what this process makes, except for the time it took."""
    churn = Churn(members=3, resources=6, length_ms=60_000, deploy="rolling", deploy_every_ms=30_000)
    asked = [(settings, seed) for settings in (GroupSettings(), GroupSettings(gather_ms=0)) for seed in (1, 2)]
    here, there = InProcess(churn)(asked), OnSpark(churn, spark)(asked)
    ordered = [
        sorted(({**row, "cpu_s": 0} for row in rows), key=lambda row: (row["gather_ms"], row["seed"]))
        for rows in (here, there)
    ]
    assert ordered[0] == ordered[1]


def test_what_holds_no_events_is_told_so(spark: SparkSession, tmp_path: Path) -> None:
    """No folder, and Parquet of something else."""
    with pytest.raises(NoEvents, match="no folder of Parquet"):
        from_parquet(spark, [str(tmp_path / "nowhere")])
    pq.write_table(pa.table({"colour": ["blue"]}), tmp_path / "part.parquet")
    with pytest.raises(StrangeEvents, match="Export the journal again"):
        tallies(from_parquet(spark, [str(tmp_path)]))
