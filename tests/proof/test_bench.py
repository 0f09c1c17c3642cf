"""The bench runs; what it measures is for people, and no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

import proof
from proof.bench.cost.changes import KINDS, ChangeCost
from proof.bench.cost.results import Costs, slopes
from proof.bench.figures import compare_each

pytestmark = pytest.mark.thorough


def test_the_coordinators_part_runs(tmp_path: Path) -> None:
    """In small: figures are printed, and written."""
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "proof.bench", "--only", "coordinator", "--quick", "--json", str(written)]
    ended = subprocess.run(command, cwd=Path(proof.__file__).parents[1], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    measured = {it["name"] for it in json.loads(written.read_text())["figures"]}
    assert {
        "heartbeat ÷ EVALSHA return 1",
        "mass join, 1k x 10: longest call",
        "snapshot, 1k x 10: longest script",
    } <= measured


def test_the_costs_are_measured_for_all_changes(tmp_path: Path) -> None:
    """Two small groups: after each change all is even, and in the end nothing is left. The short form has figures for all."""
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "proof.bench", "--cost", "--quick", "--json", str(written)]
    ended = subprocess.run(command, cwd=Path(proof.__file__).parents[1], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    report = json.loads(written.read_text())
    changes = report["cost"]["changes"]
    assert {it["kind"] for it in changes} == set(KINDS)
    assert all(it["calls"] > 0 and it["redis_ms"] > 0 and it["bytes_sent"] > 0 for it in changes)
    moves = {(it["kind"], it["members"]): it["moves"] for it in changes}
    assert moves["join", 10] == 100 // 11, "no more than has to"
    assert moves["loss", 10] == moves["loss", 20] == 0, "everybody keeps what it claims"
    assert moves["crash", 20] == 50
    names = {it["name"] for it in report["figures"]}
    assert {"heartbeat ÷ EVALSHA return 1", "half of them crash, 20 x 100: Redis CPU"} <= names
    assert any("power of members" in name for name in names)


def test_slopes_are_found() -> None:
    """A cost that grows with the root of the members, and not with the resources, whatever else its level is."""
    change = ChangeCost("ten come", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    costs = Costs(one_us=10)
    for members in (10, 1_000):
        for resources in (100, 10_000):
            costs.add(attrs.evolve(change, members=members, resources=resources, redis_ms=7 * members**0.5))
    found = {size: power for _, size, power in slopes(costs)}
    assert found == {"members": pytest.approx(0.5), "resources": pytest.approx(0)}


def test_the_part_about_being_watched_runs(tmp_path: Path) -> None:
    """In small: each way of watching is beside none."""
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "proof.bench", "--only", "watched", "--quick", "--json", str(written)]
    ended = subprocess.run(command, cwd=Path(proof.__file__).parents[1], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    measured = {it["name"] for it in json.loads(written.read_text())["figures"]}
    assert {
        "consumed, metrics ÷ off, handler: nothing",
        "consumed, traced (SDK, all) ÷ off, handler: 0.2 ms of CPU",
        "published, off ÷ without the hook",
    } <= measured


def test_kinds_are_measured_beside_each_other() -> None:
    """Once each a round, beginning with another one each time, and related to the base of the same round."""
    played, speed = list[str](), iter(range(1, 100))

    def run(name: str, factor: float) -> float:
        played.append(name)
        return factor * (100 + next(speed) // 3)  # a machine that gets quicker from round to round

    found = compare_each(
        "messages/s",
        {"half": lambda: run("half", 0.5), "same": lambda: run("same", 1.0)},
        lambda: run("base", 1.0),
        rounds=3,
        least=0.9,
        detail="",
    )
    assert played == ["base", "half", "same", "half", "same", "base", "same", "base", "half"]
    assert [(it.name, it.met, it.rounds) for it in found] == [("half", False, 3), ("same", True, 3)]
    assert [it.ratio for it in found] == pytest.approx([0.5, 1.0], abs=0.01)
