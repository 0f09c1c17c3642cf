"""Bad input to ``cobalance sims tune``: contradictory options, unwritable places, strange files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.sims.test_tune import DEPLOYS, TODAY, Known, tuned

from cobalance.cli.app import run as main
from cobalance.cli.sims.tune import whereabouts
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.written import CHURN, KNOWN
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.tune.axes import choose
from cobalance_sims.tune.peers import peers
from cobalance_sims.tune.preferences import BadPreference, Preferences, parse
from cobalance_sims.tune.source import BadSource, ChurnSource, find
from cobalance_sims.tune.written import as_json, command, page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "duplicates=5", "--max-duplicates-per-day", "3"], "limit of duplicates is given as 5 and as 3"),
        (["--limit", "heal=9", "--limit", "heal=20"], "limit of heal is given as 9 and as 20"),
        (["--weight", "moves=1", "--weight", "moves=2"], "weight of moves is given as 1 and as 2"),
        (["--weight", "moves=1e300"], "weight of moves is 1e+300"),
        (["--limit", "moves=nan"], "limit of moves is nan"),
        (["--heal-within-s", "-1"], "limit of heal is -1"),
        (["--tolerance", "nan"], "--tolerance between 0 and 1"),
        (["--seeds", "0"], "at least 4 --seeds"),
        (["--group", "two words"], "The group name 'two words' contains"),
    ],
)
def test_preferences_that_contradict_each_other_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is run, and neither is silently preferred."""
    assert main(["sims", "tune", "--churn", "steady", "--in-process", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_same_said_twice_is_no_contradiction() -> None:
    """Two ways to give one limit."""
    assert parse(["heal=9", "heal=9.0"], "limit") == {"heal": 9.0}
    with pytest.raises(BadPreference):
        Preferences({}, {"moves": 1e10})


@pytest.mark.parametrize("place", ["file/tune.json", "folder"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search may take an hour: it must not be lost because its result has no place to go."""
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    assert main(["sims", "tune", "--churn", "steady", "--in-process", "--out", str(tmp_path / place)]) == 2
    captured = capsys.readouterr()
    assert f"{tmp_path / place} cannot be written" in captured.err
    assert "runs to make" not in captured.err


STRANGE: list[Any] = [
    {"parameters": [{"name": "drain_ms"}]},
    {"parameters": "many"},
    {"runs": 7},
    {"settings": {"patience_ms": 4}},
    {"settings": [1, 2]},
]


@pytest.mark.parametrize("known", STRANGE)
def test_a_calibration_of_another_form_is_refused_in_words(known: dict[str, Any], tmp_path: Path) -> None:
    """The message says to calibrate again."""
    (tmp_path / CHURN).write_text(json.dumps(DEPLOYS.table()))
    (tmp_path / KNOWN).write_text(json.dumps(known))
    with pytest.raises(BadSource, match="run cobalance sims calibrate again"):
        find(str(tmp_path))


def test_runs_of_a_sweep_are_no_group(tmp_path: Path) -> None:
    """A calibration of simulated events names no group for the command; one of a journal does."""
    (tmp_path / CHURN).write_text(json.dumps(DEPLOYS.table()))
    for source, group in (("sim", None), ("journal", "orders")):
        (tmp_path / KNOWN).write_text(json.dumps({"runs": ["orders"], "source": source}))
        assert find(str(tmp_path)).group == group


def test_settings_that_nobody_has_told_are_in_the_command() -> None:
    """A group may not run the assumed defaults: the command then sets everything that the choice rests on."""
    choice = attrs.evolve(TODAY, revocation_timeout_ms=90_000)
    assert command("shop", TODAY, choice) == "cobalance group configure shop --revocation-timeout 90000ms"
    words = command("shop", TODAY, choice, unknown=("session_timeout_ms", "gather_ms"))
    assert (
        words == "cobalance group configure shop --session-timeout 5000ms --revocation-timeout 90000ms --gather 500ms"
    )
    assert command("shop", TODAY, TODAY, unknown=("gather_ms",)) == ""
    found = tuned(Known())
    told = page(found, group="shop", unknown=("gather_ms",))
    assert "taken to be the defaults" in told
    assert as_json(found, churn={}, group="shop", unknown=("gather_ms",))["command"].endswith(" --gather 500ms")


@pytest.mark.thorough
def test_a_search_of_a_named_churn_says_what_today_is_taken_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No journal and no Redis gave today's settings; what --today gives is reported."""
    (tmp_path / "churn.json").write_text(
        json.dumps({**DEPLOYS.table(), "length_ms": 20_000, "deploy_every_ms": 10_000})
    )
    words = [
        "--churn",
        str(tmp_path / "churn.json"),
        "--out",
        str(tmp_path / "tune.json"),
        "--in-process",
        "--seeds",
        "4",
    ]
    main(["sims", "tune", *words, "--search", "gather", "--today", "session-timeout=10s", "--today", "gather=0s"])
    said = capsys.readouterr().out
    assert "taken to be the defaults" in said
    assert (tmp_path / "tune.json.runs").exists() == ("NO RECOMMENDATION" in said)
    assert "session_timeout_ms" not in said.split("taken to be the defaults")[1].split("\n")[0]


def test_a_setting_that_is_named_twice_is_searched_once() -> None:
    """By its name and by its option's."""
    chosen = choose(ChurnSource(churn=Churn()), ["gather", "--gather", "gather_ms"])
    assert [axis.name for axis in chosen.axes] == ["gather_ms"]


def test_the_command_is_for_the_redis_that_was_read() -> None:
    """It contains the address, but not the password."""
    said = "".join(whereabouts("rediss://ann:s3cret@db.example:6380/2"))
    assert "db.example:6380/2" in said
    assert "COBALANCE_REDIS_URL" in said
    assert "s3cret" not in said
    assert "ann" not in said
    assert whereabouts(None) == []


def test_the_defaults_of_others_are_settings_that_can_be_had() -> None:
    """Whatever today's settings are; Iggy's clients send a heartbeat every five seconds."""
    kafka, iggy = peers(GroupSettings(session_timeout_ms=600, heartbeat_interval_ms=200, revocation_timeout_ms=600))
    assert (kafka.settings.session_timeout_ms, kafka.settings.heartbeat_interval_ms) == (45_000, 5_000)
    assert (iggy.settings.session_timeout_ms, iggy.settings.heartbeat_interval_ms) == (36_000, 5_000)
