"""The front: the candidates that no other beats.

One beats another when it is better in one cost and worse in none. "Better" is only said where the interval of the difference,
run by run with the same seeds, lies wholly on one side of 0; "no worse" where the other is not surely better. So chance
neither puts a candidate on the front nor takes it off.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def table(drawn: Sequence[np.ndarray]) -> np.ndarray:
    """One candidate: one row a cost. Where nothing was measured, and where something had no end, no number is lost."""
    return np.asarray(np.nan_to_num(np.vstack(drawn), posinf=1e12))


def surely_less(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether a is below b in nearly every draw."""
    return bool(np.percentile(a - b, 97.5) < 0)


def beats(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether candidate a beats b: one row a cost, one column a draw, less is better."""
    better = [surely_less(x, y) for x, y in zip(a, b, strict=True)]
    worse = [surely_less(y, x) for x, y in zip(a, b, strict=True)]
    return any(better) and not any(worse)


def front(candidates: list[np.ndarray]) -> list[int]:
    """The places of those that none of the others beats."""
    return [
        place
        for place, it in enumerate(candidates)
        if not any(beats(other, it) for at, other in enumerate(candidates) if at != place)
    ]
