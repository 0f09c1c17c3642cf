"""What got worse since an earlier run, and what is only noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from proof.bench import run
from proof.bench.comparison import compared, differences, missing
from proof.bench.figures import Figure, alone, compare


def ratio(*each: float, better: str = "lower") -> dict[str, Any]:
    middle = sorted(each)[len(each) // 2]
    return attrs.asdict(Figure("f", "ms", ours=5.0, peer=5.0, ratio=middle, each=each, better=better))


def report(*figures: dict[str, Any]) -> dict[str, Any]:
    machine = {"load": [0.1, 0.1, 0.1], "yardstick_ms": 1.0}
    return {"at": "2026-11-27T12:00:00+00:00", "machine": machine, "figures": list(figures)}


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((1.0, 1.1, 1.2), (1.0, 1.1, 1.2), "same"),
        ((1.0, 1.1, 1.2), (1.4, 1.5, 1.6), "worse"),
        ((1.4, 1.5, 1.6), (1.0, 1.1, 1.2), "better"),
        ((1.0, 1.1, 1.5), (1.3, 1.4, 1.6), "same"),  # one round of the old run was as slow
        ((1.0, 1.1, 1.2), (1.0, 1.5, 1.6), "same"),  # one round of the new one was as fast
        ((1.0, 1.01, 1.02), (1.04, 1.05, 1.06), "same"),  # surely, but by less than a tenth
    ],
)
def test_only_what_is_beyond_the_noise_differs(old: tuple[float, ...], new: tuple[float, ...], verdict: str) -> None:
    """The rounds say how much a figure varies by itself."""
    assert compared(ratio(*old), ratio(*new)).verdict == verdict


def test_more_is_better_where_it_is() -> None:
    """Messages a second that fall by a third are half as bad again."""
    found = compared(ratio(0.9, 0.9, 0.9, better="higher"), ratio(0.6, 0.6, 0.6, better="higher"))
    assert found.verdict == "worse"
    assert found.factor == pytest.approx(1.5)
    assert compared(ratio(0.6, better="higher"), ratio(0.9, better="higher")).verdict == "better"


def test_a_single_value_has_to_differ_by_a_quarter() -> None:
    """It has no rounds to tell noise from change, and no peer of the same minutes."""
    before = attrs.asdict(alone("f", "ms", 4.0))
    assert compared(before, attrs.asdict(alone("f", "ms", 4.9))).verdict == "same"
    assert compared(before, attrs.asdict(alone("f", "ms", 5.1))).verdict == "worse"
    assert compared(before, attrs.asdict(alone("f", "ms", 3.1))).verdict == "better"


def test_the_first_lost_message_is_worse() -> None:
    """However many times as many as none that is."""
    none, one = attrs.asdict(alone("lost", "", 0.0)), attrs.asdict(alone("lost", "", 1.0))
    assert (compared(none, one).verdict, compared(none, one).factor) == ("worse", None)
    assert compared(none, none).verdict == "same"
    assert compared(one, none).verdict == "better"


def test_a_figure_keeps_its_rounds() -> None:
    """The ratios that a comparison takes the noise from, and which way is better."""
    values = iter([2.0, 4.0, 1.0, 2.0])
    measured = compare("f", "ms", lambda: next(values), lambda: next(values), rounds=2, most=1.0)
    assert (measured.each, measured.better) == ((0.5, 2.0), "lower")
    assert compare("f", "messages/s", lambda: 1.0, lambda: 1.0, rounds=1, least=1.0).better == "higher"


def test_figures_are_found_by_name() -> None:
    """Those that only one run has are not compared."""
    old, new = report(ratio(1.0), {**ratio(1.0), "name": "gone"}), report({**ratio(1.0), "name": "new"}, ratio(1.0))
    assert [it.name for it in differences(old, new)] == ["f"]
    assert missing(old, new) == ["gone"]


def test_two_files_are_compared_without_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code says whether anything got worse; the output says what, and how busy and quick the machine was."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(report(ratio(1.0, 1.1, 1.2))))
    new.write_text(json.dumps(report(ratio(2.0, 2.2, 2.4))))
    assert run.main(["--compare", str(old), str(new)]) == 1
    said = capsys.readouterr().out
    assert "1 of 1 figures got worse since 2026-11-27" in said
    assert "2.00" in said
    assert run.main(["--compare", str(new), str(old)]) == 0
    assert "0 of 1 figures got worse" in capsys.readouterr().out
    assert run.main(["--compare", str(old), str(old)]) == 0
    with pytest.raises(SystemExit):
        run.main(["--compare", str(old), str(old), str(old)])
    new.write_text("[]")
    with pytest.raises(SystemExit):
        run.main(["--compare", str(new)])
    assert "has no figures" in capsys.readouterr().err
