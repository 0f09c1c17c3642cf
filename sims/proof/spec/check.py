"""What ``make spec`` checks: the specification, that mistakes in it are found, and that histories obey it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator

import attrs

from proof.spec import history
from proof.spec.corrupt import corrupted
from proof.spec.history import History
from proof.spec.mistakes import MISTAKES, settings
from proof.spec.stories import recorded
from proof.spec.tlc import DOCUMENT, Tlc, TlcResult

MODELS: dict[str, str] = {
    "Delays": "2 members, 1 resource, one disturbance, answers that are believed a tick later",
    "Lists": "2 members, 1 resource, two disturbances: changing lists of one or both, crashes, freezes, cuts",
    "Deploy": "2 members, 2 resources, of which they name one or both, one disturbance: a leave, a crash, another list, data lost",
    "Endings": "2 members, 1 resource, which one or the other or both name, and name no more: L1, L2, L3",
    "Backups": "2 members, 1 resource, Redis comes back older",
    "Avoidance": "2 members, 1 resource, two disturbances: work that breaks, crashes, freezes",
    "Commits": "2 members, 1 resource, one disturbance, offsets, late commits and releases",
    "Three": "3 members, 1 resource, a leave, a crash or a freeze",
    "Crash": "3 members, 2 resources, a crash",
    "Interleavings": "2 members, 1 resource, two disturbances of any kind, scripts that leave work for later",
    "Safety": "2 members, 2 resources, one disturbance of any kind",
    "Liveness": "2 members, 1 resource, one disturbance of any kind: L1, L2, L3, no drain ever finishing",
}
"""Name of a configuration → what is checked completely."""


Only = Collection[str]
"""The names of what is to be checked in a part; empty means all."""


@attrs.frozen(kw_only=True)
class CheckResult:
    """One line of the report."""

    part: str
    """models, mistakes or histories."""
    name: str
    summary: str
    passed: bool
    broken: str = ""
    steps: int = 0
    generated: int = 0
    distinct: int = 0
    depth: int = 0
    seconds: float = 0.0
    output: str = attrs.field(default="", repr=False)


def _outcome(part: str, summary: str, it: TlcResult, *, passed: bool) -> CheckResult:
    return CheckResult(
        part=part, name=it.name, summary=summary, passed=passed, broken=it.broken, steps=it.steps, generated=it.generated,
        distinct=it.distinct, depth=it.depth, seconds=it.seconds, output=it.output,
    )  # fmt: skip


def models(tlc: Tlc, only: Only = ()) -> Iterator[CheckResult]:
    """Every promise holds in every model."""
    for name, summary in MODELS.items():
        if not only or name in only:
            found = tlc.run(name, "Small", model(name))
            yield _outcome("models", summary, found, passed=not found.broken)


def model(name: str) -> str:
    """The configuration of a model."""
    return (DOCUMENT / f"{name}.cfg").read_text("utf-8")


def mistakes(tlc: Tlc, only: Only = ()) -> Iterator[CheckResult]:
    """Every mistake is found to break the promise that it should."""
    for it in MISTAKES:
        if not only or it.name in only:
            found = tlc.run(it.name, "Bugs", settings(it, model(it.model)), is_short=True)
            outcome = _outcome("mistakes", it.summary, found, passed=it.is_found(found.broken))
            yield attrs.evolve(outcome, broken=it.breaks if outcome.passed else outcome.broken)


def histories(tlc: Tlc, only: Only = ()) -> Iterator[CheckResult]:
    """Every recorded history is followed to its end and keeps the promises, and no corrupted one is followed."""
    del only  # they are followed in one run of TLC
    genuine = recorded()
    found = _follow(tlc, "recorded", genuine)
    kinds = Counter(event["is"] for it in genuine for event in it.events)
    trouble = [_where(it, number, found.output) for number, it in _not_accepted(genuine, found.output)]
    trouble += [f"no event of kind {kind}" for kind in sorted(set(history.FIELDS) - set(kinds))]
    events = sum(len(it.events) for it in genuine)
    summary = f"{len(genuine)} histories, {events:,} events of {len(kinds)} kinds"
    outcome = _outcome("histories", summary, found, passed=not found.broken and not trouble)
    yield attrs.evolve(outcome, broken="; ".join([found.broken, *trouble]).strip("; "))
    yield from _refused(tlc, corrupted(genuine))


def _refused(tlc: Tlc, forged: list[History]) -> Iterator[CheckResult]:
    found = _follow(tlc, "corrupted", forged, with_promises=False)
    refused = dict(_not_accepted(forged, found.output))
    for number, it in enumerate(forged, 1):
        steps = followed(found.output, number)
        broken = f"refused: {it.events[steps]}" if number in refused else ""
        yield CheckResult(
            part="histories", name=it.name, summary="corrupted", passed=number in refused, broken=broken, steps=steps
        )


def _not_accepted(some: list[History], output: str) -> list[tuple[int, History]]:
    accepted = {int(number) for number in re.findall(r'<<"accepted", (\d+)>>', output)}
    return [(number, it) for number, it in enumerate(some, 1) if number not in accepted]


def _where(it: History, number: int, output: str) -> str:
    at = followed(output, number)
    return f"{it.name} is refused at event {at + 1}: {it.events[min(at, len(it.events) - 1)]}"


def followed(output: str, number: int) -> int:
    """How many events of that history were possible."""
    return max((int(at) for at in re.findall(rf'<<"followed", {number}, (\d+)>>', output)), default=0)


def _follow(tlc: Tlc, name: str, some: list[History], *, with_promises: bool = True) -> TlcResult:
    settings_text = history.settings(some, with_promises=with_promises)
    return tlc.run(name, "Recorded", settings_text, modules={"Recorded": history.module(some)}, is_short=True)
