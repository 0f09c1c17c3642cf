"""Grids: what they expand to, and everything that is refused before anything is simulated."""

from pathlib import Path
from typing import Any

import pytest

from cobalance.cli.app import run as main
from cobalance_sims.spark.grid import BadGrid, make_grid, read_grid, seeds_of

GRID = """
seeds = ["1..3", 7]

[settings]
session_timeout = ["6s", "10s"]
heartbeat_interval_ms = "session/3"
revocation-timeout = ["session", "30s"]

[[churn]]
base = ["rolling_deploy", "autoscaled"]
members = [3, 4]
drain = "constant:40"

[[churn]]
base = "crash_loop"
"""


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    """Settings by churn by seeds; times may be durations or relative to the session timeout."""
    (tmp_path / "grid.toml").write_text(GRID)
    grid = make_grid(read_grid(tmp_path / "grid.toml"))
    assert (len(grid.points), grid.seeds, grid.runs) == (4 * (4 + 1), (1, 2, 3, 7), 80)
    first = grid.points[0].row(7)
    assert first["run"] == grid.points[0].run(7)
    assert {name: first[name] for name in ("session_timeout_ms", "heartbeat_interval_ms", "revocation_timeout_ms")} == {
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 2_000,
        "revocation_timeout_ms": 6_000,
    }
    assert (first["churn"], first["members"], first["drain_ms"], first["seed"]) == (
        "rolling_deploy",
        3,
        "constant:40",
        7,
    )


def test_several_tables_of_settings_are_points(tmp_path: Path) -> None:
    """Today's settings beside a candidate, rather than every combination of the two, and each may have lists of its own."""
    text = "[[settings]]\nsession_timeout = '6s'\nrevocation_timeout = '6s'\n[[settings]]\nsession_timeout = ['10s', '20s']\n"
    (tmp_path / "grid.toml").write_text(text)
    points = [it.params for it in make_grid(read_grid(tmp_path / "grid.toml")).points]
    assert [(it["session_timeout_ms"], it.get("revocation_timeout_ms")) for it in points] == [
        (6_000, 6_000),
        (10_000, None),
        (20_000, None),
    ]


def test_options_replace_what_a_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In each of its tables, whichever way the name is written there."""
    text = "seeds = 1\n[[settings]]\ngather_ms = [1, 2, 3]\n[[settings]]\nsession_timeout = '10s'\n[churn]\nmembers = [7, 8]\n"
    (tmp_path / "grid.toml").write_text(text)
    words = ["sims", "sweep", str(tmp_path / "grid.toml"), "--out", "out", "--dry-run"]
    assert main(words) == 0
    assert main([*words, "--gather", "5s", "6s", "--members", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "8 combinations, 1 seed: 8 runs",
        "4 combinations, 1 seed: 4 runs",
    ]


def test_ids_depend_on_what_a_run_is_and_not_on_how_it_was_asked_for() -> None:
    """A default that is spelled out is the same run; another seed, setting or parameter is another one."""
    plain: dict[str, Any]
    plain, spelled = (
        {"churn": {"base": "crash_loop"}},
        {"churn": {"base": "crash_loop", "members": 4}, "settings": {"gather": "500ms"}},
    )
    assert make_grid(plain).points[0].run(1) == make_grid(spelled).points[0].run(1)
    others = [
        plain,
        {"churn": {"base": "crash_loop", "members": 5}},
        {**plain, "settings": {"gather": 499}},
        {**plain, "checks": "all"},
    ]
    assert len({make_grid(it).points[0].run(seed) for it in others for seed in (1, 2)}) == 8


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"setings": {}}, "There is no part of a grid 'setings'; did you mean settings"),
        ({"settings": {"sesion_timeout": 1}}, "did you mean session_timeout_ms"),
        ({"settings": {"session_timeout": "7 bananas"}}, "'7 bananas' is not a duration"),
        ({"settings": {"session_timeout": []}}, "session_timeout has no value"),
        ({"settings": {"gather": 1, "gather_ms": 2}}, "gather_ms is given twice"),
        ({"settings": {"session_timeout": "session"}}, "not a multiple of the session timeout"),
        ({"settings": {"session_timeout": ["10s", "60s"]}}, r"1 of 2 combinations cannot be: revocation_timeout_ms \(30000\) is below"),
        ({"settings": {"mode": "lazy"}}, "mode is 'lazy'"),
        ({"settings": 3}, "settings is 3"),
        ({"settings": [{"gather": 1}, 3]}, "settings is 3"),
        ({"churn": {"base": "roling_deploy"}}, "There is no churn 'roling_deploy'; did you mean rolling_deploy"),
        ({"churn": {"drain": "lognormal:x"}}, "'lognormal:x' is not a distribution"),
        ({"churn": {"drain": [{}]}}, "give a value or a list of values"),
        ({"churn": {"members": "many"}}, "members is 'many'"),
        ({"churn": {"capacities": 5}}, "The combination cannot be: capacities is 5: give whole numbers"),
        ({"churn": {"capacities": [["a"]]}}, r"capacities is \('a',\): give whole numbers"),
        ({"churn": {"drain_ms_of": 5}}, "drain_ms_of is 5: give a table of distributions"),
        ({"churn": {"latency_ms": [[1]]}}, r"latency_ms is \[1\]: give one of constant:MS"),
        ({"churn": {"handle_ms": True}}, "handle_ms is True: give one of constant:MS"),
        ({"churn": {"pause_ms": "lognormal:1:1e9"}}, "pause_ms is lognormal:1:1000000000: no duration is that long"),
        ({"churn": {"name": 5}}, "name is 5: give a string"),
        ({"churn": {"base": 5}}, "There is no churn '5'"),
        ({"checks": ["all"]}, r"checks is \['all'\]: give one of none, cheap, all"),
        ({"seeds": "1..9999999999999999999999"}, "runs: at most 2,000,000"),
        ({"settings": {"gather": [*range(2_000)]}, "churn": {"members": [*range(1, 2_001)]}}, "4,000,000 combinations: at most"),
        ({"churn": "steady"}, "give a table"),
        ({"seeds": "9..1"}, "neither a seed nor a range"),
        ({"seeds": "1..3000000"}, "3,000,000 runs: at most"),
        ({"checks": "some"}, "checks is 'some'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tables: dict[str, Any], words: str) -> None:
    """The message names the part that is wrong, and what is accepted."""
    with pytest.raises(BadGrid, match=words):
        make_grid(tables)


def test_impossible_combinations_can_be_left_out() -> None:
    """They are counted, and the others are simulated; an empty rest is reported."""
    some = {"settings": {"session_timeout": ["10s", "60s"], "revocation_timeout": ["30s", "90s"]}}
    grid = make_grid(some, skip_impossible=True)
    assert (len(grid.points), len(grid.skipped)) == (3, 1)
    with pytest.raises(BadGrid, match="cannot be"):
        make_grid({"settings": {"session_timeout": "60s"}}, skip_impossible=True)


def test_a_file_that_is_no_grid_is_named(tmp_path: Path) -> None:
    """One that is missing, and one that is not TOML."""
    with pytest.raises(BadGrid, match=r"none\.toml cannot be read: No such file"):
        read_grid(tmp_path / "none.toml")
    for text in ("seeds = ", "seeds = " + "[" * 100_000):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(BadGrid, match=r"bad\.toml is not TOML"):
            read_grid(tmp_path / "bad.toml")


def test_seeds_are_ranges_or_numbers() -> None:
    """Each once, in the order given."""
    assert seeds_of([3, "1..4"]) == (3, 1, 2, 4)
