"""The front: the candidates that no other beats.

One beats another when it is better in one cost and worse in none. "Better" is only said where the interval of the difference,
run by run with the same seeds, lies wholly on one side of 0; "no worse" where the other is not surely better. So chance
neither puts a candidate on the front nor takes it off. What beats another costs no more in all, either: without this three
candidates, of which each surely beats the next one in something, would leave the front empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ENDLESS = 1e12
"""Stands for what had no end, so that it can be compared."""


def table(drawn: Sequence[np.ndarray]) -> np.ndarray:
    """One candidate: one row a cost. Where nothing was measured, and where something had no end, no number is lost."""
    return np.asarray(np.nan_to_num(np.vstack(drawn), posinf=ENDLESS))


def surely_less(a: np.ndarray, b: np.ndarray, tail: float = 0.025) -> bool:
    """Whether a is below b in nearly every draw: but for this share of them."""
    return bool(np.quantile(a - b, 1 - tail) < 0)


def beats(a: np.ndarray, b: np.ndarray, tail: float = 0.025) -> bool:
    """Whether candidate a beats b: one row a cost, one column a draw, less is better."""
    better = [surely_less(x, y, tail) for x, y in zip(a, b, strict=True)]
    worse = [surely_less(y, x, tail) for x, y in zip(a, b, strict=True)]
    return any(better) and not any(worse)


def front(candidates: Sequence[np.ndarray], totals: Sequence[float], tail: float = 0.025) -> list[int]:
    """The places of those that none of the others beats; ``totals`` is what each costs in all."""
    places = range(len(candidates))
    return [
        place
        for place in places
        if not any(
            totals[at] <= totals[place] and beats(candidates[at], candidates[place], tail)
            for at in places
            if at != place
        )
    ]
