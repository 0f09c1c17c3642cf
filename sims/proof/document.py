"""The generated parts of ``PROOF.md``: each stands between two marks and comes from data; the rest of the file is
prose.

Figures that take long to measure are stored next to it as the commands' ``--json`` wrote them: ``explored.json``
(``proof.explore --replay``), ``explored_large.json`` (``--tier large``), ``explored_handovers.json`` and
``explored_handovers_large.json`` (the tiers of those names), ``mutants.json`` (``proof.mutants``) and
``spec.json`` (``proof.spec``). ``python -m proof.document`` renders everything again.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from proof.explore.reached import REQUIRED
from proof.mutants.planted import MUTANTS
from proof.partitions.exploring import REQUIRED_OF_HANDOVERS
from proof.partitions.scope import HANDOVER_SCOPES, HandoverScope
from proof.peers import LISTS
from proof.peers.row import PeerList, PeerTest

Reports = Sequence[dict[str, Any]]
"""What ``explore --json`` wrote."""

PROOF = Path(__file__).with_name("PROOF.md")
FIGURES = PROOF.parent

COLUMNS = 120
"""Where lines of prose end."""


def main() -> int:
    PROOF.write_text(rendered(PROOF.read_text("utf-8")), "utf-8")
    return 0


def rendered(text: str) -> str:
    """Returns the text with each part generated from its current data."""
    for mark, lines in SECTIONS.items():
        text = replace_between_marks(text, mark, lines())
    return text


def replace_between_marks(text: str, mark: str, lines: Iterable[str]) -> str:
    """Returns the text with everything between ``<!-- mark -->`` and ``<!-- end of mark -->`` replaced.

    Raises:
        ValueError: the marks are missing.
    """
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"PROOF.md has no marks for {mark}")
    return before + begin + "\n" + "\n".join(map(_ended, lines)) + "\n\n" + end + after


def _ended(line: str) -> str:
    return line if line.startswith("|") else textwrap.fill(line, COLUMNS, break_on_hyphens=False)


def figures(name: str) -> Any:
    """What a command measured; empty if it has not been run."""
    file = FIGURES / f"{name}.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else []


# -- explorations ------------------------------------------------------------------------------------------------------


def _verdict(result: dict[str, Any]) -> str:
    if result["found"]:
        return "broken"
    return "complete" if result["is_complete"] else "incomplete"


def _counts(reports: Reports) -> Counter[str]:
    """How often each kind was reached, in all scopes together."""
    return sum((Counter(report["result"]["reached"]) for report in reports), Counter[str]())


def _explored(reports: Reports) -> Iterator[str]:
    """One row for each scope, and what was followed from its states."""
    if not reports:
        yield "No figures yet."
        return
    yield "| scope | verdict | states | transitions | depth | distinct executions | CPU seconds |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for it in (report["result"] for report in reports):
        yield (
            f"| `{it['scope']}` | {_verdict(it)} | {it['states']:,} | {it['transitions']:,} | {it['depth']} | "
            f"{it['executions']:,} | {it['cpu_seconds']:.0f} |"
        )
    yield ""
    yield "| scope | fair continuations to an even group | of these with one member never draining |"
    yield "|---|---:|---|"
    for it in (report["result"] for report in reports):
        wedged = ", ".join(f"{slot} {count:,}" for slot, count in it["closures"].items() if slot)
        yield f"| `{it['scope']}` | {sum(it['closures'].values()):,} | {wedged} |"


def _reached(reports: Reports) -> Iterator[str]:
    """How often each kind that a tier has to reach was reached, in all scopes together."""
    counts = _counts(reports)
    yield ", ".join(f"{kind} {counts[kind]:,}" for kind in REQUIRED) + "."


def _handovers(reports: Reports) -> Iterator[str]:
    """One row for each scope, and what was reached in all of them together."""
    if not reports:
        yield "No figures yet."
        return
    yield "| scope | what it is | verdict | states | transitions | depth | distinct steps | CPU seconds |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for it in (report["result"] for report in reports):
        yield (
            f"| `{it['scope']}` | {_scope_in_words(HANDOVER_SCOPES[it['scope']])} | {_verdict(it)} | {it['states']:,} | "
            f"{it['transitions']:,} | {it['depth']} | {it['executions']:,} | {it['cpu_seconds']:.0f} |"
        )
    counts = _counts(reports)
    yield ""
    yield "Reached: " + ", ".join(f"{kind} {counts[kind]:,}" for kind in REQUIRED_OF_HANDOVERS if counts[kind]) + "."


_GUARDS = {
    "exclusive": "classic queues",
    "single active": "quorum queues",
    "lock": "streams with a lock",
    "none": "streams without one",
}


def _scope_in_words(it: HandoverScope) -> str:
    messages = (
        f"messages {' and '.join(it.messages)}"
        if it.by_key
        else f"{'+'.join(str(len(k)) for k in it.messages)} messages"
    )
    order = "by key" if it.by_key else "in order"
    acks = ", acks by hand" if it.manual else ""
    budgets = ", ".join(name if most == 1 else f"{most} {name}" for name, most in it.budgets)
    return f"{_GUARDS[it.guard]}, {messages} {order}{acks}; {budgets}"


def _replayed(reports: Reports) -> Iterator[str]:
    """One row for each scope and engine."""
    yield "| scope | engine | executions replayed | mismatches | seconds |"
    yield "|---|---|---:|---:|---:|"
    for report in reports:
        for it in report["replays"]:
            row = (f"`{report['result']['scope']}`", it["engine"], f"{it['executions']:,}", str(len(it["mismatches"])))
            yield f"| {' | '.join(row)} | {it['seconds']:.0f} |"


# -- planted bugs ------------------------------------------------------------------------------------------------------


def _mutants(scores: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One row for each planted bug, as ``mutants --json`` scored it."""
    mutants = {it.name: it for it in MUTANTS}
    yield "| bug | in | what it breaks | verdict | noticed as |"
    yield "|---|---|---|---|---|"
    for score in scores:
        it = mutants[score["name"]]
        noticed = f"{score['noticed']} ({score['rung']})" if score["verdict"] == "killed" else it.equivalent
        row = f"| {it.name} | `{Path(it.file).name}` | {it.breaks} | {score['verdict']} | {noticed} |"
        yield row.replace("\n", " ")
    counts = Counter(score["verdict"] for score in scores)
    yield ""
    yield (
        f"{len(scores)} planted: {counts['killed']} killed, {counts['survived']} survived, {counts['equivalent']} equivalent."
    )


