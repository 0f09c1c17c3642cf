"""What is said of a replay: its plan, and what came of it beside the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from cobalance_sims.calibrate.written import table
from cobalance_sims.verify.check import difference, figures_table
from cobalance_sims.verify.comparison import Comparison, differing

if TYPE_CHECKING:
    from cobalance_sims.replay.performance import Performance
    from cobalance_sims.replay.plan import Plan

PREDICTED = "PREDICTED (95 OF 100 SUCH REPLAYS)"

ReplayOutcome = Literal["as predicted", "otherwise", "unknown", "aborted"]

_HEADS: dict[ReplayOutcome, str] = {
    "as predicted": "THE GROUP DID WHAT WAS PREDICTED",
    "otherwise": "THE GROUP DID OTHERWISE THAN WAS PREDICTED",
    "unknown": "WHETHER THE GROUP DID WHAT WAS PREDICTED CANNOT BE TOLD: too little happened. Give more --minutes, or --speed.",
    "aborted": "THE REPLAY WAS ENDED EARLY",
}


@attrs.frozen(kw_only=True)
class Replayed:
    """What came of a replay."""

    performance: Performance
    comparisons: list[Comparison]
    runs: int
    unhealed: str = ""
    """What is still wrong with the group afterwards; "" for nothing."""

    @property
    def outcome(self) -> ReplayOutcome:
        """As predicted if some figure could be compared, and none differs."""
        if self.performance.aborted:
            return "aborted"
        if differing(self.comparisons):
            return "otherwise"
        return "as predicted" if any(it.agreement == "agrees" for it in self.comparisons) else "unknown"


def plan_page(plan: Plan, forecast: Sequence[Comparison]) -> str:
    """The plan for people, and what is predicted of it."""
    churn = plan.churn
    what = (
        f"PLAN: {churn.name} for {churn.length_ms / 60_000:g} minutes, seed {plan.seed}, with {churn.members} members and "
        f"{churn.resources} resources: {_counted(plan)}"
    )
    lines = [
        what,
        *table([("AT", "ORDER", "MEMBER", ""), *(_step(it) for it in _rows(plan))]),
        "",
        *_left_out(plan),
        "",
        *figures_table(forecast, PREDICTED),
    ]
    return "\n".join(lines) + "\n"


def _rows(plan: Plan) -> list[dict[str, Any]]:
    return [attrs.asdict(it) for it in plan.steps]


def _step(it: dict[str, Any]) -> tuple[str, ...]:
    lasts = f"for {it['for_ms'] / 1000:.1f} s" if it["for_ms"] is not None else ""
    return (f"{it['at_ms'] / 1000:.1f} s", it["verb"], str(it["member"]), lasts)


def _counted(plan: Plan) -> str:
    return ", ".join(f"{verb} {count}" for verb, count in sorted(plan.counts.items())) or "nothing happens"


def _left_out(plan: Plan) -> list[str]:
    return ["Left out, of the prediction as well:", *(f"  {it}" for it in plan.left_out)]


def page(it: Replayed) -> str:
    """What came of it, for people."""
    performance = it.performance
    lines = [_HEADS[it.outcome]]
    if performance.aborted:
        lines.append(f"after {performance.length_ms / 1000:.0f} s, as {performance.aborted}.")
    lines += [difference(each) for each in differing(it.comparisons)]
    lines += ["Not carried out:", *(f"  {each}" for each in performance.declined)] if performance.declined else []
    lines += ["", *figures_table(it.comparisons, PREDICTED), f"{it.runs} simulated runs of the same deeds.", ""]
    lines.append(f"AFTERWARDS: {it.unhealed}" if it.unhealed else "The group is as it was before.")
    return "\n".join(lines) + "\n"


def plan_json(plan: Plan, forecast: Sequence[Comparison]) -> dict[str, Any]:
    """The plan for programs."""
    return {
        "churn": plan.churn.table(),
        "seed": plan.seed,
        "plan": _rows(plan),
        "left_out": plan.left_out,
        "figures": [attrs.asdict(it) for it in forecast],
    }


def as_json(it: Replayed) -> dict[str, Any]:
    """The same of what came of it."""
    done = it.performance
    return {
        "outcome": it.outcome,
        "aborted": done.aborted or None,
        "begun_at_ms": done.begun_ms,
        "length_ms": done.length_ms,
        "deeds": [attrs.asdict(deed) for deed in done.deeds],
        "declined": done.declined,
        "runs": it.runs,
        "unhealed": it.unhealed or None,
        **plan_json(done.plan, it.comparisons),
    }
