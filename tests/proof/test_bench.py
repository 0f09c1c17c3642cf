"""The bench runs; what it measures is for people, and no test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import proof

pytestmark = pytest.mark.thorough


def test_the_coordinators_part_runs(tmp_path: Path) -> None:
    """In small: figures are printed, and written."""
    written = tmp_path / "figures.json"
    command = [sys.executable, "-m", "proof.bench", "--only", "coordinator", "--quick", "--json", str(written)]
    ended = subprocess.run(command, cwd=Path(proof.__file__).parents[1], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    measured = {it["name"] for it in json.loads(written.read_text())["figures"]}
    assert {"heartbeat ÷ EVALSHA return 1", "mass join, 1k x 10: longest call"} <= measured
