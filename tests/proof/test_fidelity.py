"""The simulator against reality: the harness runs on real servers, and its comparison is sound."""

from __future__ import annotations

import itertools
from math import inf
from pathlib import Path

import pytest

from cobalance import servers
from cobalance.errors import UsageError
from cobalance.journal import JournalEntry
from cobalance.lab.stage import Stage
from proof.fidelity import command as truth
from proof.fidelity import confluent, real, simulated
from proof.fidelity.compare import ComparedFigure, compare, quantile
from proof.fidelity.figures import Figures, figures
from proof.fidelity.load import messages
from proof.fidelity.real import stage_of
from proof.fidelity.story import CHURN, TINY, Incident
from proof.fidelity.table import table, write
from proof.fidelity.telling import ProcessSilence, Telling, TenureCallback


@pytest.fixture(scope="module")
def urls(redis_server: servers.RedisServer, amqp_url: str) -> tuple[str, str]:
    """The servers that all tests share."""
    return redis_server.url, amqp_url


@pytest.mark.thorough
def test_a_tiny_story_yields_the_figures_on_both_sides(urls: tuple[str, str]) -> None:
    """In a real and a simulated run, the crash is healed by session timeouts, and every figure has a value."""
    load = messages(TINY, 1)
    evidence, machine = real.tell(TINY, load, urls)
    real_side = figures(evidence)
    simulated_side = figures(simulated.tell(TINY, load, evidence.steps, machine, 1))
    for side in (real_side, simulated_side):
        assert side.counts["crashes"] == 1
        assert len(side.heals_ms) == 1
        assert 0 < side.heals_ms[0] <= 2 * TINY.settings.session_timeout_ms
        assert side.counts["moves"] >= side.counts["minimum_moves"] > 0
        assert side.drains_ms
        assert side.pauses_ms
        assert side.counts["messages"] > len(load) / 2
    assert {step.kind for step in evidence.steps} == {"join", "kill"}
    assert len(evidence.steps) == TINY.members + len(TINY.steps)
    assert all(samples[0] >= 0 for samples in (machine.call_ms, machine.hint_ms, machine.open_ms, machine.close_ms))
    assert "handover gap" in table(compare([real_side], [[simulated_side]], [[simulated_side]]))


@pytest.mark.thorough
def test_nothing_is_left_of_a_telling_that_is_interrupted(urls: tuple[str, str]) -> None:
    """After a Ctrl-C its member processes are gone, including a stopped one, and so is its folder."""
    stages: list[Stage] = []
    with pytest.raises(KeyboardInterrupt), stage_of(TINY, urls) as stage:
        _interrupt(stage, stages)
    assert len(stages[0].members) == 2
    assert not any(Path(f"/proc/{it.pid}").exists() for it in stages[0].members.values())
    assert not stages[0].folder.exists()


def _interrupt(stage: Stage, seen: list[Stage]) -> None:
    seen.append(stage)
    for name in ("m1", "m2"):
        stage.prepare(name)
    stage.wait_ready()
    stage.members["m1"].freeze()
    raise KeyboardInterrupt


def test_a_load_is_the_same_again() -> None:
    """The seed determines every message, and every partition gets a slow one."""
    load = messages(CHURN, 3)
    assert load == messages(CHURN, 3) != messages(CHURN, 4)
    assert len(load) == pytest.approx(CHURN.rate * CHURN.partitions * CHURN.length_ms / 1000, rel=0.1)
    assert sum(it.handle_ms == 9_000 for it in load) == CHURN.partitions


def test_figures_are_drawn_from_the_evidence() -> None:
    """Healing counts from the kill, a frozen process makes a false expiry, and a message begun twice is a duplicate."""
    telling = _telling()
    it = figures(telling)
    assert it.heals_ms == (2_500.0,)
    assert (it.counts["crashes"], it.counts["false_expiries"], it.counts["duplicates"]) == (1, 1, 1)
    assert it.pauses_ms == (7.0,)
    assert it.drains_ms == (40.0,)


