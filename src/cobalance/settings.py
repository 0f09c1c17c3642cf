"""The settings of groups and of members, with defaults, units and reasons. Durations are whole milliseconds.

Options of consumers are in :class:`cobalance.rabbitmq.ConsumerGroup`, bounds of names and numbers in ``limits.py``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.errors import InvalidSettings
from cobalance.limits import check_flag, is_number

if TYPE_CHECKING:
    from collections.abc import Callable

Mode = Literal["cooperative", "eager"]

HOUR_MS, TEN_YEARS_MS = 3_600_000, 315_360_000_000


_UNITS_MS = {"ms": 1, "": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int:
    """Parses ``1500ms``, ``1500``, ``30s``, ``2m``, ``1h`` or ``7d`` to milliseconds.

    Raises:
        ValueError: it is none of these.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write 1500ms, 30s, 2m, 1h or 7d")
    value = float(found[1]) * _UNITS_MS[found[2]]
    if not math.isfinite(value):
        raise ValueError("that is longer than any duration")
    return round(value)


def between(low: int, high: int) -> Callable[[object, attrs.Attribute[int], int], None]:
    """Returns a validator for integers in a range."""

    def check(_: object, attribute: attrs.Attribute[int], value: int) -> None:
        if type(value) is not int or not low <= value <= high:  # bool is a subclass of int
            raise InvalidSettings(f"{attribute.name} is {value!r}: give a whole number from {low} to {high}")

    return check


def number_between(low: float, high: float) -> Callable[[object, attrs.Attribute[float], float], None]:
    """Returns a validator for integers and floats in a range."""

    def check(_: object, attribute: attrs.Attribute[float], value: float) -> None:
        if not is_number(value, low, high):
            raise InvalidSettings(f"{attribute.name} is {value!r}: give a number from {low} to {high}")

    return check


def flag(_: object, attribute: attrs.Attribute[bool], value: object) -> None:
    """Validates a bool."""
    check_flag(attribute.name, value, InvalidSettings)


