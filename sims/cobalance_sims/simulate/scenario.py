"""A scenario as data: who is there, and what happens when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from cobalance.settings import GroupSettings
from cobalance_sims.simulate.distributions import Distribution
from cobalance_sims.simulate.habits import QUICK, Habits
from cobalance_sims.simulate.network import SOUND, Network

if TYPE_CHECKING:
    from cobalance_sims.simulate.witnesses import Witnesses
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
        """Applies the fault to the world."""


@attrs.frozen
class At:
    """Happens once, at ``ms`` after the beginning, give or take ``jitter_ms``."""

    ms: int
    fault: Fault
    jitter_ms: int = 0


@attrs.frozen
class Every:
    """Happens repeatedly, each time after ``ms`` give or take ``jitter_ms``."""

    ms: int
    fault: Fault
    jitter_ms: int = 0
    start_ms: int = 0


@attrs.frozen
class Randomly:
    """Happens at random, this often an hour on average; ``per_member`` multiplies by the number of living processes."""

    per_hour: float
    fault: Fault
    per_member: bool = False


@attrs.frozen
class Regularly:
    """Happens repeatedly at equal intervals, for the first time at a random moment of the first interval."""

    every_ms: int
    fault: Fault


Step = At | Every | Randomly | Regularly


@attrs.frozen
class Messages:
    """The messages that resources without a broker have to handle."""

    per_s: float
    handle: Distribution


@attrs.frozen(kw_only=True)
class Scenario:
    """One scenario. After ``length_ms`` every fault ends, and the group must converge."""

    name: str
    summary: str
    plan: tuple[Step, ...]
    members: int = 4
    instances: bool = False
    """Whether the first members have instance ids (i0, i1 …)."""
    capacities: tuple[int, ...] = (1,)
    """Capacities of the first members, in turn."""
    resources: int = 12
    wants: tuple[str, ...] | None = None
    """The resources that the first members name; None means the group's own list, of all resources."""
    length_ms: int = 90_000
    settings: GroupSettings = QUICKENED
    network: Network = SOUND
    habits: Habits = QUICK
    created: bool = True
    """Whether the group is known to be new; else its first members wait for claims."""
    partitions: bool = False
    """Whether the resources are partitions of a broker."""
    witnesses: Witnesses | None = None
    """Of killed processes, where there are partitions and crashes are seen at once."""
    messages: Messages | None = None
    page: int | None = None
    """The most that a member sends in a call (paging.py); None means as shipped."""
    skips_idle: bool = False
    """Whether time in which nothing would happen is left out (idle.py)."""
