"""A group's settings beside what its journal says of them, and how to have better ones recommended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.coordinator.advice import command
from cobalance.dashboard.values import plain
from cobalance.errors import counted
from cobalance.operate.timings import Timings, quantile
from cobalance.operate.tuned import Tuned, UnreadableTuned
from cobalance.operate.wording import duration
from cobalance.settings import GroupSettings, differences

if TYPE_CHECKING:
    from cobalance.dashboard.handovers import Handovers
    from cobalance.description import GroupDescription

ENOUGH = 20
"""With fewer observations nothing is said of what is typical."""

_UNWEIGHED = {"journal_length", "idle_expiry_ms"}

TYPICAL = {"half": 0.5, "most": 0.95, "all": 1.0}
"""Names of quantiles."""


@attrs.frozen
class Evidence:
    """What the journal says of one setting."""

    sentences: tuple[str, ...] = ()
    advice: str | None = None
    """None if nothing has to be done."""
    observed: tuple[int, ...] = ()
    """In milliseconds; what the setting limits."""


def tuning_answer(group: GroupDescription, past: Handovers, tuned: Tuned | UnreadableTuned | None) -> dict[str, Any]:
    """Each setting in force, its default, what was recommended, and what was observed. Call it with the lock of `past`."""
    settings, timings, defaults = group.settings, past.timings, GroupSettings()
    recommended = tuned.recommended if isinstance(tuned, Tuned) else {}
    return {
        "at_ms": group.at_ms,
        "first_ms": past.first_ms,
        "seq": past.seq,
        "settings": [
            _row(name, getattr(settings, name), getattr(defaults, name), look(settings, timings))
            | {"recommended": recommended.get(name)}
            for name, look in _LOOKS.items()
        ],
        "tuned": plain(tuned) | {"since": since(tuned, settings)} if isinstance(tuned, Tuned) else plain(tuned),
        "commands": commands(group.name, group.key_prefix),
    }


def since(tuned: Tuned, settings: GroupSettings) -> str | None:
    """What has become of the settings since, in words; None if they are as they were."""
    drift = _drift(tuned.today, settings)
    if drift and not _drift(attrs.evolve(tuned.today, **tuned.recommended), settings):  # type: ignore[arg-type]
        return "It is in force."
    changed = ", ".join(f"{name} from {was} to {now}" for name, (was, now) in drift.items())
    return f"Settings have drifted since: {changed}. Tune again." if changed else None


def _drift(then: GroupSettings, now: GroupSettings) -> dict[str, tuple[int | str, int | str]]:
    """What differs, but for what costs nothing that is weighed."""
    return {name: both for name, both in differences(then, now).items() if name not in _UNWEIGHED}


def commands(group: str, key_prefix: str) -> list[str]:
    """From a group's journal to timeouts that are recommended."""
    wishes = {"heal_within_s": 15, "max_duplicates_per_day": 5, "store": True}
    return [
        command("sims journal", key_prefix=key_prefix, group=group, out="journal"),
        command("sims calibrate", "journal", key_prefix=None, out="churn"),
        command("sims tune", key_prefix=key_prefix, churn="churn", group=group, **wishes),
    ]


def _row(name: str, value: int | str, default: int | str, evidence: Evidence) -> dict[str, Any]:
    observed = evidence.observed
    return {
        "name": name,
        "value": value,
        "default": default,
        "sentences": evidence.sentences,
        "advice": evidence.advice,
        "count": len(observed),
        "observed_ms": {it: quantile(observed, share) for it, share in TYPICAL.items()} if observed else None,
    }


def session_evidence(settings: GroupSettings, timings: Timings) -> Evidence:
    """Late heartbeats are what ends the sessions of members that are well."""
    late = [min(settings.heartbeat_interval_ms + it, settings.session_timeout_ms) for it in timings.late]
    told = [_spread("The silences of members that were well lasted", late, "tenure")]
    if timings.silent:
        told.append(f"{counted(timings.silent, 'session')} ended by this timeout.")
    if timings.crashed:
        told.append(f"{counted(timings.crashed, 'crash', 'crashes')} showed before it, by closed connections.")
    worst, session = max(late, default=0), settings.session_timeout_ms
    advice = None
    if worst > session * 2 // 3:
        too = ", and revocation_timeout_ms to as much" if 2 * worst > settings.revocation_timeout_ms else ""
        advice = f"A silence of {duration(worst)} nearly ended a session: raise it to {duration(2 * worst)}{too}, or lessen the load."
    return Evidence((*filter(None, told),), advice, (*late,))


def _heartbeat(_: GroupSettings, timings: Timings) -> Evidence:
    told = _spread("Heartbeats were late by", timings.late, "tenure") if any(timings.late) else None
    if timings.late and told is None:
        told = f"Heartbeats were never late ({counted(len(timings.late), 'tenure')})."
    return Evidence((told,) if told else (), None, (*timings.late,))


def revocation_evidence(settings: GroupSettings, timings: Timings) -> Evidence:
    """Drains that took their time, or more than there was."""
    told = [_spread("Drains took", timings.drains, "handover")]
    advice, longest = None, max(timings.drains, default=0)
    if timings.overrun:
        told.append(
            f"{counted(timings.overrun, 'resource was', 'resources were')} not finished in time, so messages were handled twice."
        )
        advice = "Make handlers finish sooner, or raise it."
    elif len(timings.drains) >= ENOUGH and longest * 10 < settings.revocation_timeout_ms:
        told.append(
            "The longest drain took less than a tenth of it, so it could be shorter: a hung holder keeps a resource for as long."
        )
    return Evidence((*filter(None, told),), advice, (*timings.drains,))


def _grace(settings: GroupSettings, timings: Timings) -> Evidence:
    told = [_spread("Processes came back for their place after", timings.away, "return")]
    advice = None
    if timings.not_back:
        told.append(f"{counted(timings.not_back, 'process', 'processes')} did not come back in time.")
        advice = (
            "Raise it if restarts take longer; where processes go for good, have them leave with remain=False."
            if settings.rejoin_grace_ms
            else None
        )
    return Evidence((*filter(None, told),), advice, (*timings.away,))


def _gather(settings: GroupSettings, timings: Timings) -> Evidence:
    if not timings.gaps:
        return Evidence()
    close = sum(it <= settings.gather_ms for it in timings.gaps)
    return Evidence(
        (f"{close} of {counted(len(timings.gaps), 'change')} of the membership came within it of the one before.",)
    )


def _nothing(_: GroupSettings, __: Timings) -> Evidence:
    return Evidence()


_LOOKS: dict[str, Callable[[GroupSettings, Timings], Evidence]] = {
    "session_timeout_ms": session_evidence,
    "heartbeat_interval_ms": _heartbeat,
    "revocation_timeout_ms": revocation_evidence,
    "rejoin_grace_ms": _grace,
    "gather_ms": _gather,
    "mode": _nothing,
    "moves_per_call": _nothing,
    "journal_length": _nothing,
    "idle_expiry_ms": _nothing,
}
"""All settings of a group, those first that the journal says something of."""


def _spread(what: str, values: Collection[int], of: str) -> str | None:
    if not values:
        return None
    half, most, longest = (duration(quantile(values, share)) for share in TYPICAL.values())
    if len(values) < ENOUGH:
        return f"{what} {longest} at most ({counted(len(values), of)})."
    return f"{what} {half} or less for half of {counted(len(values), of)}, {most} or less for 95 %, {longest} at most."
