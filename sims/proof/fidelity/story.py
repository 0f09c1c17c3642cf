"""A story of churn as data. It names who does what when, so that both runs do the same to the same members."""

from __future__ import annotations

from typing import Literal

import attrs

from cobalance.settings import GroupSettings
from cobalance_sims.simulate.distributions import Distribution, LogNormal

Kind = Literal["join", "leave", "kill", "freeze", "slow"]

MEMBERS = "members"
"""The target of a step that is done to no member in particular."""

HANDLER = LogNormal(120.0, 0.6)

SETTINGS = GroupSettings(
    session_timeout_ms=3_000,
    heartbeat_interval_ms=600,
    revocation_timeout_ms=6_000,
    rejoin_grace_ms=0,
    gather_ms=100,
)
"""Short, so that much happens in minutes of real time, but long compared to a call."""


@attrs.frozen(kw_only=True)
class Incident:
    """Something that happens ``at_ms`` after the beginning."""

    at_ms: int
    kind: Kind
    """join: a process starts. leave: SIGTERM. kill: SIGKILL. freeze: SIGSTOP, and SIGCONT ``for_ms`` later. slow: each
    partition gets one message that takes ``for_ms``.
    """
    who: str = MEMBERS
    for_ms: int = 0


@attrs.frozen(kw_only=True)
class Story:
    """Who is there, what they have to do, and what happens to them."""

    name: str
    summary: str
    steps: tuple[Incident, ...]
    length_ms: int
    members: int = 4
    """Number of members at first: m1, m2 …"""
    partitions: int = 12
    rate: float = 3.0
    """Messages a second to each partition."""
    handler: Distribution = HANDLER
    """How long a message takes."""
    prefetch: int = 5
    settings: GroupSettings = SETTINGS

    @property
    def founders(self) -> tuple[str, ...]:
        """The members that are there at first."""
        return tuple(f"m{number}" for number in range(1, self.members + 1))

    @property
    def joiners(self) -> tuple[str, ...]:
        """The members that come later, in order."""
        return tuple(step.who for step in self.steps if step.kind == "join")


def _step(at_s: float, kind: Kind, who: str = MEMBERS, for_s: float = 0.0) -> Incident:
    return Incident(at_ms=int(at_s * 1000), kind=kind, who=who, for_ms=int(for_s * 1000))


CHURN = Story(
    name="churn",
    summary="members join, leave, are killed, and freeze for two sessions; handlers outlast the revocation timeout",
    steps=(
        _step(8, "join", "m5"),
        _step(14.1, "kill", "m2"),
        _step(20.3, "join", "m6"),
        _step(26, "leave", "m1"),
        _step(31.2, "freeze", "m3", 6),
        _step(44.4, "join", "m7"),
        _step(50, "kill", "m4"),
        _step(56.6, "join", "m8"),
        _step(62, "leave", "m5"),
        _step(67, "slow", for_s=9),
        _step(67.9, "join", "m9"),
        _step(92.3, "kill", "m6"),
        _step(98, "freeze", "m7", 6),
        _step(110, "join", "m10"),
        _step(116.7, "kill", "m8"),
        _step(122, "leave", "m3"),
        _step(127, "join", "m11"),
        _step(132.5, "kill", "m9"),
    ),
    length_ms=140_000,
)

TINY = Story(
    name="tiny",
    summary="one member joins, one is killed: what the tests tell",
    members=2,
    partitions=4,
    rate=10.0,
    handler=LogNormal(30.0, 0.5),
    steps=(_step(2, "join", "m3"), _step(4, "kill", "m1")),
    length_ms=8_000,
    settings=GroupSettings(
        session_timeout_ms=2_000,
        heartbeat_interval_ms=400,
        revocation_timeout_ms=3_000,
        rejoin_grace_ms=0,
        gather_ms=50,
    ),
)

STORIES: dict[str, Story] = {story.name: story for story in (CHURN, TINY)}
