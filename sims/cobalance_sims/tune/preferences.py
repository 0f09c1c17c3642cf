"""What the users prefer: limits that must be kept, and what they would give for less of each cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import UsageError
from cobalance_sims.tune.costs import COSTS

if TYPE_CHECKING:
    import numpy as np


MOST = 1e9
"""The greatest limit or weight: beyond it, nothing else would be left of a sum."""


class BadPreference(UsageError):
    """An implausible limit or weight."""


@attrs.frozen
class Preferences:
    """Limits by cost, and weights by cost: those that are not given have the weight in :data:`COSTS`."""

    limits: Mapping[str, float] = attrs.field(factory=dict)
    weights: Mapping[str, float] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for words, given in (("limit", self.limits), ("weight", self.weights)):
            for name, value in given.items():
                if name not in COSTS:
                    raise BadPreference(f"There is no cost {name!r} to {words}: give one of {', '.join(COSTS)}.")
                if not 0 <= value <= MOST:
                    raise BadPreference(f"The {words} of {name} is {value:g}: give a number from 0 to {MOST:g}.")
        if not any(self.weight(name) for name in COSTS):
            raise BadPreference("All weights are 0, so no choice is better than another: give at least one.")

    def weight(self, cost: str) -> float:
        """The weight of a cost, in resource-seconds of standstill."""
        return self.weights.get(cost, COSTS[cost].weight)

    def total(self, costs: Mapping[str, float] | Mapping[str, np.ndarray]) -> float | np.ndarray:
        """The weighted sum of all costs, per day."""
        return sum(self.weight(name) * costs[name] for name in costs if self.weight(name))


def parse(words: Iterable[str], what: str) -> dict[str, float]:
    """Parses numbers from words such as ``duplicates=5``.

    Raises:
        BadPreference: a word is not of that form, or contradicts another.
    """
    found: dict[str, float] = {}
    for word in words:
        name, equals, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            raise BadPreference(f"The {what} {word!r} is not of the form NAME=NUMBER, such as duplicates=5.") from None
        if not equals:
            raise BadPreference(f"The {what} {word!r} is not of the form NAME=NUMBER, such as duplicates=5.")
        if found.setdefault(name, value) != value and not math.isnan(value):
            raise BadPreference(f"The {what} of {name} is given as {found[name]:g} and as {value:g}: give one of them.")
    return found
