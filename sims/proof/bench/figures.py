"""A figure: one of ours against its raw peer, measured side by side in one run."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@attrs.frozen
class Figure:
    """What was measured, how often, and its goal."""

    name: str
    unit: str
    ours: float
    """Median of the rounds."""
    peer: float | None = None
    """Median of the peer's, measured in the same rounds; ``None`` for a figure without a peer."""
    ratio: float | None = None
    """Median of the rounds' own ratios: a disturbance of the machine affects both sides of a round."""
    goal: str = ""
    met: bool | None = None
    rounds: int = 1
    detail: str = ""
    each: tuple[float, ...] = ()
    """What each round said: its ratio if there is a peer, else its value. `--compare` takes the noise from them."""
    better: str = "lower"
    """`lower` or `higher`."""

    @property
    def value(self) -> float:
        """What is compared with an earlier run's: the ratio if there is a peer, else our value."""
        return self.ours if self.ratio is None else self.ratio


def compare(
    name: str,
    unit: str,
    ours: Callable[[], float],
    peer: Callable[[], float],
    *,
    rounds: int,
    most: float | None = None,
    least: float | None = None,
    detail: str = "",
) -> Figure:
    """Measures both in turn, in alternating order, and relates them."""
    pairs = [_pair(ours, peer, swap=number % 2 == 1) for number in range(rounds)]
    return _related(name, unit, pairs, most=most, least=least, detail=detail)


def compare_each(
    unit: str,
    kinds: Mapping[str, Callable[[], float]],
    base: Callable[[], float],
    *,
    rounds: int,
    least: float,
    detail: str,
) -> list[Figure]:
    """Measures the base and all kinds in each round, beginning with another one each time, and relates each to the base."""
    runs = {"": base, **kinds}
    names, measured = list(runs), list[dict[str, float]]()
    for number in range(rounds):
        first = number % len(names)
        measured.append({name: runs[name]() for name in [*names[first:], *names[:first]]})
    return [
        _related(name, unit, [(it[name], it[""]) for it in measured], most=None, least=least, detail=detail)
        for name in kinds
    ]


def _related(
    name: str, unit: str, pairs: Sequence[tuple[float, float]], *, most: float | None, least: float | None, detail: str
) -> Figure:
    ratios = [mine / theirs for mine, theirs in pairs]
    ratio = statistics.median(ratios)
    return Figure(
        name=name,
        unit=unit,
        ours=statistics.median(mine for mine, _ in pairs),
        peer=statistics.median(theirs for _, theirs in pairs),
        ratio=ratio,
        goal=f"≤ {most:g}" if most is not None else f"≥ {least:g}" if least is not None else "",
        met=ratio <= most if most is not None else ratio >= least if least is not None else None,
        rounds=len(pairs),
        detail=detail,
        each=tuple(ratios),
        better="lower" if least is None else "higher",
    )


def _pair(ours: Callable[[], float], peer: Callable[[], float], *, swap: bool) -> tuple[float, float]:
    if swap:
        theirs = peer()
        return ours(), theirs
    mine = ours()
    return mine, peer()


def alone(name: str, unit: str, value: float, *, most: float | None = None, detail: str = "") -> Figure:
    """A figure that has no peer, only a goal."""
    return Figure(
        name=name,
        unit=unit,
        ours=value,
        goal="" if most is None else f"≤ {most:g} {unit}",
        met=None if most is None else value <= most,
        detail=detail,
    )
