"""What should come of a replay: the same deeds, at the same moments, to simulated members.

So what differs between prediction and replay is how the group answers, not what it was given to answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from cobalance_sims.outcomes import of_entry
from cobalance_sims.outcomes.crashes import SEEN
from cobalance_sims.records import OUTCOME
from cobalance_sims.replay.performance import Deed
from cobalance_sims.simulate.distributions import empirical
from cobalance_sims.simulate.kernel import Row, result_of
from cobalance_sims.simulate.scenario import At
from cobalance_sims.simulate.server import START_MS
from cobalance_sims.verify.as_journal import outcome_between
from cobalance_sims.verify.figures import ENOUGH
from cobalance_sims.verify.prediction import EVENTS, LEAST_RUNS, MOST_RUNS, warm_ms

if TYPE_CHECKING:
    from cobalance.settings import GroupSettings
    from cobalance_sims.replay.performance import Performance
    from cobalance_sims.replay.plan import Plan, Verb
    from cobalance_sims.replay.stage import ReplayStage
    from cobalance_sims.simulate.churn import Churn
    from cobalance_sims.simulate.world import World
    from cobalance_sims.verify.as_journal import Outcome

CUT_SHORT = 2
"""A drain that was forced would have taken this many times as long, for want of anything better."""


@attrs.frozen(kw_only=True)
class Done:
    """A fault of a scenario: what was done to one process."""

    verb: Verb
    process: str
    capacity: int = 1
    instance: str | None = None
    is_seen: bool = False
    """For ``kill``: the group saw it, so that others had at once what the process held, as when one leaves whose work takes
    no time.
    """

    def strike(self, world: World) -> None:
        """Does it, if the process is there; a new one has the next name."""
        process = world.living.get(self.process)
        if self.verb == "start":
            world.start(instance=self.instance, capacity=self.capacity)
        elif process is None:
            return
        elif self.verb == "kill" and not self.is_seen:
            process.kill()
        elif self.verb in {"kill", "stop"} and not process.leaving:
            if self.is_seen:
                process.habits = attrs.evolve(process.habits, drain_ms=(0, 0), drain_ms_of={})
                process.work.hurry()
            process.stop(remain=process.member_settings.instance_id is not None)
        elif self.verb == "freeze" and not process.paused:
            process.pause()
        elif self.verb == "resume":
            process.resume()


def planned(plan: Plan) -> list[Deed]:
    """The deeds of a plan, if all goes as it says."""
    found = []
    for step in plan.steps:
        found.append(Deed(at_ms=step.at_ms, verb=step.verb, member=step.member, place=step.place))
        if step.verb == "freeze" and step.for_ms is not None:
            found.append(attrs.evolve(found[-1], verb="resume", at_ms=step.at_ms + step.for_ms))
    return sorted(found, key=lambda it: it.at_ms)


def carried_out(it: Performance) -> list[Deed]:
    """The deeds of a replay. A member starts when it has joined; one that never did takes no part."""
    joins: dict[str, int] = {}  # the first of each process, which may come back after its session expired
    for entry in it.entries:
        if entry.kind == "joined" and entry.at_ms >= it.begun_ms:
            joins.setdefault(entry.label or "", entry.at_ms - it.begun_ms)
    first, crashes = len(it.stage.targets), _seen_crashes(it)
    found = []
    for deed in it.deeds:
        joined_ms = 0 if deed.member <= first else joins.get(deed.label, it.length_ms + 1)
        at_ms = joined_ms if deed.verb == "start" else deed.at_ms
        if deed.verb == "kill" and (seen_ms := crashes.get(deed.label)) is not None:
            deed = attrs.evolve(deed, is_seen=True)  # noqa: PLW2901
            at_ms = max(at_ms, seen_ms)
        if joined_ms <= at_ms <= it.length_ms:
            found.append(attrs.evolve(deed, at_ms=at_ms))
    return sorted(found, key=lambda deed: deed.at_ms)


def _seen_crashes(it: Performance) -> dict[str, int]:
    """When the group saw that a process was dead, rather than wait for its session to expire: by its label."""
    labels = {member.id: member.label for member in it.stage.members}
    found: dict[str, int] = {}
    for entry in it.entries:
        if entry.kind == "joined":
            labels[entry.member or ""] = entry.label or ""
        elif entry.kind in {"expired_member", "graced"} and entry.reason == SEEN:
            found[labels.get(entry.member or "", "")] = entry.at_ms - it.begun_ms
    return found


def seen(it: Performance) -> Outcome:
    """What the group's journal shows of the replay."""
    events = [of_entry(entry, "replay") for entry in it.entries]
    return outcome_between(events, "replay", it.begun_ms, it.begun_ms + it.length_ms)


