"""Unusual input to ``calibrate``: the same events twice, several groups at once, a place that cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cobalance.cli.app import run as main
from cobalance_sims.calibrate.pauses import Return
from cobalance_sims.calibrate.source import from_parquet
from cobalance_sims.calibrate.tallies import tallies
from cobalance_sims.outcomes import Event
from cobalance_sims.records import EVENT, JOURNAL
from cobalance_sims.spark import session
from cobalance_sims.spark.schemas import struct_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export(folder: Path, group: str, configured: str) -> Path:
    """A short journal: two members, a drain, and the configured settings."""
    rows = [
        Event(group, JOURNAL, "1-0", 1, "joined", 1_000, member="a.1", reason="-"),
        Event(group, JOURNAL, "1-1", 2, "configured", 1_000, reason=configured),
        Event(group, JOURNAL, "2-0", 3, "joined", 2_000, member="b.1", reason="-"),
        Event(group, JOURNAL, "3-0", 4, "released", 9_000, "r1", "a.1", 7, 7, 12_000, 500),
    ]
    (folder / "events").mkdir(parents=True)
    pq.write_table(pa.Table.from_struct_array(struct_array(EVENT, rows)), folder / "events" / "part-0.parquet")
    return folder


def test_events_that_are_given_twice_count_once(spark: SparkSession, tmp_path: Path) -> None:
    """The folder of an export and its sub-folder, or two exports that overlap, contain the same events."""
    folder = export(tmp_path / "one", "orders", "session_ms 20000")
    once, twice = (
        tallies(from_parquet(spark, places))
        for places in (
            [str(folder)],
            [str(folder), str(folder / "events"), str(export(tmp_path / "two", "orders", "session_ms 20000"))],
        )
    )
    assert once == twice
    assert (once.windows[0].events, once.windows[0].missing, once.drains["r1"].count) == (4, 0, 1)


def test_what_is_missing_is_counted_in_each_group(spark: SparkSession, tmp_path: Path) -> None:
    """Gaps at any place, except where an incarnation jumps, even before or after a gap; in one group and several."""
    seqs = {"a": [3, 4, 7, 8, 20], "b": [1, 2], "c": [5, 900, 901, 905], "d": [1, 40, 90]}
    begun = {"a": {7}, "b": {1}, "c": {5, 900}, "d": {40, 90}}
    rows = [
        Event(group, JOURNAL, f"{seq}-0", seq, "incarnation" if seq in begun[group] else "added", 1_000 + seq)
        for group, numbers in seqs.items()
        for seq in numbers
    ]
    pq.write_table(pa.Table.from_struct_array(struct_array(EVENT, rows)), tmp_path / "part-0.parquet")
    found = tallies(from_parquet(spark, [str(tmp_path)])).windows
    assert [(it.run, it.events, it.missing) for it in found] == [("a", 5, 11), ("b", 2, 0), ("c", 4, 3), ("d", 3, 0)]
    assert [it.is_whole for it in found] == [False, True, False, True]


def test_what_a_repair_took_back_is_not_tallied(spark: SparkSession, tmp_path: Path) -> None:
    """A script reported a drain and an end, and died; one was reported again, the other never."""
    folder = export(tmp_path, "orders", "session_ms 20000")
    drain = Event("orders", JOURNAL, "4-0", 5, "released", 10_000, "r2", "a.1", 8, 8, 12_000, 700)
    told = [
        drain,
        Event("orders", JOURNAL, "4-1", 6, "expired_member", 10_000, member="b.1", reason="expired"),
        Event("orders", JOURNAL, "5-0", 7, "repaired", 10_100, member="b.1", reason="active"),
        Event("orders", JOURNAL, "5-1", 8, "repaired", 10_100, "r2", "a.1", 8, reason="pending"),
        Event("orders", JOURNAL, "5-2", 9, "repaired", 10_100, reason="torn after 4"),
        drain._replace(id="5-3", seq=10, at_ms=10_100),
    ]
    pq.write_table(pa.Table.from_struct_array(struct_array(EVENT, told)), folder / "events" / "part-1.parquet")
    found = tallies(from_parquet(spark, [str(folder)]))
    assert (found.drains["r1"].count, found.drains["r2"].count) == (1, 1)
    assert [(it.member, it.gone) for it in found.lives] == [("a.1", ""), ("b.1", "")]
    assert (found.windows[0].events, found.windows[0].missing) == (10, 0)


def test_members_that_came_back_are_found_however_their_session_ended(spark: SparkSession, tmp_path: Path) -> None:
    """By the timeout, or at once since their connections were closed."""
    folder = export(tmp_path, "orders", "session_ms 20000")
    told = [
        Event("orders", JOURNAL, "4-0", 5, "expired_member", 10_000, member="a.1", reason="crashed"),
        Event("orders", JOURNAL, "4-1", 6, "expired_member", 12_000, member="b.1", reason="expired"),
        Event("orders", JOURNAL, "5-0", 7, "joined", 13_000, member="a.2", reason="a.1"),
        Event("orders", JOURNAL, "5-1", 8, "joined", 14_000, member="b.2", reason="b.1"),
    ]
    pq.write_table(pa.Table.from_struct_array(struct_array(EVENT, told)), folder / "events" / "part-1.parquet")
    assert tallies(from_parquet(spark, [str(folder)])).returns == [
        Return(12_000, 3_000, was_seen=True),
        Return(12_000, 2_000, was_seen=False),
    ]


def test_settings_are_those_that_all_groups_have(spark: SparkSession, tmp_path: Path) -> None:
    """Two groups with different session timeouts have none together; what they agree on is known."""
    places = [
        str(export(tmp_path / "one", "orders", "session_ms 20000 revocation_ms 60000")),
        str(export(tmp_path / "two", "payments", "session_ms 30000 revocation_ms 60000")),
    ]
    assert tallies(from_parquet(spark, places)).settings == {"revocation_timeout_ms": 60_000}


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is tallied for a result that has no place to go."""
    (tmp_path / "file").write_text("no folder")
    assert main(["sims", "calibrate", str(tmp_path / "nowhere"), "--out", str(tmp_path / "file" / "churn")]) == 2
    assert f"{tmp_path / 'file' / 'churn'} cannot be written" in capsys.readouterr().err


