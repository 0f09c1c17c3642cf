"""What ``make spec`` checks: the specification, that mistakes in it are found, and that recorded runs obey it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import attrs

from cobalance.servers import private_rabbitmq
from proof.spec import handover_runs, history, stories
from proof.spec.corrupt import CORRUPTIONS, HANDOVER_CORRUPTIONS, Corruption, corrupted
from proof.spec.history import FIELDS, HANDOVER_FIELDS, History
from proof.spec.mistakes import MISTAKES, settings
from proof.spec.models import MODELS
from proof.spec.tlc import Tlc, TlcResult

Only = Collection[str]
"""The names of what is to be checked in a part; empty means all."""


@attrs.frozen(kw_only=True)
class CheckResult:
    """One line of the report."""

    part: str
    """models, mistakes, histories or handovers."""
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
    for name, it in MODELS.items():
        if not only or name in only:
            found = tlc.run(name, it.module, it.text)
            yield _outcome("models", it.summary, found, passed=not found.broken)


def mistakes(tlc: Tlc, only: Only = ()) -> Iterator[CheckResult]:
    """Every mistake is found to break the promise that it should."""
    for it in MISTAKES:
        if not only or it.name in only:
            found = tlc.run(it.name, MODELS[it.model].bugs, settings(it), is_short=True)
            outcome = _outcome("mistakes", it.summary, found, passed=it.is_found(found.broken))
            yield attrs.evolve(outcome, broken=it.breaks if outcome.passed else outcome.broken)


@attrs.frozen(kw_only=True)
class Recorded:
    """Runs of one sort, and how they are followed."""

    part: str
    runs: list[History]
    module: str
    settings: Callable[..., str]
    kinds: Collection[str]
    """The kinds of events, each of which has to be among them."""
    corruptions: Mapping[str, Corruption]


def histories(tlc: Tlc, only: Only = ()) -> Iterator[CheckResult]:
    """Every recorded history of a group is followed to its end and keeps the promises, and no corrupted one is followed."""
    del only  # they are followed in one run of TLC
    yield from followed_all(
        tlc,
        Recorded(
            part="histories",
            runs=stories.recorded(),
            module="Histories",
            settings=history.settings,
            kinds=FIELDS,
            corruptions=CORRUPTIONS,
        ),
    )


def handovers(tlc: Tlc, only: Only = ()) -> Iterator[CheckResult]:
    """The same of one partition, on a RabbitMQ in memory and on a real one."""
    del only
    with private_rabbitmq() as server:
        runs = [*handover_runs.recorded("memory://handovers"), *handover_runs.recorded(server.url)]
    yield from followed_all(tlc, of_handovers(runs))


def of_handovers(runs: list[History]) -> Recorded:
    """How recorded handovers are followed."""
    return Recorded(
        part="handovers",
        runs=runs,
        module="HandoverHistories",
        settings=history.handover_settings,
        kinds=HANDOVER_FIELDS,
        corruptions=HANDOVER_CORRUPTIONS,
    )


def followed_all(tlc: Tlc, it: Recorded) -> Iterator[CheckResult]:
    """Follows the runs, then what corruptions make of them."""
    found = _follow(tlc, "recorded", it, it.runs)
    kinds = Counter(event["is"] for run in it.runs for event in run.events)
    trouble = [_where(run, number, found.output) for number, run in _not_accepted(it.runs, found.output)]
    trouble += [f"no event of kind {kind}" for kind in sorted(set(it.kinds) - set(kinds))]
    summary = f"{len(it.runs)} histories, {kinds.total():,} events of {len(kinds)} kinds"
    outcome = _outcome(it.part, summary, found, passed=not found.broken and not trouble)
    yield attrs.evolve(outcome, broken="; ".join([found.broken, *trouble]).strip("; "))
    yield from _refused(tlc, it, corrupted(it.runs, it.corruptions))


def _refused(tlc: Tlc, it: Recorded, forged: list[History]) -> Iterator[CheckResult]:
    found = _follow(tlc, "corrupted", it, forged, with_promises=False)
    refused = dict(_not_accepted(forged, found.output))
    for number, run in enumerate(forged, 1):
        steps = followed(found.output, number)
        broken = f"refused: {run.events[steps]}" if number in refused else ""
        yield CheckResult(
            part=it.part, name=run.name, summary="corrupted", passed=number in refused, broken=broken, steps=steps
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


def _follow(tlc: Tlc, name: str, it: Recorded, some: list[History], *, with_promises: bool = True) -> TlcResult:
    settings_text = it.settings(some, with_promises=with_promises)
    text = history.module(some, it.module)
    return tlc.run(name, "Recorded", settings_text, modules={"Recorded": text}, is_short=True)
