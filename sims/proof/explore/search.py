"""Breadth-first search through all states of a scope. Visited states are kept as 64-bit hashes, each with a parent."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import attrs

from proof.explore.fair import NOBODY, beginning
from proof.explore.liveness import Closure
from proof.explore.pool import Ids
from proof.explore.reached import reached
from proof.explore.world import Action, Successor, Transitions


@attrs.frozen
class Found:
    """A promise that was broken, and the shortest path there."""

    wrong: str
    path: tuple[Action, ...]
    closure: tuple[Action, ...] = ()
    """What happened after that, when all faults had ended."""


@attrs.frozen(kw_only=True)
class SearchResult:
    """The result of an exploration."""

    scope: str
    states: int
    transitions: int
    depth: int
    seconds: float
    cpu_seconds: float
    executions: int
    """Distinct (data, script, arguments)."""
    is_complete: bool
    closures: dict[str, int]
    """From how many states the fair continuation was followed to an even group: in all (under an empty name), and with
    one process never draining, by its letter, wherever the first continuation needed its drains.
    """
    found: Found | None
    reached: Counter[str]
    """How often each kind of transition was taken, and what :mod:`reached` counts."""


class Explorable(Protocol):
    """What can be searched: states are tuples, the same for the same state."""

    @property
    def scope(self) -> Any:
        """What is explored; it has a name."""

    def successors(self, state: Ids) -> Iterable[Successor]:
        """Yields every transition from a state."""


class BreadthFirst(ABC):
    """The search itself, whatever it is that has states."""

    def __init__(self, world: Explorable, *, seconds: float | None = None) -> None:
        self._states = world
        self._end = None if seconds is None else time.monotonic() + seconds
        self._index: dict[int, int] = {}
        self._hashes = array("q")
        self._parents = array("q")
        self._reached: Counter[str] = Counter()
        self._transitions = self._depth = 0
        self._found: Found | None = None

    @abstractmethod
    def _beginning(self) -> Ids:
        """The first state."""

    @abstractmethod
    def _executions(self) -> int:
        """How many distinct steps were executed."""

    @abstractmethod
    def _also_reached(self) -> Counter[str]:
        """What was reached besides kinds of transitions."""

    @abstractmethod
    def _closures(self) -> dict[str, int]:
        """See :class:`SearchResult`."""

    @abstractmethod
    def _stuck(self, state: Ids) -> tuple[str, tuple[Action, ...]]:
        """Why the fair continuation of a state does not end well, and that continuation; no words if it does."""

    def run(self, progress: Callable[[int, int, int], None] | None = None) -> SearchResult:
        """Explores until done, a promise is broken, or time is up; calls `progress` with depth, states, waiting."""
        began, cpu = time.monotonic(), time.process_time()
        frontier = [self._beginning()]
        self._note(frontier[0], -1)
        while frontier and self._found is None and not self._is_late():
            self._depth += 1
            frontier = self._level(frontier)
            if progress is not None:
                progress(self._depth, len(self._hashes), len(frontier))
        return SearchResult(
            scope=self._states.scope.name,
            states=len(self._hashes),
            transitions=self._transitions,
            depth=self._depth,
            seconds=time.monotonic() - began,
            cpu_seconds=time.process_time() - cpu,
            executions=self._executions(),
            is_complete=not frontier,
            closures=self._closures(),
            found=self._found,
            reached=self._reached + self._also_reached(),
        )

    def _is_late(self) -> bool:
        return self._end is not None and time.monotonic() > self._end

    def _level(self, frontier: list[Ids]) -> list[Ids]:
        following: list[Ids] = []
        for state in frontier:
            if self._is_late():
                return [*following, state]
            self._expand(state, following)
            if self._found is not None:
                break
        return following

    def _expand(self, state: Ids, following: list[Ids]) -> None:
        parent = self._index[hash(state)]
        wrong, continuation = self._stuck(state)
        if wrong:
            self._found = Found(wrong, self._path(parent), continuation)
            return
        for successor in self._states.successors(state):
            self._transitions += 1
            self._reached[successor.action[0]] += 1
            if successor.wrong:
                self._found = Found(successor.wrong, (*self._path(parent), successor.action))
                return
            if hash(successor.state) not in self._index:
                self._note(successor.state, parent)
                following.append(successor.state)

    def _note(self, state: Ids, parent: int) -> None:
        self._index[hash(state)] = len(self._hashes)
        self._hashes.append(hash(state))
        self._parents.append(parent)

    def _path(self, index: int) -> tuple[Action, ...]:
        """The actions that lead to a state: only hashes are kept, so each step is found again by trying all."""
        hashes = []
        while index > 0:
            hashes.append(self._hashes[index])
            index = self._parents[index]
        state, actions = self._beginning(), []
        for wanted in reversed(hashes):
            step = next(it for it in self._states.successors(state) if not it.wrong and hash(it.state) == wanted)
            actions.append(step.action)
            state = step.state
        return tuple(actions)


class Search(BreadthFirst):
    """Through the states of a group."""

    def __init__(self, world: Transitions, *, liveness: bool = True, seconds: float | None = None) -> None:
        super().__init__(world, seconds=seconds)
        self._world = world
        self._closure = Closure(world) if liveness else None

    def _beginning(self) -> Ids:
        return beginning(self._world)

    def _executions(self) -> int:
        return len(self._world.coordinator.outcomes)

    def _also_reached(self) -> Counter[str]:
        return reached(self._world)

    def _closures(self) -> dict[str, int]:
        if self._closure is None:
            return {}
        followed, slots = self._closure.followed, self._world.scope.slots
        return {"": followed[NOBODY], **{slot: followed[at] for at, slot in enumerate(slots, 1)}}

    def _stuck(self, state: Ids) -> tuple[str, tuple[Action, ...]]:
        wrong = "" if self._closure is None else self._closure.check(state)
        return wrong, tuple(self._closure.path) if self._closure is not None and wrong else ()
