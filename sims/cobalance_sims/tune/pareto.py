"""The front: the candidates that no other beats.

One beats another when it is better in one cost and worse in none. "Better" requires that the interval of the
difference, run by run with the same seeds, lies wholly on one side of 0; "no worse" means that the other is not surely
better. So chance neither puts a candidate on the front nor takes it off. A candidate that beats another costs no more
in total, either: without this, three candidates of which each surely beats the next one in something would leave the
front empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ENDLESS = 1e12
"""Stands for infinite values, so that they can be compared."""


def table(drawn: Sequence[np.ndarray]) -> np.ndarray:
    """One candidate: one row for each cost, with numbers for what was never measured and for what had no end."""
    return np.asarray(np.nan_to_num(np.vstack(drawn), posinf=ENDLESS))


def surely_less(a: np.ndarray, b: np.ndarray, tail: float = 0.025) -> bool:
    """Whether a is below b in all draws except this share."""
    return bool(np.quantile(a - b, 1 - tail) < 0)


def beats(a: np.ndarray, b: np.ndarray, tail: float = 0.025) -> bool:
    """Whether candidate a beats b: one row for each cost, one column for each draw; less is better."""
    better = [surely_less(x, y, tail) for x, y in zip(a, b, strict=True)]
    worse = [surely_less(y, x, tail) for x, y in zip(a, b, strict=True)]
    return any(better) and not any(worse)


def front(candidates: Sequence[np.ndarray], totals: Sequence[float], tail: float = 0.025) -> list[int]:
    """The indices of those that none of the others beats; ``totals`` is what each costs in total."""
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
