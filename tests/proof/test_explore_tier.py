"""The exploration that every change has to pass: all scopes of the CI tier, and a replay of what they executed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proof.explore.cli import LUAS, TIERS, main
from proof.explore.reached import REQUIRED
from proof.explore.scope import SCOPES

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(1_800),
]  # some 430 seconds of CPU and the replays, shared by two processes

SAMPLE = 10
"""Every n-th execution is replayed, on each engine; all of them, by `make explore ARGS=--replay`."""


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The reports of the CI tier, from two processes."""
    file = tmp_path_factory.mktemp("explored") / "explored.json"
    code = main(["--tier", "ci", "--replay", "--sample", str(SAMPLE), "--json", str(file)])
    assert code == 0
    reports: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
    return reports


def test_every_scope_is_complete_and_nothing_is_found(tier: list[dict[str, Any]]) -> None:
    """Safety in every state, and an even group from every state, whichever member never drains."""
    assert [it["result"]["scope"] for it in tier] == list(TIERS["ci"])
    for it in (report["result"] for report in tier):
        assert it["is_complete"]
        assert it["found"] is None
        assert it["closures"][""] == it["states"] > 0
        assert it["transitions"] > it["states"]


def test_the_two_sizes_are_in_it(tier: list[dict[str, Any]]) -> None:
    """Two members with four resources, three with three; with each member never draining where that matters."""
    sizes = {(SCOPES[it["result"]["scope"]].members, SCOPES[it["result"]["scope"]].resources) for it in tier}
    assert {(2, 4), (3, 3)} <= sizes
    by_scope = {it["result"]["scope"]: it["result"]["closures"] for it in tier}
    assert all(by_scope["2x4"][slot] for slot in "ab")
    assert all(by_scope["3x3"][slot] for slot in "abc")


def test_every_kind_was_reached(tier: list[dict[str, Any]]) -> None:
    """A fault that never happened was not survived."""
    counts = [it["result"]["reached"] for it in tier]
    assert [kind for kind in (*REQUIRED, "seen") if not any(it.get(kind) for it in counts)] == []


def test_every_engine_agrees(tier: list[dict[str, Any]]) -> None:
    """A real Redis and all Luas: the same replies, the same data."""
    for report in tier:
        engines = [replayed["engine"] for replayed in report["replays"]]
        assert engines[0].startswith("Redis ")
        assert engines[1:] == list(LUAS)
        for replayed in report["replays"]:
            assert replayed["executions"] == -(-report["result"]["executions"] // SAMPLE)
            assert replayed["mismatches"] == []
