"""The figures of ``make spec ARGS=--json`` as the tables of ``PROOF.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def tables(outcomes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Models, mistakes, histories."""
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
    yield ""
    yield "| histories | verdict | events followed |"
    yield "|---|---|---:|"
    for it in _part(outcomes, "histories"):
        yield _history(it)


def _part(outcomes: Sequence[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    return [it for it in outcomes if it["part"] == part]


def _history(it: dict[str, Any]) -> str:
    if it["summary"] != "corrupted":
        verdict = "all accepted, every promise holds" if it["passed"] else f"**{it['broken']}**"
        return f"| recorded: {it['summary']} | {verdict} | all |"
    return f"| {it['name']} | {'refused' if it['passed'] else '**accepted**'} | {it['steps']} |"
