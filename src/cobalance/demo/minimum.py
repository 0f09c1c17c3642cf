"""The minimum number of resources that have to change hands, computed from the current owners and members alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def minimum_moves(owners: Mapping[str, str], members: Iterable[str]) -> int:
    """How many resources must change owners at least, so that these members hold them evenly within one.

    With n resources and m members, n mod m members hold one more than the others. A member can keep what it has up to
    its share, so the larger shares belong to members that hold the most. Whatever cannot be kept has to move.
    """
    present = sorted(set(members))
    if not present:
        return 0
    floor, larger_shares = divmod(len(owners), len(present))
    held = Counter(owner for owner in owners.values() if owner in present)
    kept = sum(min(held[member], floor) for member in present)
    kept += min(larger_shares, sum(held[member] > floor for member in present))
    return len(owners) - kept
