"""Every part of every state, once: states are tuples of part numbers, and what is done to a part is looked up.

Renaming keeps order. Tokens become consecutive, and so do incarnations, each member's request numbers, each member's news, and
the versions at which resources were freed: each of these is compared with its own kind only, and the next one is above all
others. Versions do too, but for those above the store's own (it has lost data, its members have seen more): there, gaps are
kept up to a limit, because the store catches up with them one by one.
"""

from __future__ import annotations

from typing import Any

import attrs

from cobalance_sims.explore.codec import (
    CURSOR,
    GROUP_TIME,
    INCARNATION,
    MEMBER_TIME,
    NEWS,
    STORE_VERSION,
    TOKEN,
    VERSION,
    Kinds,
    Numbers,
)
from cobalance_sims.explore.scope import GROUP_MS, TICK_MS

Ids = tuple[int, ...]
Mapping = dict[tuple[str, int], int]

FIRST_TOKEN = GROUP_MS * 1000 - 1_000_000
"""Below the server's clock, as tokens are when at least a microsecond has passed since each was given."""
FIRST_INCARNATION = GROUP_MS * 1000 - 2_000_000

MOST_GAP = 8
_BASES = {TOKEN: FIRST_TOKEN, INCARNATION: FIRST_INCARNATION}
_JOINT = {CURSOR: NEWS, STORE_VERSION: VERSION}
FIRST_VERSION = 1000
"""The group's version in canonical states. What is freed or told next gets a number above all that are ranked by themselves."""
_TIMES = frozenset({GROUP_TIME, MEMBER_TIME})


@attrs.frozen(eq=False)
class Part:
    """One value: what :mod:`codec` or :mod:`dump` made of it."""

    skeleton: Any = attrs.field(repr=False)
    numbers: Numbers
    kinds: Kinds
    symbols: int
    """Which symbols (numbers that are renamed) it uses: an index into the pool's list of such sets."""


class Pool:
    """Numbers parts in order of appearance."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._ids: dict[tuple[Any, Numbers], int] = {}
        self._symbols: dict[frozenset[tuple[str, int]], int] = {}
        self._sets: list[frozenset[tuple[str, int]]] = []
        self._plans: dict[Ids, Mapping | None] = {}
        self._renamed: dict[tuple[int, Numbers], int] = {}

    def add(self, skeleton: Any, numbers: Numbers, kinds: Kinds) -> int:
        """The number of a part."""
        found = self._ids.get((skeleton, numbers))
        if found is not None:
            return found
        used = frozenset((kind, value) for kind, value in zip(kinds, numbers, strict=True) if kind not in _TIMES)
        symbols = self._symbols.setdefault(used, len(self._sets))
        if symbols == len(self._sets):
            self._sets.append(used)
        self._ids[skeleton, numbers] = len(self.parts)
        self.parts.append(Part(skeleton, numbers, kinds, symbols))
        return len(self.parts) - 1

    def normalise(self, ids: Ids) -> Ids:
        """The same state with symbols renamed."""
        plan = self._plan(tuple([self.parts[it].symbols for it in ids]))
        return ids if plan is None else tuple([self._rename(it, plan) for it in ids])

    def _plan(self, symbols: Ids) -> Mapping | None:
        if symbols not in self._plans:
            used = frozenset().union(*[self._sets[it] for it in symbols])
            mapping = _mapping(used)
            self._plans[symbols] = None if all(key[1] == to for key, to in mapping.items()) else mapping
        return self._plans[symbols]

    def _rename(self, it: int, plan: Mapping) -> int:
        part = self.parts[it]
        numbers = tuple(
            [
                plan[kind, value] if kind not in _TIMES else value
                for kind, value in zip(part.kinds, part.numbers, strict=True)
            ]
        )
        if numbers == part.numbers:
            return it
        key = (it, numbers)
        if key not in self._renamed:
            self._renamed[key] = self.add(part.skeleton, numbers, part.kinds)
        return self._renamed[key]

    def aged(self, it: int) -> Numbers:
        """The numbers of a part one tick later."""
        part = self.parts[it]
        return tuple(
            [value - TICK_MS if kind in _TIMES else value for kind, value in zip(part.kinds, part.numbers, strict=True)]
        )


def _mapping(used: frozenset[tuple[str, int]]) -> Mapping:
    by_kind: dict[str, set[int]] = {}
    for kind, value in used:
        by_kind.setdefault(_JOINT.get(kind[:2], kind[:2]) + kind[2:], set()).add(value)
    mapping: Mapping = {}
    for kind, values in by_kind.items():
        if kind[:2] == NEWS:
            mapping |= _of_news(kind[2:], values, used)
        elif kind != VERSION:
            mapping |= {(kind, value): _BASES.get(kind, 0) + at for at, value in enumerate(sorted(values), 1)}
    return mapping | _of_versions(by_kind.get(VERSION, set()), used)


def _of_versions(values: set[int], used: frozenset[tuple[str, int]]) -> Mapping:
    stored = next((value for kind, value in used if kind == STORE_VERSION), 0)
    mapping: Mapping = {}
    at = last = 0
    for value in sorted(values):
        at += 1 if value <= stored else min(value - last, MOST_GAP)
        last = value
        mapping[VERSION, value] = mapping[STORE_VERSION, value] = FIRST_VERSION + at
    return mapping


def _of_news(member: str, values: set[int], used: frozenset[tuple[str, int]]) -> Mapping:
    """News up to where the member has heard them all are one: so are those for a member that nobody is any more."""
    cursors = [value for kind, value in used if kind == CURSOR + member]
    heard = min(cursors) if cursors else max(values)
    mapping: Mapping = {}
    at = 1
    for value in sorted(values):
        at += value > heard
        mapping[NEWS + member, value] = mapping[CURSOR + member, value] = at if value else 0
    return mapping
