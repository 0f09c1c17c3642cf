"""One row of a sweep."""

from __future__ import annotations

import json
import shlex
from typing import Any

import attrs
import pytest

from cobalance.cli.app import run as main
from cobalance.errors import CobalanceError
from cobalance.journal import JournalEntry
from cobalance.ownership import Ownership
from cobalance_sims.outcomes import Event, RunFacts, fold, of_entry
from cobalance_sims.records import EVENT, HANDOVER, OUTCOME, SIM
from cobalance_sims.simulate import kernel
from cobalance_sims.simulate.churn import CHURNS
from cobalance_sims.simulate.kernel import Row, result_of, run_row
from cobalance_sims.simulate.recorder import Recorder
from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.server import START_MS
from proof.stories.scenarios import SCENARIOS


def outcome(params: dict[str, Any]) -> dict[str, Any]:
    """Column → value."""
    return dict(zip(OUTCOME.names, run_row(params).outcome, strict=True))


def test_the_same_parameters_give_the_same_rows() -> None:
    """In any order and state of the process: a used store, a new one, another run in between."""
    params = {"churn": "lively", "seed": 5, "length_ms": 400_000}
    first = run_row(params)
    run_row({"churn": "crash_loop", "seed": 1, "length_ms": 60_000})
    again = run_row(params)
    kernel._STORES.clear()
    anew = run_row(params)
    cpu = OUTCOME.names.index("cpu_s")
    told = json.loads(dict(zip(OUTCOME.names, first.outcome, strict=True))["params"])
    assert run_row(told).events == first.events
    assert first.events == again.events == anew.events
    assert first.handovers == again.handovers == anew.handovers
    assert len({(*it.outcome[:cpu], *it.outcome[cpu + 1 :]).__repr__() for it in (first, again, anew)}) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("name", CHURNS)
def test_every_named_churn_keeps_the_promises(name: str) -> None:
    """With all checkers on, in a short form; and nothing moves that need not. What a member gives up goes on to another."""
    row = run_row({"churn": name, "seed": 3, "length_ms": 300_000, "deploy_every_ms": 150_000, "checks": "all"})
    told = dict(zip(OUTCOME.names, row.outcome, strict=True))
    assert told["status"] == "ok", told["replay"]
    assert told["observed_ms"] == 300_000
    assert told["missing_events"] == 0
    handovers = [dict(zip(HANDOVER.names, it, strict=True)) for it in row.handovers]
    passed_on = sum(it["how"] == "abandoned" and it["taker"] not in (None, it["giver"]) for it in handovers)
    assert bool(passed_on) == bool(CHURNS[name].poison)
    assert told["moves"] - passed_on <= told["minimum_moves"]


def test_rows_are_as_the_schema_says() -> None:
    """Spark binds columns by position."""
    result = result_of(Row({}, "run", SCENARIOS["everything"], 2, "cheap", None))
    assert Event._fields == EVENT.names
    assert {len(row) for row in result.handovers} == {len(HANDOVER.names)}
    assert len(result.outcome) == len(OUTCOME.names)
    for record, rows in ((EVENT, result.events), (HANDOVER, result.handovers), (OUTCOME, [result.outcome])):
        for at, column in enumerate(record.columns):
            kind = {
                "string": str,
                "long": int,
                "double": float,
                "boolean": bool,
                "map<int,long>": dict,
                "array<long>": list,
            }
            values = [row[at] for row in rows if row[at] is not None]
            assert all(type(value) is kind[column.type] for value in values), column
            assert column.nullable or len(values) == len(rows), column


def test_messages_of_a_broker_are_at_risk_when_their_holder_dies() -> None:
    """Exactly those that were delivered and not acknowledged: the broker reports them one by one."""
    story = attrs.evolve(SCENARIOS["hot_partition"], length_ms=50_000)
    rows = [result_of(Row({}, "run", story, seed, "cheap", None)).outcome for seed in (1, 2)]
    told = [dict(zip(OUTCOME.names, row, strict=True)) for row in rows]
    assert sum(it["crashes"] for it in told) >= 4
    assert sum(it["duplicates_at_risk"] for it in told) > 0
    assert all(it["unhealed"] == 0 and max(it["heal_ms"]) < 12_000 for it in told)


