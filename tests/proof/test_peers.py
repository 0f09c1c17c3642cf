"""The peers' lists are complete, and their claims true: every test named is collected, and none is skipped."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from proof.document import PROOF, rendered_peers, replace_between_marks
from proof.peers import LISTS, PeerList, PeerTest

ROOT = Path(__file__).parents[2]
MOST_THAT_CANNOT_APPLY = 13
"""Over all rows. A higher number is a decision to justify, not an oversight."""

ROWS = [
    pytest.param(row, id=f"{it.title.partition(':')[0]} {row.number} {row.name}") for it in LISTS for row in it.rows
]
TESTS = sorted({test for it in LISTS for row in it.rows for test in row.tests})
NEVER_RUN = ("skip", "skipif", "xfail", "importorskip")


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """Every node id that pytest finds in the files the lists name, and that CI runs."""
    files = sorted({test.partition("::")[0] for test in TESTS})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-m",
        "not long_campaign",
        "-q",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.parametrize("it", LISTS, ids=lambda it: it.title)
def test_a_list_is_whole(it: PeerList) -> None:
    """As many rows as the peer has scenarios, numbered in order, no name twice."""
    assert [row.number for row in it.rows] == list(range(1, it.count + 1))
    assert len({row.name for row in it.rows}) == it.count


def test_the_counts_are_those_of_the_peers() -> None:
    """Iggy's 33, Rebalanser's 31 and its two watchers, Kafka's lists as they were read at the source."""
    counts = {it.title.partition(":")[0]: it.count for it in LISTS}
    assert counts["Apache Iggy"] == 33
    assert counts["Rebalanser"] == 31 + 2
    assert [it.count for it in LISTS if it.title.startswith("Kafka")] == [40 + 3, 22, 21, 12]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_tests_or_a_reason(row: PeerTest) -> None:
    """Not both; and a row with tests says what they have to show."""
    assert bool(row.tests) != bool(row.why_not)
    assert bool(row.tests) == bool(row.shows)
    assert len(row.shows or row.why_not) > 3
    assert len(set(row.tests)) == len(row.tests)


def test_few_cannot_apply_and_each_says_why() -> None:
    """A reason is a sentence."""
    reasons = [row.why_not for it in LISTS for row in it.rows if row.why_not]
    assert len(reasons) <= MOST_THAT_CANNOT_APPLY
    assert all(len(reason.split()) >= 8 and reason.endswith(".") for reason in reasons)


def test_every_test_named_is_collected(collected: set[str]) -> None:
    """With its parameters, where the row names them."""
    functions = {node.partition("[")[0] for node in collected}
    missing = [test for test in TESTS if test not in (collected if "[" in test else functions)]
    assert missing == []


@pytest.mark.parametrize("test", sorted({test.partition("[")[0] for test in TESTS}))
def test_no_test_named_may_be_skipped(test: str) -> None:
    """Neither by a mark of its own or of its file, nor in its body."""
    file, _, name = test.partition("::")
    tree = parsed(ROOT / file)
    found = [it for it in ast.walk(tree) if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef) and it.name == name]
    assert len(found) == 1, f"{name} is there {len(found)} times"
    marks = [it for it in tree.body if isinstance(it, ast.Assign) and "pytestmark" in ast.dump(it.targets[0])]
    used = {name for node in (found[0], *marks) for name in names_in(node)}
    assert not used & set(NEVER_RUN)


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def names_in(node: ast.AST) -> Iterator[str]:
    """Every attribute and name that is used in it."""
    for it in ast.walk(node):
        if isinstance(it, ast.Attribute):
            yield it.attr
        elif isinstance(it, ast.Name):
            yield it.id


def test_what_is_rendered_is_current() -> None:
    """`python -m proof.document` renders it again."""
    text = PROOF.read_text("utf-8")
    assert text == replace_between_marks(text, "peers", rendered_peers())