def _telling() -> Telling:
    def entry(at: int, kind: str, member: str, token: int | None = None) -> JournalEntry:
        seq = next(numbers)
        resource = None if token is None else "t-0"
        return JournalEntry(
            id=f"{seq}-0",
            seq=seq,
            kind=kind,
            at_ms=at,
            resource=resource,
            member=member,
            token=token,
            handover_id=token,
        )

    numbers = itertools.count(1)
    return Telling(
        source="journal",
        begun_at_ms=0,
        ended_at_ms=20_000,
        entries=(
            entry(10, "joined", "a.1"),
            entry(20, "granted", "a.1", 1),
            entry(100, "joined", "b.1"),
            entry(110, "revoking", "a.1", 1),
            entry(150, "released", "a.1", 1),
            entry(150, "granted", "b.1", 2),
            entry(7_500, "expired_member", "b.1"),
            entry(7_500, "expired", "b.1", 2),
            entry(7_500, "granted", "a.1", 3),
            entry(9_000, "joined", "c.1"),
            entry(12_000, "expired_member", "c.1"),
            entry(30_000, "left", "a.1"),
        ),
        steps=(Incident(at_ms=5_000, kind="kill", who="m2"),),
        silences=(ProcessSilence("b", 5_000, inf, alive=False), ProcessSilence("c", 9_500, 13_000, alive=True)),
        turns=(
            TenureCallback(25, 0, 1, begins=True),
            TenureCallback(145, 0, 1, begins=False),
            TenureCallback(152, 0, 2, begins=True),
        ),
        handled=((0, 1), (0, 2), (0, 2)),
    )


@pytest.mark.parametrize(
    ("real_value", "simulated_value", "unit", "verdict"),
    [
        (100.0, 100.0, "ms", "the same"),
        (109.0, 100.0, "ms", "within 10 %"),
        (3.0, 2.2, "ms", "within a millisecond"),
        (130.0, 100.0, "ms", "within the seeds"),
        (3.0, 2.2, "", "**differs**"),
        (200.0, 100.0, "ms", "**differs**"),
        (None, 100.0, "ms", "not seen"),
    ],
)
def test_a_figure_is_close_within_a_tenth_the_clock_s_resolution_or_the_seeds_spread(
    real_value: float | None, simulated_value: float, unit: str, verdict: str
) -> None:
    """Close means within a tenth, or the resolution of the simulator's clock, or the spread of its seeds."""
    low, high = (60.0, 140.0) if unit == "ms" else (2.0, 2.5)
    assert ComparedFigure("it", unit, real_value, simulated_value, low, high, None).verdict == verdict


def test_quantiles_are_of_nearest_rank() -> None:
    """There is none without values."""
    assert quantile([4, 1, 3, 2], 0.5) == 2
    assert quantile([1, 2, 3, 4], 1.0) == 4
    assert quantile([], 0.5) is None


def test_each_seed_is_compared_as_a_whole() -> None:
    """The simulated value is the median over seeds of what all runs of a seed show together, counts as means."""

    def told(drain_ms: float, moves: int) -> Figures:
        counts = dict.fromkeys(figures(_telling()).counts, 0) | {"moves": moves}
        return Figures(pauses_ms=(), gaps_ms=(), drains_ms=(drain_ms,), heals_ms=(), counts=counts)

    rows = {
        row.name: row for row in compare([told(50, 4)], [[told(10, 1), told(30, 3)], [told(40, 5), told(60, 7)]], [])
    }
    drain, moves = rows["drain, p50"], rows["moves"]
    assert (drain.real, drain.simulated, drain.low, drain.high) == (50, 25, 10, 40)
    assert (moves.real, moves.simulated, moves.difference) == (4, 4, 0)
    assert rows["time to heal a crash, p50"].verdict == "not seen"


def test_tables_go_between_their_markers(tmp_path: Path) -> None:
    """The text around them stays; a file without markers is refused and left alone."""
    file = tmp_path / "README.md"
    file.write_text("before\n<!-- truth tiny -->\nold\n<!-- end truth tiny -->\nafter\n")
    write(file, "tiny", "| new |")
    assert file.read_text() == "before\n<!-- truth tiny -->\n| new |\n<!-- end truth tiny -->\nafter\n"
    with pytest.raises(UsageError, match="truth churn"):
        write(file, "churn", "| new |")


@pytest.mark.parametrize(
    "words", [["--story", "none"], ["--runs", "0"], ["--json", "/nowhere/at/all.json"], ["--write", "/nowhere.md"]]
)
def test_bad_words_are_refused_before_anything_starts(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of a wrong command line."""
    assert truth.main(words) == truth.USAGE
    assert "usage" in capsys.readouterr().err


@pytest.mark.thorough
def test_the_shape_of_confluents_table() -> None:
    """Eager mode stops everything for every new connector, cooperative mode stops nothing."""
    report = confluent.tell(seeds=1, connectors=3, window_ms=60_000)
    eager, cooperative, instances = (report.shapes[mode][0] for mode in confluent.MODES)
    assert eager.start_ms > 10 * cooperative.start_ms
    assert eager.last_ms > 100 * cooperative.last_ms
    assert cooperative.shares[0] > eager.shares[0]
    assert cooperative.bounce_lost_ms < eager.bounce_lost_ms
    assert instances.bounce_moves < cooperative.bounce_moves < eager.bounce_moves
    assert "ours, eager" in report.markdown()
