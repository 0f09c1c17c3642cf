"""``calibrate`` with its predictive check and ``verify``, as commands, from simulated journals in Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cobalance.cli.app import run as main
from cobalance.cli.sims.tune import REFUSED
from cobalance.settings import GroupSettings
from cobalance_sims.records import EVENT
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.simulate.kernel import run_row
from cobalance_sims.spark.schemas import struct_array
from cobalance_sims.verify import prediction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.campaign]

TRUTH = Churn(
    name="truth",
    members=3,
    resources=6,
    length_ms=600_000,
    deploy="rolling",
    deploy_every_ms=150_000,
    deploy_pause_ms=1_000,
    startup_ms="lognormal:2000:0.3",
    crashes_per_member_hour=12.0,
    pauses_per_member_hour=60.0,
    pause_ms="lognormal:2000:0.8",
    drain_ms="lognormal:500:0.8",
)
OLD = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=10_000)
NEW = attrs.evolve(OLD, session_timeout_ms=3_000)
TIMES = ["--session-timeout", "10s", "--heartbeat-interval", "1s"]


def journal(folder: Path, churn: Churn, settings: GroupSettings, seed: int) -> str:
    """Events of a simulated group, where they can be read."""
    given = {"churn": churn, "checks": "none", "run": "shop", "seed": seed, **attrs.asdict(settings)}
    folder.mkdir()
    pq.write_table(pa.Table.from_struct_array(struct_array(EVENT, run_row(given).events)), folder / "part.parquet")
    return str(folder)


def test_a_churn_is_checked_and_so_is_a_promise(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The calibrated churn does what its journal shows. Under a shorter session it promises few false expiries; but
    processes have begun to freeze for long meanwhile, and that is reported.
    """
    assert spark is not None
    monkeypatch.setattr(prediction, "EVENTS", 5_000)
    monkeypatch.setattr(prediction, "MOST_RUNS", 40)
    before = journal(tmp_path / "before", TRUTH, OLD, 1)
    assert main(["sims", "calibrate", before, "--out", str(tmp_path / "churn"), *TIMES]) == 0
    assert "PREDICTIVE CHECK: simulated, the churn does what its journal shows" in capsys.readouterr().out
    found = json.loads((tmp_path / "churn" / "check.json").read_text())
    assert (found["mismatches"], len(found["figures"])) == ([], 6)
    worse = TRUTH.changed(pauses_per_member_hour=480.0, pause_ms="uniform:4000:8000")
    later = journal(tmp_path / "after", worse, NEW, 3)
    words = ["sims", "verify", "--before", before, *TIMES, "--setting", "session-timeout=3s", "--after", later]
    assert main(words) == REFUSED
    told = capsys.readouterr().out
    assert told.startswith("THE PROMISE DID NOT COME TRUE")
    assert "session_timeout_ms" in told
    assert "False expiries: the journal shows" in told
