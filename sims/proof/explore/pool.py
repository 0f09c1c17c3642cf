"""Stores every part of every state once: states are tuples of part numbers, and the effect of an action on a part is
looked up.

Renaming keeps order. Tokens become consecutive, and so do incarnations, each member's request numbers, each member's
news, and the versions at which resources were freed: each of these is compared with its own kind only, and the next one
is above all others. So do versions, except those above the store's own (it has lost data, and its members have seen
more): there, gaps are kept up to a limit, because the store catches up with them one by one. Those up to the store's
own matter only to a group that loses its data: once no loss is possible any more, they become one.
"""

from __future__ import annotations

from typing import Any

import attrs

from proof.explore.codec import (
    CURSOR,
    GROUP_TIME,
    INCARNATION,
    LOSABLE,
    MEMBER_TIME,
    NEWS,
    STORE_VERSION,
    TOKEN,
    VERSION,
    Kinds,
    Numbers,
)
from proof.explore.scope import GROUP_MS, TICK_MS

Ids = tuple[int, ...]
Mapping = dict[tuple[str, int], int]

MISSING: Any = object()

FIRST_TOKEN = GROUP_MS * 1000 - 1_000_000
"""Below the server's clock, as tokens are when at least a microsecond has passed since each was given."""
FIRST_INCARNATION = GROUP_MS * 1000 - 2_000_000

MOST_GAP = 8
_BASES = {TOKEN: FIRST_TOKEN, INCARNATION: FIRST_INCARNATION}
_JOINT = {CURSOR: NEWS, STORE_VERSION: VERSION}
FIRST_VERSION = 1000
"""The group's version in canonical states. What is freed or reported next gets a number above all ranked ones."""
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
        self._kinds: dict[Kinds, Kinds] = {}
        self._symbols: dict[frozenset[tuple[str, int]], int] = {}
        self._sets: list[frozenset[tuple[str, int]]] = []
        self._plans: dict[Ids, tuple[int, Mapping] | None] = {}
        self._renamed: dict[tuple[int, int], int] = {}

    def add(self, skeleton: Any, numbers: Numbers, kinds: Kinds) -> int:
        """Returns the number of a part."""
        found = self._ids.get((skeleton, numbers))
        if found is not None:
            return found
        used = frozenset((kind, value) for kind, value in zip(kinds, numbers, strict=True) if kind not in _TIMES)
        symbols = self._symbols.setdefault(used, len(self._sets))
        if symbols == len(self._sets):
            self._sets.append(used)
        self._ids[skeleton, numbers] = len(self.parts)
        self.parts.append(Part(skeleton, numbers, self._kinds.setdefault(kinds, kinds), symbols))
        return len(self.parts) - 1

    def normalise(self, ids: Ids) -> Ids:
        """Returns the same state with symbols renamed."""
        parts = self.parts
        symbols = tuple([parts[it].symbols for it in ids])
        plan = self._plans.get(symbols, MISSING)
        if plan is MISSING:
            plan = self._plans[symbols] = self._plan(symbols)
        return ids if plan is None else tuple([self._rename(it, plan) for it in ids])

    def _plan(self, symbols: Ids) -> tuple[int, Mapping] | None:
        """Says how to rename states that use these sets of symbols, with a number; ``None`` if nothing changes."""
        mapping = _mapping(frozenset().union(*[self._sets[it] for it in symbols]))
        changed = {key: to for key, to in mapping.items() if key[1] != to}
        return (len(self._plans), changed) if changed else None

    def _rename(self, it: int, plan: tuple[int, Mapping]) -> int:
        number, mapping = plan
        found = self._renamed.get((it, number))
        if found is None:
            part = self.parts[it]
            numbers = tuple([mapping.get(pair, pair[1]) for pair in zip(part.kinds, part.numbers, strict=True)])
            found = it if numbers == part.numbers else self.add(part.skeleton, numbers, part.kinds)
            self._renamed[it, number] = found
        return found

    def aged(self, it: int) -> Numbers:
        """Returns the numbers of a part one tick later."""
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
    is_losable = (LOSABLE, 1) in used
    mapping: Mapping = {}
    at = last = 0
    for value in sorted(values):
        if value > stored:
            at += min(value - last, MOST_GAP)
        elif is_losable or at == 0:
            at += 1
        last = value
        mapping[VERSION, value] = mapping[STORE_VERSION, value] = FIRST_VERSION + at
    return mapping


def _of_news(member: str, values: set[int], used: frozenset[tuple[str, int]]) -> Mapping:
    """All news that the member has heard become one, and so do all news of a member that no longer exists."""
    cursors = [value for kind, value in used if kind == CURSOR + member]
    heard = min(cursors) if cursors else max(values)
    mapping: Mapping = {}
    at = 1
    for value in sorted(values):
        at += value > heard
        mapping[NEWS + member, value] = mapping[CURSOR + member, value] = at if value else 0
    return mapping
