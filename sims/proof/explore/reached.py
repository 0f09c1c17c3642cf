"""Counts of what explorations reached, and what a tier must reach: without faults, a kept promise proves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cobalance.coordinator.requests import Header, Join, Request
from cobalance.settings import GroupSettings
from proof.explore.coordinator import Effect, Execution
from proof.explore.process import ProcessStep
from proof.explore.world import Transitions

LIFE = ("start", "restart", "answer", "wake", "finish", "begin", "commit", "leave", "relist", "tick")
FAULTS = ("crash", "pause", "resume", "cut", "heal", "lost", "reply", "late", "arrive", "empty", "replace")

CALLS = ("join", "join with claims", "set_resources", "heartbeat", "release", "commit", "leave")
"""Not ``tick``: a heartbeat is due at each tick of the clock, and settles the same."""

ANSWERS = ("REJOIN", "ENDED", "STALE", "FENCED", "repeat")

ABORTS = ("fenced", "deadline")
"""``fenced`` is a member that fences itself when its lease is over."""

JOURNAL = (
    *("incarnation", "recovered", "claimed", "refused", "joined", "left", "expired_member", "coordinator"),
    *("added", "removing", "removed", "granted", "withdrawn", "revoking", "cancelled"),
    *("released", "abandoned", "forced", "expired", "leaving"),
)

REQUIRED = (
    *LIFE,
    *FAULTS,
    *(f"call {it}" for it in CALLS),
    *(f"answer {it}" for it in ANSWERS),
    *(f"abort {it}" for it in ABORTS),
    *(f"journal {it}" for it in JOURNAL),
)
"""Every kind that at least one scope of a tier must reach."""


def missing(counts: Iterable[Counter[str]], required: Sequence[str] = REQUIRED) -> list[str]:
    """Returns the kinds that no exploration reached."""
    together = sum(counts, Counter[str]())
    return [kind for kind in required if not together[kind]]


def reached(world: Transitions) -> Counter[str]:
    """Counts distinct executions and distinct steps of processes, including those of the fair closures."""
    out: Counter[str] = Counter()
    for execution, outcome in world.coordinator.outcomes.items():
        out.update(_of_call(execution, outcome))
        if _is_repeat(world, execution):
            out["answer repeat"] += outcome.reply.status == "OK"
    for step in world.processes.steps():
        out.update(_of_step(step))
    return out


def _of_call(execution: Execution, outcome: Effect) -> Iterator[str]:
    if outcome.wrong:
        return  # it asked for the server's identity again, and did nothing
    yield f"call {execution.script}"
    if execution.script == "join" and len(execution.args) > _JOIN_WORDS:
        yield "call join with claims"
    yield f"answer {outcome.reply.status}"
    if "FENCED" in outcome.reply.results:
        yield "answer FENCED"
    for entry in outcome.journal:
        yield f"journal {entry['kind']}"


_JOIN_WORDS = 1 + len(Request(Header("a", 1), Join(settings=GroupSettings())).args())
"""Number of arguments of a join without claims, the server's identity included."""


def _is_repeat(world: Transitions, execution: Execution) -> bool:
    member, number = execution.args[2:4]
    return world.checks.facts(execution.before).records.last_request(member) == int(number)


def _of_step(step: ProcessStep) -> Iterator[str]:
    for reason in step.aborted:
        yield f"abort {reason}"
