"""PROOF.md matches its data."""

from __future__ import annotations

import pytest

from proof.document import PROOF, rendered, replace_between_marks


def test_what_is_generated_is_current() -> None:
    """`python -m proof.document` renders it again."""
    text = PROOF.read_text("utf-8")
    assert text == rendered(text)


def test_only_what_stands_between_the_marks_changes() -> None:
    """The prose around them is not generated."""
    text = "before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n"
    assert (
        replace_between_marks(text, "a", ["new", "lines"])
        == "before\n<!-- a -->\n\nnew\nlines\n\n<!-- end of a -->\nafter\n"
    )


def test_marks_that_are_not_there_are_an_error() -> None:
    """Otherwise a section could silently be rendered nowhere."""
    with pytest.raises(ValueError, match="no marks for b"):
        replace_between_marks("<!-- a -->\n<!-- end of a -->\n", "b", [])
