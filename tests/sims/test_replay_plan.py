"""A replay without servers: its plan, its limits, what is predicted of it, and how that compares."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from cobalance import BlockingGroup
from cobalance.coordinator.client import Coordinator, MemberRow
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.journal import Journal, JournalEntry
from cobalance.settings import GroupSettings
from cobalance_sims.replay.limits import SLACK_MS, Limits, LimitWatch
from cobalance_sims.replay.performance import Deed, Performance
from cobalance_sims.replay.plan import Plan, PlannedDeed, draw, orders, staged
from cobalance_sims.replay.prediction import carried_out, planned, predicted, seen, with_own_drains
from cobalance_sims.replay.stage import ReplayStage, Target, unready
from cobalance_sims.replay.written import Replayed, page
from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.churn import CHURNS, BadChurn, Churn
from cobalance_sims.simulate.kernel import Row
from cobalance_sims.simulate.scenario import At
from cobalance_sims.verify.comparison import compare, differing
from cobalance_sims.verify.prediction import warm_ms

SETTINGS = GroupSettings(
    session_timeout_ms=2_000, heartbeat_interval_ms=500, revocation_timeout_ms=4_000, rejoin_grace_ms=0
)
LENGTH_MS = 60_000
ROUGH = Churn(
    name="rough",
    deploy="rolling",
    deploy_every_ms=30_000,
    deploy_pause_ms=1_000,
    crashes_per_member_hour=120,
    pauses_per_member_hour=180,
    pause_ms="uniform:1000:6000",
    cuts_per_member_hour=30,
    joins_per_hour=30,
    leaves_per_hour=30,
)


def plan_of(churn: Churn = ROUGH, seed: int = 1, speed: float = 1.0, *, instances: bool = False) -> Plan:
    it = staged(churn, members=3, most=6, resources=9, instances=instances, length_ms=LENGTH_MS, speed=speed)
    return draw(churn, it, SETTINGS, seed)


def member(number: int, status: str = "active", instance: str | None = None) -> MemberRow:
    """A member on host h, whose process id is its number."""
    return MemberRow(f"x{number}.1", status, 1, instance, f"h/{number}", 700, 1, 9_000, 3, 0, 3, 3, subscription="s")


def stage(*, instances: bool = False) -> ReplayStage:
    """Three members of one agent."""
    numbers = range(1, 4)
    return ReplayStage(
        targets=[Target("h/9", f"m{it}", f"h/{it}", 100) for it in numbers],
        members=[member(it, instance=f"i{it}" if instances else None) for it in numbers],
        resources=9,
        at_most={"h/9": 6},
    )


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_a_seed_has_one_plan() -> None:
    """Another has another; and all that happens, happens to somebody who is there."""
    plan = plan_of()
    assert plan == plan_of()
    assert plan.steps != plan_of(seed=2).steps
    there = {1, 2, 3}
    for it in plan.steps:
        assert it.place <= 6
        there |= {it.member} if it.verb == "start" else set()
        assert it.member in there, it
        there -= {it.member} if it.verb == "kill" else set()
        assert (it.for_ms is not None) == (it.verb == "freeze")
        assert 0 <= it.at_ms <= LENGTH_MS
    assert {"start", "stop", "kill", "freeze"} == set(plan.counts)


def test_what_no_agent_can_do_is_left_out_and_said() -> None:
    """Of the plan, and so of the prediction."""
    plan = plan_of(ROUGH.changed(hint_lost=0.1, capacities=(2, 1)))
    assert (plan.churn.cuts_per_member_hour, plan.churn.hint_lost, plan.churn.capacities) == (0, 0, (1,))
    assert [it.partition(" ")[0].rstrip(":,") for it in plan.left_out] == [
        "cuts_per_member_hour",
        "hint_lost",
        "latency_ms",
        "capacities",
    ]


def test_speed_makes_more_happen() -> None:
    """Rates and deploys alike."""
    slow, fast = plan_of(), plan_of(speed=4)
    assert fast.churn.crashes_per_member_hour == 4 * ROUGH.crashes_per_member_hour
    assert fast.churn.deploy_every_ms == ROUGH.deploy_every_ms // 4
    assert len(fast.steps) > 2 * len(slow.steps)


def test_a_successor_has_the_place_of_its_predecessor() -> None:
    """With instance ids and without, so that each machine has as many members as before."""
    for instances in (False, True):
        plan = plan_of(CHURNS["crash_loop"].changed(crashes_per_member_hour=120.0), instances=instances)
        freed: list[int] = []
        places = {1: 1, 2: 2, 3: 3}
        for it in plan.steps:
            if it.verb == "kill":
                freed.append(places[it.member])
            else:
                places[it.member] = it.place
                assert it.place in freed
                freed.remove(it.place)
        assert plan.counts["start"] > 1


def test_a_surge_is_refused_with_instance_ids() -> None:
    """Two processes cannot have one at a time."""
    with pytest.raises(BadChurn, match="surge"):
        plan_of(CHURNS["surge_deploy"], instances=True)


def test_starts_are_ordered_earlier_by_what_a_program_takes() -> None:
    """But never before the predecessor was dealt with."""
    steps = [
        PlannedDeed(at_ms=5_000, verb="kill", member=1),
        PlannedDeed(at_ms=5_500, verb="start", member=4, place=1),
        PlannedDeed(at_ms=9_000, verb="start", member=5, place=4),
    ]
    ordered = orders(Plan(churn=ROUGH, seed=0, steps=steps, left_out=[]), 2_000)
    assert [(at, it.member) for at, it in ordered] == [(5_000, 1), (5_000, 4), (7_000, 5)]
    assert stage().startup_ms == 600


def test_additional_members_are_dealt_out_among_the_agents() -> None:
    """As many as each may have."""
    targets = [Target("a/1", "m1", "a/2"), Target("b/1", "m1", "b/2"), Target("a/1", "m2", "a/3")]
    it = ReplayStage(targets=targets, members=[], resources=1, at_most={"a/1": 4, "b/1": 2})
    assert it.places == [("a/1", 1), ("b/1", 1), ("a/1", 2), ("b/1", 2), ("a/1", 3), ("a/1", 4)]


# -- the stage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "others", "statuses", "says"),
    [
        ((1, 2, 3), (), ("held", "halted"), ""),
        ((1, 2), (), ("held",), "m3 of agent h/9 (process h/3) is not a member of it"),
        ((1, 2, 3), (7,), ("held",), "h/7 was started by no agent"),
        ((1, 2, 3), (), (), "no resources"),
        ((1, 2, 3), (), ("held", "pending", "free"), "2 of its 3 resources are on their way"),
    ],
)
def test_a_group_that_is_not_ready_is_refused(
    labels: tuple[int, ...], others: tuple[int, ...], statuses: tuple[str, ...], says: str
) -> None:
    """Its members are those of agents, and all resources are held."""
    known = {f"h/{it}": member(it) for it in labels}
    why = unready(stage().targets, known, [member(it) for it in others], statuses)
    assert says in why
    assert bool(says) == bool(why)
    assert unready([], known, [], statuses) == "no process of an agent runs"


# -- the limits --------------------------------------------------------------------------------------------------------


class Told:
    """A watch that is given a journal."""

    def __init__(self, **limits: Any) -> None:
        self.watch = LimitWatch(Limits(**{"unworked_ms": 10_000, "expiries": 1, **limits}), SETTINGS)
        self._seq = 0
        self.tell("incarnation", 0, reason="created")
        self.tell("recovered", 0)

    def tell(self, kind: str, at_ms: int, **words: Any) -> None:
        self._seq += 1
        entry = JournalEntry(id=f"{self._seq}-0", seq=self._seq, kind=kind, at_ms=at_ms, **words)
        self.watch.take(entry, counts=at_ms > 0)

    def granted(self, at_ms: int, member: str, token: int) -> None:
        self.tell("granted", at_ms, resource="r", member=member, token=token)

    def reason(self, at_ms: int, lag: int | None = None, *, somebody_runs: bool = True) -> str:
        return self.watch.reason(at_ms, lag, somebody_runs=somebody_runs)


def test_a_resource_that_nobody_works_ends_a_replay() -> None:
    """Where nobody runs, nobody could: that time does not count."""
    told = Told()
    told.tell("added", 1_000, resource="r")
    assert told.reason(11_000) == ""
    assert told.reason(11_001) == "r has been without an owner for more than 10 s"
    assert told.reason(11_001, somebody_runs=False) == ""
    assert told.reason(21_000) == ""
    assert told.reason(21_002) != ""
    told.granted(22_000, "x1.1", 1)
    assert told.reason(99_000) == ""


def test_too_many_expiries_end_a_replay() -> None:
    """Those from before it do not count, nor does the end of a grace."""
    told = Told()
    for at_ms, reason in ((0, ""), (1, "grace"), (2, "")):
        told.tell("expired_member", at_ms, member="x1.1", reason=reason)
    assert told.reason(10) == ""
    told.tell("expired_member", 11, member="x2.1")
    assert told.reason(12) == "2 sessions have expired, more than 1"


def test_a_lag_ends_a_replay() -> None:
    """If it is known."""
    told = Told(lag=1_000)
    assert [told.reason(1, lag) for lag in (None, 1_000, 1_001)] == ["", "", "the lag is 1,001, more than 1,000"]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (("x1.1", 5), "S1: r was given away under token 5, after 5"),
        (("x2.1", 6), "S1: r was given to x2.1 while x1.1 had it"),
    ],
)
def test_two_holders_are_a_broken_promise(second: tuple[str, int], says: str) -> None:
    """Or one token given twice."""
    told = Told()
    told.granted(1, "x1.1", 5)
    told.granted(2, *second)
    assert says in told.reason(3)


def test_two_holders_are_noticed_in_a_group_that_an_operator_made() -> None:
    """Its journal never says that it has recovered: there is nothing to recover."""
    transport = MemoryTransport(MemoryStore())
    Coordinator(transport, "g").create(SETTINGS)
    with BlockingGroup("g", ["r"], transport=transport, settings=SETTINGS) as one:
        one.wait_held("r", timeout=60)
        entries = list(Journal(transport, "g").entries())
    assert "recovered" not in {it.kind for it in entries}
    watch = LimitWatch(Limits(unworked_ms=60_000, expiries=10), SETTINGS)
    for it in entries:
        watch.take(it, counts=True)
    last = next(it for it in entries if it.kind == "granted")
    assert watch.reason(last.at_ms, None, somebody_runs=True) == ""
    watch.take(attrs.evolve(last, member="other.1"), counts=True)
    assert "S1: r was given to other.1" in watch.reason(last.at_ms, None, somebody_runs=True)


def test_what_is_claimed_while_a_group_recovers_breaks_no_promise() -> None:
    """Claims come in any order, of what others had, too; what is given away afterwards is looked at again."""
    told = Told()
    told.granted(1, "x1.1", 5)
    told.tell("incarnation", 2, reason="recovering")
    told.tell("claimed", 3, resource="r", member="x2.1", token=5)
    assert told.reason(4) == ""
    told.tell("recovered", 5)
    told.granted(6, "x3.1", 6)
    assert "S1: r was given to x3.1 while x2.1 had it" in told.reason(7)


def test_a_late_handover_is_a_broken_promise() -> None:
    """L2: a revocation ends by its timeout."""
    told = Told()
    told.granted(1, "x1.1", 5)
    told.tell("revoking", 1_000, resource="r", member="x1.1", token=5)
    end = 1_000 + SETTINGS.revocation_timeout_ms + SETTINGS.session_timeout_ms + SLACK_MS
    assert told.reason(end) == ""
    assert "L2: r" in told.reason(end + 1)


def test_a_late_expiry_is_a_broken_promise() -> None:
    """L3: a killed process's member goes within two session timeouts."""
    told = Told()
    told.tell("joined", 1, member="x1.1", label="h/1")
    told.tell("joined", 1, member="x2.1", label="h/2")
    told.watch.killed("h/1", 1_000)
    end = 1_000 + 2 * SETTINGS.session_timeout_ms + SLACK_MS
    assert told.reason(end) == ""
    assert "L3: x1.1" in told.reason(end + 1)
    told.tell("expired_member", end + 1, member="x1.1")
    assert told.reason(end + 2) == ""


