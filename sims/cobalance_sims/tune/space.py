"""The settings that are searched: a coarse grid of them, and the neighbours of one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

import attrs

from cobalance.errors import InvalidSettings, UsageError
from cobalance.settings import GroupSettings


class BadSpace(UsageError):
    """A range of settings that holds no choice."""


@attrs.frozen
class Axis:
    """One setting, from its least to its greatest sensible value, ms. ``coarse`` are the values tried first."""

    name: str
    least: int
    greatest: int
    coarse: tuple[int, ...]
    off: bool = False
    """Whether 0, which switches it off, is a choice too; ``least`` is then the least one that is not 0."""

    def bounded(self, value: float) -> int:
        """The nearest sensible value that reads well."""
        return neat(min(max(value, self.least), self.greatest))

    def around(self, value: int, factor: float) -> list[int]:
        """One step down and one step up."""
        if value == 0:
            return [self.least]
        both = (value / factor, value * factor)
        found = [0 if self.off and it < self.least * 0.999 else self.bounded(it) for it in both]
        return [it for it in found if it != value]


AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("session_timeout_ms", 1_000, 120_000, (5_000, 10_000, 25_000)),
        Axis("revocation_timeout_ms", 1_000, 600_000, (10_000, 30_000, 90_000)),
        Axis("heartbeat_interval_ms", 100, 30_000, (1_000, 3_000)),
        Axis("rejoin_grace_ms", 5_000, 600_000, (0, 60_000), off=True),
        Axis("gather_ms", 100, 20_000, (0, 500, 3_000), off=True),
    )
}
"""By the name of the setting."""


def neat(ms: float) -> int:
    """Rounds to two digits, which is enough for a timeout."""
    if ms < 1:
        return 0
    step = 10 ** max(0, math.floor(math.log10(ms)) - 1)
    return int(round(ms / step) * step)


def with_values(settings: GroupSettings, **values: int) -> GroupSettings | None:
    """Returns changed settings, or ``None`` if they contradict each other."""
    try:
        return attrs.evolve(settings, **values)  # type: ignore[arg-type]  # mode is not among them
    except InvalidSettings:
        return None


def coarse_grid(today: GroupSettings, axes: Iterable[Axis]) -> list[GroupSettings]:
    """Returns every valid combination of the coarse values; settings that are not searched stay as they are today.

    Raises:
        BadSpace: there is none.
    """
    axes = list(axes)
    names = [axis.name for axis in axes]
    points = (
        with_values(today, **dict(zip(names, values, strict=True))) for values in product(*(it.coarse for it in axes))
    )
    found = list(dict.fromkeys(point for point in points if point is not None))
    if not found:
        raise BadSpace(
            "No combination of the settings to be searched is possible together with those that stay as they are."
        )
    return found


def neighbours(settings: GroupSettings, axes: Sequence[Axis], factor: float) -> list[GroupSettings]:
    """One step away along each axis. A step of the session takes along what it would contradict."""
    found = []
    for axis in axes:
        for value in axis.around(getattr(settings, axis.name), factor):
            point = with_values(settings, **{axis.name: value}) or _along(settings, axis.name, value)
            if point is not None and point != settings:
                found.append(point)
    return list(dict.fromkeys(found))


def _along(settings: GroupSettings, name: str, value: int) -> GroupSettings | None:
    if name != "session_timeout_ms":
        return None
    return with_values(
        settings,
        session_timeout_ms=value,
        heartbeat_interval_ms=min(settings.heartbeat_interval_ms, value // 3),
        revocation_timeout_ms=max(settings.revocation_timeout_ms, value),
    )