def with_own_drains(it: Performance, settings: GroupSettings) -> Churn:
    """The churn with drains as the group's own members took for them, if enough were seen: no agent makes them slower."""
    entries = [entry for entry in it.entries if entry.at_ms >= it.begun_ms]
    drains = [float(entry.drain_ms) for entry in entries if entry.kind == "released" and entry.drain_ms is not None]
    drains += [float(CUT_SHORT * settings.revocation_timeout_ms) for entry in entries if entry.is_overrun]
    return it.plan.churn.changed(drain_ms=empirical(drains)) if len(drains) >= ENOUGH else it.plan.churn


def runs_for(events: int) -> int:
    """How many runs to compare a replay of this many events with."""
    return min(max(EVENTS // max(events, 1), LEAST_RUNS), MOST_RUNS)


def predicted(
    churn: Churn, settings: GroupSettings, stage: ReplayStage, deeds: Sequence[Deed], *, length_ms: int, runs: int
) -> Iterator[Outcome]:
    """An outcome for each run; each begins with a group that has settled, at some moment between two heartbeats."""
    warm = warm_ms(settings)
    steps = [At(warm + at_ms, done) for at_ms, done in _done(stage, deeds)]
    row: dict[str, Any] = {
        "churn": churn.changed(length_ms=warm + length_ms, deploy="none").table(), "checks": "none", **attrs.asdict(settings)
    }  # fmt: skip
    for seed in range(runs):
        it = Row.read({**row, "seed": seed, "run": f"replay-{seed}"})
        phase_ms = Random(seed).randrange(settings.heartbeat_interval_ms)
        scenario = attrs.evolve(
            it.scenario,
            plan=tuple(attrs.evolve(step, ms=step.ms + phase_ms) for step in steps),
            length_ms=it.scenario.length_ms + phase_ms,
            members=len(stage.members),
            instances=stage.has_instances,
            capacities=tuple(member.capacity for member in stage.members),
        )
        yield _as_journal(attrs.evolve(it, scenario=scenario), warm + phase_ms)


def _as_journal(row: Row, warm: int) -> Outcome:
    result = result_of(row)
    known = dict(zip(OUTCOME.names, result.outcome, strict=True))
    found = outcome_between(result.events, row.name, START_MS + warm, START_MS + known["observed_ms"])
    return {**found, **{name: known[name] for name in ("seed", "status", "error", "replay", "cpu_s")}}


def _done(stage: ReplayStage, deeds: Sequence[Deed]) -> Iterator[tuple[int, Done]]:
    """Simulated processes are named in the order of their starts; the group's other members come after the targets."""
    first, born = len(stage.targets), len(stage.members)
    names = {number: f"p{number}" for number in range(1, first + 1)}
    for it in deeds:
        if it.verb == "start":
            born += 1
            names[it.member] = f"p{born}"
            place = it.place - 1 if it.place <= first else len(stage.members) + it.place
            yield (
                it.at_ms,
                Done(
                    verb=it.verb,
                    process=names[it.member],
                    capacity=stage.members[min(place, first - 1)].capacity,
                    instance=f"i{place}" if stage.has_instances else None,
                ),
            )
        elif it.member in names:
            yield it.at_ms, Done(verb=it.verb, process=names[it.member], is_seen=it.is_seen)