def _name(_: object, attribute: attrs.Attribute[str | None], value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidSettings(f"{attribute.name} is {value!r}: give a string")
    if value == "-":
        raise InvalidSettings(f"{attribute.name} is '-', which stands for none: give another name, or leave it out")


def _never_or_long(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or not (value == 0 or HOUR_MS <= value <= TEN_YEARS_MS):
        raise InvalidSettings(
            f"{attribute.name} is {value!r}: give 0, which is never, or a whole number from {HOUR_MS} (an hour) to {TEN_YEARS_MS}"
        )


@attrs.frozen(kw_only=True)
class GroupSettings:
    """Settings shared by all members of a group. The first join stores them; ``cobalance group configure`` changes
    them.

    Raises:
        InvalidSettings: a value is out of range or contradicts another one; the message names them.
    """

    mode: Mode = attrs.field(default="cooperative")
    """``cooperative`` moves only the surplus; ``eager`` stops all work at every change, as a baseline for comparisons.
    """

    session_timeout_ms: int = attrs.field(default=5_000, validator=between(200, 3_600_000))
    """A member silent for this long is considered crashed. A shorter timeout recovers faster, but is more likely to
    mistake a pause for a crash.
    """

    heartbeat_interval_ms: int = attrs.field(default=1_000, validator=between(20, 1_200_000))
    """How often a member renews its session. At most a third of the session timeout, so that two lost heartbeats cost
    nothing.
    """

    revocation_timeout_ms: int = attrs.field(default=30_000, validator=between(200, 86_400_000))
    """How long a holder may take to finish and commit before its resource is moved by force. Not below the session
    timeout: a holder must have been notified, or have expired, before the next one may start.
    """

    rejoin_grace_ms: int = attrs.field(default=60_000, validator=between(0, 86_400_000))
    """How long the resources of a member with an instance id are kept for its return. 0 disables this."""

    gather_ms: int = attrs.field(default=500, validator=between(0, 600_000))
    """Changes that follow a rebalance within this time are batched into the next one, so that a burst of joins does not
    pause the same resources again and again. The first change always takes effect at once.
    """

    moves_per_call: int = attrs.field(default=50, validator=between(1, 1_000))
    """How many resources one script call may move at most, which bounds how long a call keeps Redis busy. On two slow,
    busy cores (load 11 to 12) the longest call of one member's join took 4 to 8 ms with 50, 7 to 13 with 100; that of
    the first deal 7 to 12 ms with 50, 13 to 14 with 100.
    """

    journal_length: int = attrs.field(default=100_000, validator=between(100, 100_000_000))
    """Approximate number of journal entries that are kept."""

    idle_expiry_ms: int = attrs.field(default=0, validator=_never_or_long)
    """How long Redis keeps a group without members, with its committed offsets and its journal: at least an hour; 0,
    the default, keeps it forever. An offset may be all that a quarterly job leaves behind, and an idle group is small and
    does not grow. Set a time where groups are created by the hundred, such as one per test or per customer. A group
    with members does not expire, even if Redis is down or its members are cut off for up to six days. If all members
    died without leaving, it is kept for a week longer than this.
    """

    @mode.validator
    def _known_mode(self, _: object, value: str) -> None:
        if value not in ("cooperative", "eager"):
            raise InvalidSettings(f"mode is {value!r}: give 'cooperative' or 'eager'")

    def __attrs_post_init__(self) -> None:
        if self.revocation_timeout_ms < self.session_timeout_ms:
            raise InvalidSettings(
                f"revocation_timeout_ms ({self.revocation_timeout_ms}) is below session_timeout_ms "
                f"({self.session_timeout_ms}): a holder that has not been notified yet would overlap with the next one; "
                f"raise the first or lower the second"
            )
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise InvalidSettings(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) is above a third of session_timeout_ms "
                f"({self.session_timeout_ms}): a single lost heartbeat could end a session; lower the first"
            )


def differences(here: GroupSettings, there: GroupSettings) -> dict[str, tuple[int | str, int | str]]:
    """The settings in which two groups differ, as name → both values."""
    pairs = {name: (getattr(here, name), getattr(there, name)) for name in STORED_NAMES}
    return {name: both for name, both in pairs.items() if both[0] != both[1]}


# Each setting's name in the scripts (10_group.lua, configure.lua), in the order in which join.lua takes them.
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
    """Settings that each process chooses for itself."""

    capacity: int = attrs.field(default=1, validator=between(0, 1_000))
    """Its share relative to other members. 0 makes it a standby, which is assigned nothing."""

    instance_id: str | None = attrs.field(default=None, validator=_name)
    """A name that survives restarts, such as a StatefulSet pod's: what the process held is kept for the rejoin grace
    period. A process restarted on the same machine after a ``kill -9`` gets it back at once.
    """

    max_processing_ms: int = attrs.field(default=300_000, validator=between(1, 86_400_000))
    """A handler that runs longer is considered hung, and its message fails; a hung block ``with tenure.processing()``, or
    ``on_assigned``, loses its resource. ``on_revoked`` has as long where no revocation gives it a deadline. Like Kafka's max.poll.interval.ms,
    but the member stays. One that blocks the event loop for so long and ``drain_timeout_ms`` more costs the membership.
    Where code that nobody limits may be working on that loop, such as a leader's block, the member then gives up only
    the resources that are certainly idle.
    """

    drain_timeout_ms: int = attrs.field(default=30_000, validator=between(0, 86_400_000))
    """How long a graceful leave may take before unfinished work is given up. Also limits the cleanup of a hung handler,
    the wait for unsettled messages of a partition that its member gives up, and ``on_lost`` (at least a second).
    """

    guarded_outage_ms: int = attrs.field(default=3_600_000, validator=between(0, 86_400_000))
    """How long a member cut off from Redis keeps working resources whose broker is proven to admit a single consumer. 0
    stops them with the others when its session ends.
    """
