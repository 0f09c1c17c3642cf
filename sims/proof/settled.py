"""Whether a group on a real server has settled, by its description."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from cobalance.coordinator.client import Coordinator, MemberRow


def why_unsettled(group: Coordinator, processes: Collection[int], resources: int) -> str:
    """Says what has not converged yet; empty when exactly these processes share everything evenly."""
    members = [it for it in group.members() if it.status != "graced"]
    rows = list(group.resources())
    on_record = sorted(map(_process, members))
    if on_record != sorted(processes) or any(it.status != "active" for it in members):
        return f"processes {on_record} are members on record, {sorted(processes)} should be"
    if len(rows) != resources or any(it.status != "held" for it in rows):
        return f"{sum(it.status == 'held' for it in rows)} of {resources} resources are held"
    loads = [it.kept for it in members]
    return f"loads are {loads}" if loads and max(loads) - min(loads) > 1 else ""


def _process(member: MemberRow) -> int:
    return int(member.label.rpartition("/")[2])