@pytest.mark.thorough
def test_shorter_sessions_heal_faster_and_err_more_often() -> None:
    """This choice is what a sweep is for."""

    def totals(session_ms: int) -> tuple[float, int]:
        params = {"churn": "frozen_hosts", "crashes_per_member_hour": 6, "pauses_per_member_hour": 12}
        params |= {"heartbeat_interval_ms": session_ms // 4, "pause_ms": "uniform:5000:12000"}
        rows = [outcome(params | {"session_timeout_ms": session_ms, "seed": seed, "members": 3}) for seed in range(3)]
        heals = [ms for row in rows for ms in row["heal_ms"]]
        return sum(heals) / len(heals), sum(row["false_expiries"] for row in rows)

    quick, patient = totals(4_000), totals(20_000)
    assert quick[0] < patient[0] / 2
    assert quick[1] > patient[1] == 0


def test_who_sleeps_into_the_calm_is_waited_for() -> None:
    """A process frozen until its lease was nearly over gives up when it wakes: only then has the group converged."""
    params = {
        "churn": "gc_pauses",
        "members": 2,
        "resources": 4,
        "length_ms": 120_000,
        "messages_per_s": 0.2,
        "seed": 158,
    }
    assert outcome(params | {"revocation_timeout_ms": 10_000})["status"] == "ok"


def test_somebody_calls_when_the_last_one_leaves_as_calm_begins() -> None:
    """Otherwise a member that was killed just before would stay recorded, as it may in a group that nobody calls."""
    churn = {
        "crashes_per_member_hour": 60,
        "deploy": "rolling",
        "deploy_every_ms": 20_000,
        "drain_ms": "uniform:1000:5000",
    }
    size = {"length_ms": 60_000, "members": 2, "messages_per_s": 5, "resources": 4}
    settings = {"session_timeout_ms": 5_000, "heartbeat_interval_ms": 1_000, "revocation_timeout_ms": 5_000}
    assert outcome({"churn": churn | size, "seed": 1_000_003, **settings})["status"] == "ok"


def test_the_trouble_of_a_churn_is_over_for_those_that_start_later() -> None:
    """What could not be worked can be once the churn has ended, also by a process that starts after that."""
    churn = {
        "poison": 2,
        "members": 1,
        "resources": 2,
        "length_ms": 60_000,
        "deploy": "all_at_once",
        "deploy_every_ms": 60_000,
        "deploy_pause_ms": 0,
        "startup_ms": "uniform:20000:30000",
    }
    settings = {"session_timeout_ms": 5_000, "heartbeat_interval_ms": 1_000, "revocation_timeout_ms": 5_000}
    for seed in range(5):
        run = Row.read({"churn": churn, "seed": seed, **settings}).run(checks="all")
        assert run.tell().failure == ""
        assert all(it.owner for it in run.world.redis.ledger.resources.values())


def test_a_broken_promise_names_the_command_that_breaks_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sweep goes on, and the command alone is enough to reproduce it."""
    monkeypatch.setattr("cobalance_sims.simulate.checks.liveness.L1.bound_ms", lambda _: -1)
    monkeypatch.setattr("cobalance_sims.simulate.checks.liveness.why_unsettled", lambda _: "somebody sulks")
    told = outcome(
        {
            "churn": "crash_loop",
            "seed": 4,
            "crashes_per_member_hour": 60,
            "length_ms": 60_000,
            "session_timeout_ms": 9_000,
        }
    )
    assert told["status"] == "failed"
    assert told["error"].startswith("Violation: L1")
    words = shlex.split(told["replay"])
    assert words[:3] == ["cobalance", "sims", "run"]
    assert main(words[1:]) == 1
    shown = capsys.readouterr().out
    assert told["error"] in shown
    assert told["replay"] in shown
    assert "is killed" in shown
    assert json.loads(words[-1])["session_timeout_ms"] == 9_000


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"checks": "some"}, "checks is 'some'"),
        ({"lua": "lua60"}, "lua is 'lua60'"),
        ({"session_timeout_ms": 60_000}, "revocation_timeout_ms (30000) is below"),
        ({"drain_ms": "lognormal:5"}, "takes 2"),
        ({"sesion_timeout_ms": 5}, "a churn has no sesion_timeout_ms"),
    ],
)
def test_parameters_that_make_no_run_are_refused(params: dict[str, Any], says: str) -> None:
    """Before anything runs, and by name."""
    with pytest.raises(CobalanceError) as refusal:
        run_row(params)
    assert says in str(refusal.value)


def test_what_a_sweep_replays_must_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped command is reported with an example."""
    assert main(["sims", "run", "--params", "{churn: steady}"]) == 2
    assert main(["sims", "run", "--params", "[" * 100_000]) == 2
    assert main(["sims", "run", "--params", "[1]"]) == 2
    assert main(["sims", "run"]) == 2
    said = capsys.readouterr().err
    assert said.count("no JSON object") == 3
    assert "it is of type list" in said


def test_a_halted_resource_is_not_free() -> None:
    """The replayed ownership follows what operators do: a halted resource needs no owner."""
    ledger = Ownership()
    kinds = ("added", "granted", "abandoned", "halted", "reset", "resumed")
    free = []
    for seq, kind in enumerate(kinds, 1):
        ledger.apply(JournalEntry(id="", seq=seq, kind=kind, at_ms=0, resource="r", member="m", token=7), now=seq)
        free.append("r" in ledger.free)
    assert free == [True, False, True, False, False, True]
    assert not ledger.resources["r"].halted


def test_the_same_events_through_the_journal_are_the_same_outcomes() -> None:
    """A production journal is folded by the very same code: only what a simulator alone knows is missing."""
    run = Run(SCENARIOS["redeploy_static"], 2, verbose=False)
    recorder = Recorder(run.world, "x")
    run.world.watch.add(recorder)
    run.tell()
    redis = run.world.redis
    entries = redis.transport.read_stream("cobalance:1:{g}:journal", "0", 100_000)
    events = [of_entry(JournalEntry.read(id_, fields), "x") for id_, fields in entries]
    assert [it.seq for it in events][-len(recorder.events) :] == [it.seq for it in recorder.events]
    known = RunFacts(START_MS, START_MS + run.world.now)
    real, told = fold(events, "x", "journal", known), fold(recorder.events, "x", SIM, known)
    same = [
        at
        for at, name in enumerate(HANDOVER.names)
        if name not in ("source", "silent_ms", "duplicates_at_risk", "false_expiry")
    ]
    assert [[row[at] for at in same] for row in real.handovers] == [[row[at] for at in same] for row in told.handovers]
    one, other = real.outcome_dict(), told.outcome_dict()
    differing = {name for name in one if one[name] != other[name]}
    assert differing <= {
        *(
            "source",
            "mode",
            "duplicates_at_risk",
            "false_expiries",
            "crashes",
            "heal_ms",
            "heal_hist",
            "observed_events",
        ),
        *(name for name in one if name.endswith("_ms") and other[name] is None),
        "moves_per_call",
    }
    assert one["session_timeout_ms"] == 6_000, "the journal itself tells the settings"
