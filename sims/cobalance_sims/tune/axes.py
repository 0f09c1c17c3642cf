"""Which settings are searched: those whose cost the churn says something about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from cobalance_sims.tune.space import AXES, Axis, BadSpace

if TYPE_CHECKING:
    from cobalance_sims.tune.source import ChurnSource

DEPENDS: Mapping[str, tuple[str, ...]] = {
    "session_timeout_ms": ("pauses_per_member_hour", "pause_ms"),
    "heartbeat_interval_ms": ("pauses_per_member_hour", "pause_ms"),
    "revocation_timeout_ms": ("drain_ms",),
    "rejoin_grace_ms": ("instances", "startup_ms"),
    "gather_ms": (),
}
"""Setting → what in the churn decides it. If that was assumed, a search would only find the assumption again."""


@attrs.frozen
class Chosen:
    """The settings that are searched, and why the others are not."""

    axes: tuple[Axis, ...]
    left: dict[str, str]
    """Setting → why it stays as it is today, and what would help."""


def choose(source: ChurnSource, asked: Sequence[str] = ()) -> Chosen:
    """Returns the settings asked for; else all that the churn says something about.

    Raises:
        BadSpace: one that was asked for cannot be searched.
    """
    if asked:
        return Chosen(tuple(dict.fromkeys(AXES[_name(word)] for word in asked)), {})
    left = {name: reason for name in AXES if (reason := _unknown(source, name))}
    return Chosen(tuple(axis for name, axis in AXES.items() if name not in left), left)


def _name(word: str) -> str:
    plain = word.strip("-").replace("-", "_")
    for name in (plain, f"{plain}_ms"):
        if name in AXES:
            return name
    raise BadSpace(f"{word!r} cannot be searched: give some of {', '.join(it.removesuffix('_ms') for it in AXES)}.")


def _unknown(source: ChurnSource, setting: str) -> str:
    if setting == "rejoin_grace_ms" and not source.churn.instances:
        return "members have no instance ids, so nothing is kept for their return"
    missing = [name for name in DEPENDS[setting] if source.bases.get(name) == "assumed"]
    if not missing:
        return ""
    notes = "; ".join(dict.fromkeys(source.notes.get(name) or "not seen" for name in missing))
    return f"the journal does not tell {' and '.join(missing)} ({notes})"
