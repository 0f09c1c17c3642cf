"""The defaults of other systems, translated into our settings. ``translation`` names what has no counterpart here."""

from __future__ import annotations

import attrs

from cobalance.settings import GroupSettings


@attrs.frozen(kw_only=True)
class Peer:
    """One system's defaults."""

    name: str
    settings: GroupSettings
    translation: str


def peers(today: GroupSettings) -> list[Peer]:
    """Kafka's and Iggy's defaults (KIP-848 broker defaults and the Java client; Iggy's server configuration)."""
    return [
        Peer(
            name="Kafka",
            settings=attrs.evolve(
                today,
                session_timeout_ms=45_000,
                heartbeat_interval_ms=5_000,
                revocation_timeout_ms=300_000,
                rejoin_grace_ms=45_000,
                gather_ms=1_000,
            ),
            translation="session 45 s and heartbeat 5 s (group.consumer.*); revocation timeout = max.poll.interval.ms, 300 s "
            "(Kafka then fences the whole member, here only the resource moves); rejoin grace = the session timeout, which "
            "is how long Kafka waits for a static member; gathering = group.consumer.assignment.interval.ms, 1 s",
        ),
        Peer(
            name="Iggy",
            settings=attrs.evolve(
                today,
                session_timeout_ms=36_000,
                heartbeat_interval_ms=5_000,
                revocation_timeout_ms=36_000,
                rejoin_grace_ms=0,
                gather_ms=0,
            ),
            translation="session = heartbeat verification 30 s times 1.2; heartbeat interval 5 s, as its clients have it; "
            "revocation timeout = rebalancing_timeout 30 s, raised to the session timeout as we require; no static "
            "members and no gathering (Iggy also re-deals everything when a member leaves; here only what is surplus moves)",
        ),
    ]
