"""A story as data: who is there, and what happens when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from cobalance.settings import GroupSettings
from cobalance_sims.simulate.distributions import Distribution
from cobalance_sims.simulate.habits import QUICK, Habits
from cobalance_sims.simulate.network import SOUND, Network

if TYPE_CHECKING:
    from cobalance_sims.simulate.world import World

QUICKENED = GroupSettings(
    session_timeout_ms=6_000,
    heartbeat_interval_ms=2_000,
    revocation_timeout_ms=8_000,
    rejoin_grace_ms=0,
    gather_ms=200,
    moves_per_call=20,
)
"""Timings that let much happen in little time."""


class Fault(Protocol):
    """What may go wrong, or just happen."""

    def strike(self, world: World) -> None:
        """It happens now."""


@attrs.frozen
class At:
    """Something happens once, ``ms`` after the beginning, give or take ``jitter_ms``."""

    ms: int
    fault: Fault
    jitter_ms: int = 0


@attrs.frozen
class Every:
    """Something happens again and again, each time after ``ms`` give or take ``jitter_ms``."""

    ms: int
    fault: Fault
    jitter_ms: int = 0
    start_ms: int = 0


@attrs.frozen
class Randomly:
    """Something happens at any moment with the same chance, so many times an hour on average; ``per_member`` multiplies that by
    the number of processes alive.
    """

    per_hour: float
    fault: Fault
    per_member: bool = False


@attrs.frozen
class Regularly:
    """Something happens again and again at equal intervals, for the first time at any moment of the first of them."""

    every_ms: int
    fault: Fault


Step = At | Every | Randomly | Regularly


@attrs.frozen
class Messages:
    """What resources without a broker have to handle."""

    per_s: float
    handle: Distribution


@attrs.frozen(kw_only=True)
class Scenario:
    """One story. After ``length_ms`` every trouble ends, and the group must converge."""

    name: str
    summary: str
    plan: tuple[Step, ...]
    members: int = 4
    instances: bool = False
    """Whether the first members have instance ids (i0, i1 …)."""
    capacities: tuple[int, ...] = (1,)
    """Of the first members, in turn."""
    resources: int = 12
    wants: tuple[str, ...] | None = None
    """What the first members name; None leaves it to the group's own list, of all resources."""
    length_ms: int = 90_000
    settings: GroupSettings = QUICKENED
    network: Network = SOUND
    habits: Habits = QUICK
    created: bool = True
    """Whether the group is known to be new; else its first members wait for claims."""
    partitions: bool = False
    """Whether the resources are partitions of a broker."""
    messages: Messages | None = None
    skips_idle: bool = False
    """Whether time in which nothing would happen is left out (idle.py)."""