# -- the TLA+ document -------------------------------------------------------------------------------------------------


def spec_tables(outcomes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Models, mistakes, histories, handovers."""
    yield "| model | what it is | verdict | states | distinct | depth | seconds |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for it in _part(outcomes, "models"):
        verdict = "complete, every promise holds" if it["passed"] else f"{it['broken']} is broken"
        numbers = f"{it['generated']:,} | {it['distinct']:,} | {it['depth']} | {it['seconds']:.0f}"
        yield f"| {it['name']} | {it['summary']} | {verdict} | {numbers} |"
    yield ""
    yield "| planted mistake | what is wrong | found as | length of the counterexample |"
    yield "|---|---|---|---:|"
    for it in _part(outcomes, "mistakes"):
        found = it["broken"] if it["passed"] else f"**not found** ({it['broken'] or 'every promise holds'})"
        yield f"| {it['name']} | {it['summary']} | {found} | {it['steps']} |"
    for part in ("histories", "handovers"):
        yield ""
        yield f"| {part} | verdict | events followed |"
        yield "|---|---|---:|"
        for it in _part(outcomes, part):
            yield _history(it)


def _part(outcomes: Sequence[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    return [it for it in outcomes if it["part"] == part]


def _history(it: dict[str, Any]) -> str:
    if it["summary"] != "corrupted":
        verdict = "all accepted, every promise holds" if it["passed"] else f"**{it['broken']}**"
        return f"| recorded: {it['summary']} | {verdict} | all |"
    return f"| {it['name']} | {'refused' if it['passed'] else '**accepted**'} | {it['steps']} |"


# -- the peers' lists --------------------------------------------------------------------------------------------------


def rendered_peers() -> Iterator[str]:
    """A summary, then one table for each list."""
    yield "| list | scenarios | shown by our tests | cannot apply |"
    yield "|---|---:|---:|---:|"
    for it in LISTS:
        shown = sum(bool(row.tests) for row in it.rows)
        yield f"| {it.title} | {it.count} | {shown} | {it.count - shown} |"
    for it in LISTS:
        yield from _peer_table(it)


def _peer_table(it: PeerList) -> Iterator[str]:
    yield ""
    yield f"### {it.title}"
    yield ""
    yield f"From {it.source}."
    yield ""
    yield "| | scenario | what is shown | by |"
    yield "|---:|---|---|---|"
    for row in it.rows:
        yield f"| {row.number} | {_breakable(row.name)} | {row.shows or f'*cannot apply:* {row.why_not}'} | {_peer_tests(row)} |"


def _breakable(name: str) -> str:
    return f"`{name}`" if " " not in name else name


def _peer_tests(row: PeerTest) -> str:
    """Each file once, each of its tests once; parameters only where the row chooses some."""
    files: dict[str, dict[str, list[str]]] = {}
    for test in row.tests:
        file, _, name = test.removeprefix("tests/").removesuffix("]").partition("::")
        function, _, parameters = name.partition("[")
        chosen = files.setdefault(file, {}).setdefault(function.removeprefix("test_"), [])
        chosen += [parameters] if parameters else []
    return "; ".join(f"`{file}`: {', '.join(_said(*it) for it in tests.items())}" for file, tests in files.items())


def _said(function: str, parameters: list[str]) -> str:
    return f"{function} ({'; '.join(parameters)})" if parameters else function


SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "explored": lambda: _explored(figures("explored")),
    "explored_large": lambda: _explored(figures("explored_large")),
    "handovers": lambda: _handovers(figures("explored_handovers")),
    "handovers_large": lambda: _handovers(figures("explored_handovers_large")),
    "reached": lambda: _reached(figures("explored")),
    "replayed": lambda: _replayed(figures("explored")),
    "mutants": lambda: _mutants(figures("mutants")),
    "spec": lambda: spec_tables(figures("spec")),
    "peers": rendered_peers,
}
"""Mark → the function that renders its lines."""


if __name__ == "__main__":
    sys.exit(main())
