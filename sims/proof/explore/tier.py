"""Scopes that are explored together, and when that is a proof: all complete, nothing found, every kind reached."""

from __future__ import annotations

from collections.abc import Sequence

from proof.explore.reached import missing
from proof.explore.search import Result

TIERS: dict[str, tuple[str, ...]] = {
    "ci": ("2x4", "3x3", "3x3-start", "2x4-start"),
    "large": ("2x2-pairs", "2x4-all"),
}
"""The longest first: two processes take them in this order."""


def complaints(results: Sequence[Result]) -> list[str]:
    """Says why the explorations of a tier prove less than they should; broken promises are reported separately."""
    unfinished = [it.scope for it in results if not it.is_complete and it.found is None]
    unfollowed = [it.scope for it in results if it.is_complete and it.closures.get("") != it.states]
    never = missing([it.reached for it in results])
    return [
        *([f"not complete: {', '.join(unfinished)}"] if unfinished else []),
        *([f"not followed from every state: {', '.join(unfollowed)}"] if unfollowed else []),
        *([f"never reached: {', '.join(never)}"] if never else []),
    ]
