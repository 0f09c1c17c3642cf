"""The fewest resources that have to change hands. Worked out from nothing but who holds what and who is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def minimum_moves(owners: Mapping[str, str], members: Iterable[str]) -> int:
    """How many resources at least must get another owner, so that these members hold them evenly within one.

    With n resources and m members, n mod m members hold one more than the others. A member can keep what it has up to its
    share, so the larger shares belong to members that have the most. Whatever cannot be kept has to move.
    """
    present = sorted(set(members))
    if not present:
        return 0
    floor, larger_shares = divmod(len(owners), len(present))
    held = Counter(owner for owner in owners.values() if owner in present)
    kept = sum(min(held[member], floor) for member in present)
    kept += min(larger_shares, sum(held[member] > floor for member in present))
    return len(owners) - kept
