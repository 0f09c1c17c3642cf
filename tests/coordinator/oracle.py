"""Defines even groups and the fewest moves to make one, by trying every possibility. Shares nothing with the Lua.

Members share in proportion to their capacities, each the floor or the ceiling of its exact share. Which of them get the
ceiling is arbitrary, so the fewest moves are found by trying every choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations
from math import ceil, floor


def even_loads(total: int, capacities: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Every even way to share `total` resources; capacity 0 gets nothing."""
    weight = sum(capacities.values())
    if weight == 0:
        yield dict.fromkeys(capacities, 0)
        return
    shares = {member: Fraction(total * capacity, weight) for member, capacity in capacities.items()}
    between = [member for member, share in shares.items() if share.denominator > 1]
    lows = {member: floor(share) for member, share in shares.items()}
    for lucky in combinations(between, total - sum(lows.values())):
        yield lows | {member: ceil(shares[member]) for member in lucky}


def is_even(loads: Mapping[str, int], capacities: Mapping[str, int]) -> bool:
    """Whether these loads are one of the even ways."""
    return any(dict(loads) == even for even in even_loads(sum(loads.values()), capacities))


def fewest_moves(total: int, kept: Mapping[str, int], capacities: Mapping[str, int]) -> int:
    """How many resources must be taken from remaining members that now keep `kept`, to make the group even."""
    return min(
        sum(max(0, kept.get(member, 0) - even[member]) for member in capacities)
        for even in even_loads(total, capacities)
    )