# -- the prediction ----------------------------------------------------------------------------------------------------


class Entries(Check):
    """Not a promise: the journal of a simulated run, as it is read from Redis."""

    promise = ""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.found: list[JournalEntry] = []

    def journal(self, entry: JournalEntry) -> None:
        process = self.world.of_member(entry.member or "")
        label = f"h/{process.name[1:]}" if entry.kind == "joined" and process else entry.label
        shift_ms = self.world.clock.skipped
        self.found.append(attrs.evolve(entry, at_ms=entry.at_ms + shift_ms, label=label))


def performed(plan: Plan, churn: Churn, *, told: bool = True) -> Performance:
    """A replay of a plan, with members that drain as this churn says; ``told`` if agents tell what they did."""
    from cobalance_sims.replay.prediction import _done

    warm = warm_ms(SETTINGS)
    deeds = [attrs.evolve(it, label=f"h/{it.member}") for it in planned(plan)]
    length_ms = warm + plan.churn.length_ms
    row = Row.read(
        {"churn": churn.changed(length_ms=length_ms, deploy="none").table(), "seed": 77, **attrs.asdict(SETTINGS)}
    )
    steps = tuple(At(warm + at_ms, done) for at_ms, done in _done(stage(), deeds))
    run = attrs.evolve(row, scenario=attrs.evolve(row.scenario, plan=steps, members=3)).run(checks="none")
    entries = Entries(run.world)
    run.world.watch.add(entries)
    assert run.tell().failure == ""
    begun = entries.found[0].at_ms + warm
    return Performance(
        stage=stage(),
        plan=plan,
        begun_ms=begun,
        length_ms=plan.churn.length_ms,
        deeds=deeds if told else [],
        declined=[],
        aborted="",
        entries=[it for it in entries.found if it.at_ms <= begun + plan.churn.length_ms],
    )


