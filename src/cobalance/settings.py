"""Every timeout and limit, with its default, its unit and its reason. Durations are whole milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.errors import InvalidSettings
from cobalance.limits import is_number

if TYPE_CHECKING:
    from collections.abc import Callable

Mode = Literal["cooperative", "eager"]

HOUR_MS, TEN_YEARS_MS = 3_600_000, 315_360_000_000


def between(low: int, high: int) -> Callable[[object, attrs.Attribute[int], int], None]:
    """A validator of whole numbers."""

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if type(value) is not int or not low <= value <= high:  # a bool is no number here
            raise InvalidSettings(f"{attribute.name} is {value!r}: give a whole number from {low} to {high}")

    return check


def number_between(low: float, high: float) -> Callable[[object, attrs.Attribute[float], float], None]:
    """A validator of numbers that need not be whole."""

    def check(_: object, attribute: attrs.Attribute[float], value: float) -> None:
        if not is_number(value, low, high):
            raise InvalidSettings(f"{attribute.name} is {value!r}: give a number from {low} to {high}")

    return check


def flag(_: object, attribute: attrs.Attribute[bool], value: object) -> None:
    """A validator of what is so or not."""
    if not isinstance(value, bool):
        raise InvalidSettings(f"{attribute.name} is {value!r}: give True or False")


def _name(_: object, attribute: attrs.Attribute[str | None], value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidSettings(f"{attribute.name} is {value!r}: give a string")


def _never_or_long(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or not (value == 0 or HOUR_MS <= value <= TEN_YEARS_MS):
        raise InvalidSettings(
            f"{attribute.name} is {value!r}: give 0, which is never, or a whole number from {HOUR_MS} (an hour) to {TEN_YEARS_MS}"
        )


@attrs.frozen(kw_only=True)
class GroupSettings:
    """What all members of a group share. The first join stores them; ``cobalance group configure`` changes them.

    Raises:
        InvalidSettings: a value is out of range, or two of them contradict each other; the message names them.
    """

    mode: Mode = attrs.field(default="cooperative")
    """``cooperative`` moves only surplus; ``eager`` stops everything at every change (the baseline of comparisons)."""

    session_timeout_ms: int = attrs.field(default=5_000, validator=between(200, 3_600_000))
    """A member silent for this long has crashed. Shorter heals faster, and mistakes a pause for a crash sooner."""

    heartbeat_interval_ms: int = attrs.field(default=1_000, validator=between(20, 1_200_000))
    """How often a member renews its session. At most a third of it, so that two lost ones cost nothing."""

    revocation_timeout_ms: int = attrs.field(default=30_000, validator=between(200, 86_400_000))
    """How long a holder may take to finish and commit before its resource is moved by force. Not below the session
    timeout: a holder must have been told, or have expired, before anybody else may start."""

    rejoin_grace_ms: int = attrs.field(default=60_000, validator=between(0, 86_400_000))
    """How long the resources of a member with an instance id are kept for its return. 0 switches this off."""

    gather_ms: int = attrs.field(default=500, validator=between(0, 600_000))
    """Changes that follow a rebalance this closely are gathered into the next one, so that a burst of joins does not
    pause the same resources again and again. The first change always acts at once."""

    moves_per_call: int = attrs.field(default=50, validator=between(1, 1_000))
    """Most resources one script call may move, which bounds how long Redis is busy with us: 50 take 4 to 8 ms on two slow, busy cores,
    and 100 took up to 13."""

    journal_length: int = attrs.field(default=100_000, validator=between(100, 100_000_000))
    """About how many journal entries are kept."""

    idle_expiry_ms: int = attrs.field(default=0, validator=_never_or_long)
    """How long Redis keeps a group that nobody is a member of, with its committed offsets and its journal: an hour at least; 0 keeps it
    for good. That is the default, since an offset is all that a job which runs once a quarter leaves behind, and what an idle
    group takes is small and does not grow; give a time where groups are made by the hundred, as by tests or one for each customer.
    A group with members does not expire, be Redis down or its members cut off for as much as six days; nor for a week longer than
    this where all of them died without a word."""

    @mode.validator
    def _known_mode(self, _: object, value: str) -> None:
        if value not in ("cooperative", "eager"):
            raise InvalidSettings(f"mode is {value!r}: give 'cooperative' or 'eager'")

    def __attrs_post_init__(self) -> None:
        if self.revocation_timeout_ms < self.session_timeout_ms:
            raise InvalidSettings(
                f"revocation_timeout_ms ({self.revocation_timeout_ms}) is below session_timeout_ms "
                f"({self.session_timeout_ms}): a holder that has not been told yet would overlap with the next one; "
                f"raise the first or lower the second"
            )
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise InvalidSettings(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) is above a third of session_timeout_ms "
                f"({self.session_timeout_ms}): a single lost heartbeat could end a session; lower the first"
            )


def differences(here: GroupSettings, there: GroupSettings) -> dict[str, tuple[int | str, int | str]]:
    """The settings in which two differ: name → both values."""
    pairs = {name: (getattr(here, name), getattr(there, name)) for name in STORED_NAMES}
    return {name: both for name, both in pairs.items() if both[0] != both[1]}


# How the settings are called in the scripts, in the order `join` takes them.
STORED_NAMES: dict[str, str] = {
    "mode": "mode",
    "session_timeout_ms": "session_ms",
    "heartbeat_interval_ms": "heartbeat_ms",
    "revocation_timeout_ms": "revocation_ms",
    "rejoin_grace_ms": "grace_ms",
    "gather_ms": "gather_ms",
    "moves_per_call": "moves",
    "journal_length": "journal_length",
    "idle_expiry_ms": "idle_ms",
}


@attrs.frozen(kw_only=True)
class MemberSettings:
    """What one process chooses for itself."""

    capacity: int = attrs.field(default=1, validator=between(0, 1_000))
    """Its share relative to the others'. 0 is a standby, which is given nothing."""

    instance_id: str | None = attrs.field(default=None, validator=_name)
    """A name that survives restarts (a StatefulSet pod's): what the process held is kept for the rejoin grace. Started again
    on its machine after a ``kill -9``, it has that at once."""

    max_processing_ms: int = attrs.field(default=300_000, validator=between(1, 86_400_000))
    """A handler that runs longer is hung, which is a failure of its message; a work function or callback costs its resource (Kafka's
    max.poll.interval.ms, but not the member)."""

    drain_timeout_ms: int = attrs.field(default=30_000, validator=between(0, 86_400_000))
    """How long a graceful leave may take before what is left is given up; and how long a hung
    handler's cleanup may, or ``on_lost`` (a second at least)."""

    guarded_outage_ms: int = attrs.field(default=3_600_000, validator=between(0, 86_400_000))
    """How long a member cut off from Redis goes on with resources whose broker is proven to admit one consumer only.
    0 stops them with the others, at the end of its session."""
