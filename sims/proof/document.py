"""The generated parts of ``PROOF.md``: each stands between two marks and comes from data; the rest of the file is
prose.

Figures that take long to measure are stored next to it as the commands' ``--json`` wrote them: ``explored.json``
(``proof.explore --replay``), ``explored_large.json`` (``--tier large``), ``mutants.json`` (``proof.mutants``) and
``spec.json`` (``proof.spec``). ``python -m proof.document`` renders everything again.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from proof.explore.table import explored as explored_table
from proof.explore.table import reached as reached_list
from proof.explore.table import replayed as replayed_table
from proof.mutants.table import scored
from proof.peers.table import rendered_peers
from proof.spec.figures import tables

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


def explored() -> Iterator[str]:
    """The CI tier."""
    return explored_table(figures("explored"))


def explored_large() -> Iterator[str]:
    """The large tier."""
    return explored_table(figures("explored_large"))


def mutants() -> Iterator[str]:
    """One row for each planted bug."""
    return scored(figures("mutants"))


def spec() -> Iterator[str]:
    """Models, planted mistakes and recorded histories."""
    return tables(figures("spec"))


SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "explored": explored,
    "explored_large": explored_large,
    "reached": lambda: reached_list(figures("explored")),
    "replayed": lambda: replayed_table(figures("explored")),
    "mutants": mutants,
    "spec": spec,
    "peers": rendered_peers,
}
"""Mark → the function that renders its lines."""


if __name__ == "__main__":
    sys.exit(main())
