"""The peers' lists as a reader sees them in PROOF.md."""

from __future__ import annotations

from collections.abc import Iterator

from cobalance_sims.peers import LISTS
from cobalance_sims.peers.row import PeerList, Row


def rendered_peers() -> Iterator[str]:
    """A summary, then one table a list."""
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


def _tests(row: Row) -> str:
    """Each file once, with its tests; parameters only where they choose."""
    files: dict[str, list[str]] = {}
    for test in row.tests:
        file, _, name = test.removeprefix("tests/").removesuffix("]").partition("::")
        function, _, parameter = name.partition("[")
        said = function.removeprefix("test_") + (f" ({parameter})" if parameter else "")
        files.setdefault(file, []).append(said)
    return "; ".join(f"`{file}`: {', '.join(names)}" for file, names in files.items())
