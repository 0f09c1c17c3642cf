"""The peers' lists as a reader sees them in PROOF.md."""

from __future__ import annotations

from collections.abc import Iterator

from proof.peers import LISTS
from proof.peers.row import PeerList, PeerTest


def rendered_peers() -> Iterator[str]:
    """A summary, then one table for each list."""
    yield "| list | scenarios | shown by our tests | cannot apply |"
    yield "|---|---:|---:|---:|"
    for it in LISTS:
        shown = sum(bool(row.tests) for row in it.rows)
        yield f"| {it.title} | {it.count} | {shown} | {it.count - shown} |"
    for it in LISTS:
        yield from _table(it)


def _table(it: PeerList) -> Iterator[str]:
    yield ""
    yield f"### {it.title}"
    yield ""
    yield f"From {it.source}."
    yield ""
    yield "| | scenario | what is shown | by |"
    yield "|---:|---|---|---|"
    for row in it.rows:
        yield f"| {row.number} | {_breakable(row.name)} | {row.shows or f'*cannot apply:* {row.why_not}'} | {_tests(row)} |"


def _breakable(name: str) -> str:
    return f"`{name}`" if " " not in name else name


def _tests(row: PeerTest) -> str:
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
