"""What ``cobalance sims tune --store`` decided for a group, kept beside it in Redis: one version of it, as JSON."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import attrs

from cobalance.coordinator.transport import Script
from cobalance.errors import ScriptFailed, UnknownGroup, UsageError
from cobalance.limits import check_integer, parse_json
from cobalance.redact import redact
from cobalance.settings import GroupSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cobalance.coordinator.client import Coordinator

FORMAT = 1
"""Rises when a field changes its meaning or goes."""

Decision = Literal["change", "keep", "refused"]

_STORE = Script.of(
    "store_tuned",
    """
-- KEYS 1 the group's state, 2 the decision; ARGV 1 server identity, 2 its JSON. Returns whether there is such a group.
local state = redis.call('HMGET', KEYS[1], 'incarnation', 'expires')
local expires = state[2] or '0'
if not state[1] then return 0 end
redis.call('UNLINK', KEYS[2])
redis.call('HSET', KEYS[2], 'json', ARGV[2])
if expires + 0 > 0 then redis.call('PEXPIREAT', KEYS[2], expires) end
return 1
""",
)
_READ = Script.of("read_tuned", "return redis.call('HGET', KEYS[1], 'json')")


@attrs.frozen(kw_only=True)
class Tuned:
    """A decision of ``cobalance sims tune``."""

    at_ms: int
    """When it was stored, in group time."""
    from_ms: int | None
    to_ms: int | None
    """From which part of the group's journal it was computed; None if from something else."""
    decision: Decision
    today: GroupSettings
    """The settings that were in force then."""
    recommended: Mapping[str, int]
    """Setting → value, of those that were searched; empty if it was refused."""
    gain: tuple[float, float | None, float | None] | None
    """How much less that costs, or the best that was found, in resource-seconds of standstill a day, with the bounds of
    an interval of 95 in 100. A bound of None is none. None if nothing was searched.
    """
    sentences: Sequence[str]
    """What it gives and takes, why it was decided so, and what would help."""


@attrs.frozen
class UnreadableTuned:
    """A decision that this version cannot read."""

    problem: str
    """Why."""


def store(coordinator: Coordinator, tuned: Tuned) -> None:
    """Puts it in the place of an earlier one.

    Raises:
        UnknownGroup: there is no such group.
    """
    text = json.dumps({"version": FORMAT, **attrs.asdict(tuned)}, allow_nan=False)
    if not coordinator.transport.call(_STORE, (coordinator.state_key, coordinator.tuned_key), [text]):
        raise UnknownGroup(f"group {coordinator.group!r} does not exist any more, so nothing is stored beside it")


def read(coordinator: Coordinator) -> Tuned | UnreadableTuned | None:
    """The decision that was stored last; None if there is none.

    Raises:
        ServerError: Redis cannot be queried.
    """
    try:
        text = cast("bytes | None", coordinator.transport.call(_READ, (coordinator.tuned_key,), []))
    except ScriptFailed as error:  # a key of another type
        return UnreadableTuned(str(error))
    if text is None:
        return None
    try:
        found = parse_json(text, dict)
        if found["version"] != FORMAT:
            return UnreadableTuned(
                f"It is in format {found['version']!s:.20}, and this version of cobalance reads {FORMAT}."
            )
        return _parsed(found)
    except (ValueError, LookupError, TypeError, AttributeError, UsageError):
        return UnreadableTuned(f"What {coordinator.tuned_key} holds is damaged.")


def _parsed(found: dict[str, Any]) -> Tuned:
    today, recommended, span = GroupSettings(**found["today"]), found["recommended"], (found["from_ms"], found["to_ms"])
    attrs.evolve(today, **recommended)  # checks them
    for number in (found["at_ms"], *recommended.values(), *(() if span == (None, None) else span)):
        check_integer("a number in it", number)
    if found["decision"] not in get_args(Decision):
        raise ValueError(found["decision"])
    gain = found["gain"] if found["gain"] is None else _gain(*found["gain"])
    sentences = [redact(it) for it in found["sentences"]]
    return Tuned(
        at_ms=found["at_ms"],
        from_ms=span[0],
        to_ms=span[1],
        decision=found["decision"],
        today=today,
        recommended=recommended,
        gain=gain,
        sentences=sentences,
    )


def _gain(value: float, low: float | None, high: float | None) -> tuple[float, float | None, float | None]:
    if not all(isfinite(it) for it in (value, low, high) if it is not None):
        raise ValueError("NaN")
    return value, low, high