def replayed(it: Performance) -> Replayed:
    """The same, compared."""
    churn = with_own_drains(it, SETTINGS)
    runs = list(predicted(churn, SETTINGS, it.stage, carried_out(it), length_ms=it.length_ms, runs=20))
    return Replayed(performance=it, comparisons=compare([seen(it)], runs), runs=20)


@pytest.mark.thorough
def test_members_that_do_as_predicted_are_said_to() -> None:
    """Though they drain otherwise than production's, which is not the replay's doing."""
    plan = plan_of()
    found = replayed(performed(plan, plan.churn.changed(drain_ms="lognormal:900:0.3")))
    assert [it for it in found.comparisons if it.agreement == "unknown"] == []
    assert found.outcome == "as predicted", page(found)
    assert "THE GROUP DID WHAT WAS PREDICTED" in page(found)


def test_a_group_that_does_otherwise_is_noticed() -> None:
    """Here sessions expire and resources move though nothing was done: the prediction is that nothing happens."""
    plan = plan_of()
    found = replayed(performed(plan, plan.churn, told=False))
    assert found.outcome == "otherwise"
    assert {it.name for it in differing(found.comparisons)} >= {"false_expiries", "moves"}
    assert "Moves: the journal shows" in page(found)


def test_a_quiet_replay_says_too_little() -> None:
    """Nothing was done, and nothing happened."""
    plan = plan_of(Churn())
    found = replayed(performed(plan, plan.churn))
    assert {it.agreement for it in found.comparisons if it.name in {"healing", "gaps"}} == {"unknown"}