def test_help_tells_the_way_from_a_journal(capsys: pytest.CaptureFixture[str]) -> None:
    """Both of them: by way of Parquet, and straight from Redis."""
    assert main(["sims", "calibrate", "--help"]) == 0
    said = capsys.readouterr().out
    assert "cobalance sims journal --group orders" in said
    assert "cobalance sims calibrate --group orders --out DIR" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["calibrate", "nowhere", "--out", "churn"], 2, "There is no folder nowhere"),
        (["calibrate", "--out", "churn"], 2, "Give folders of events"),
        (["calibrate", "--group", "shop", "--out", "churn"], 2, "COBALANCE_REDIS_URL is not set"),
        (["calibrate", "--group", "shop", "--redis-url-file", "url", "--out", "churn"], 3, "127.0.0.1:1"),
        (["calibrate", "--group", "shop", "--since", "soon", "--out", "churn"], 2, "not a point in time"),
        (["verify", "--before", "nowhere", "--after", "nowhere"], 2, "There is no folder nowhere"),
        (["verify", "--before", ".", "--after", ".", "--setting", "luck=3s"], 2, "there is no setting"),
        (["sweep", "--base", "crash_loop", "--out", "url/churn"], 2, "cannot be written"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(
    words: list[str],
    code: int,
    said: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No folder, no option, no server: Spark takes half a minute to tell, and is not started for it."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "spark_session", started)
    monkeypatch.delenv("COBALANCE_REDIS_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("url").write_text("redis://127.0.0.1:1/0")
    assert main(["sims", *words]) == code
    assert said in capsys.readouterr().err