def test_a_member_takes_part_from_when_it_has_joined() -> None:
    """Its program needs time to start; one that never joined takes no part."""
    plan = plan_of()
    joined = JournalEntry(id="1-0", seq=1, kind="joined", at_ms=10_700, member="x4.1", label="h/4")
    again = attrs.evolve(joined, id="2-0", seq=2, at_ms=15_000, member="x4.2")
    deeds = [
        Deed(at_ms=100, verb="start", member=4, label="h/4", place=1),
        Deed(at_ms=600, verb="freeze", member=4, label="h/4"),
        Deed(at_ms=1_000, verb="kill", member=4, label="h/4"),
        Deed(at_ms=1_200, verb="start", member=5, label="h/5", place=1),
        Deed(at_ms=1_300, verb="stop", member=2, label="h/2"),
        Deed(at_ms=99_000, verb="resume", member=2, label="h/2"),
    ]
    it = Performance(
        stage=stage(), plan=plan, begun_ms=10_000, length_ms=9_000, deeds=deeds, declined=[], aborted="", entries=[joined, again]
    )  # fmt: skip
    assert [(deed.at_ms, deed.verb, deed.member) for deed in carried_out(it)] == [
        (700, "start", 4),
        (1_000, "kill", 4),
        (1_300, "stop", 2),
    ]


def test_a_crash_that_the_group_sees_is_predicted_as_one() -> None:
    """A broker's consumers are noticed within milliseconds: then nobody waits for the session to expire."""
    plan = plan_of()
    entries = [
        JournalEntry(id="1-0", seq=1, kind="joined", at_ms=9_000, member="x2.1", label="h/2"),
        JournalEntry(id="2-0", seq=2, kind="expired_member", at_ms=15_020, member="x2.1", reason="crashed"),
        JournalEntry(id="3-0", seq=3, kind="expired_member", at_ms=19_000, member="x1.1", reason="expired"),
    ]
    deeds = [
        Deed(at_ms=5_000, verb="kill", member=2, label="h/2"),
        Deed(at_ms=7_000, verb="kill", member=1, label="h/1"),
    ]
    it = Performance(
        stage=stage(), plan=plan, begun_ms=10_000, length_ms=20_000, deeds=deeds, declined=[], aborted="", entries=entries
    )  # fmt: skip
    assert [(deed.at_ms, deed.member, deed.is_seen) for deed in carried_out(it)] == [
        (5_020, 2, True),
        (7_000, 1, False),
    ]
    slow = plan.churn.changed(drain_ms="constant:3000")
    found = {}
    for is_seen in (True, False):
        deed = attrs.evolve(deeds[0], is_seen=is_seen)
        (found[is_seen],) = predicted(slow, SETTINGS, it.stage, [deed], length_ms=20_000, runs=1)
    assert (found[True]["crashes"], found[False]["crashes"]) == (0, 1)
    assert found[True]["moves"] == found[False]["moves"] == 3
    assert found[True]["draining_resource_ms"] < 100
