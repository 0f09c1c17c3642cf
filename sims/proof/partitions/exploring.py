"""Every interleaving of what can happen to a few partitions of two members, to the end.

A state is the number of each partition's state, and what is left of the budgets. Partitions meet in the budgets and in
the members' connections only, so each partition's steps are executed once, whatever the others do meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs

from cobalance.errors import CobalanceError
from cobalance.rabbitmq.partition.actions import Timer
from proof.explore.pool import Ids
from proof.explore.search import BreadthFirst
from proof.explore.world import Action, Successor
from proof.partitions.broker import Wrong
from proof.partitions.handover import MEMBERS, Event, Handover, Partition
from proof.partitions.scope import COSTS, HandoverScope
from proof.partitions.snapshots import Key, Snapshots

MOST_STEPS = 300
"""Far more than any fair continuation takes."""


REQUIRED_OF_HANDOVERS = (*Handover.KINDS, "cut")
"""Every kind of event that at least one scope of a tier must reach."""


FAILURES = (CobalanceError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@attrs.frozen(eq=False)
class PartitionStep:
    """One event, and what it led to."""

    event: Event
    after: int
    wrong: str = ""


class Partitions:
    """The states of one partition, each met once, and what can happen in each."""

    def __init__(self, scope: HandoverScope, number: int) -> None:
        self._scope, self._keys = scope, scope.keys(number)
        self._snapshots = Snapshots()
        self._numbers: dict[Key, int] = {}
        self._keys_of: list[Key] = []
        self._events: dict[int, tuple[Event, ...]] = {}
        self._steps: dict[tuple[int, Event], PartitionStep] = {}
        self._good: set[int] = set()
        """From where the fair continuation ends well."""
        self.first = self.add(Partition.of(scope, number))

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, partition: Partition) -> int:
        """The number of a state."""
        key = self._snapshots.key(partition)
        number = self._numbers.setdefault(key, len(self._keys_of))
        if number == len(self._keys_of):
            self._keys_of.append(key)
        return number

    def copy(self, number: int) -> Partition:
        """The partition in this state, which may be changed."""
        return self._snapshots.partition(self._keys_of[number])

    def events(self, number: int) -> tuple[Event, ...]:
        """Everything that can happen in a state, whatever it costs."""
        found = self._events.get(number)
        if found is None:
            found = self._events[number] = tuple(self._handover(self.copy(number)).events())
        return found

    def step(self, number: int, event: Event) -> PartitionStep:
        """Lets an event happen, or `cut` a member's connection."""
        return self._steps.get((number, event)) or self._take(number, event)

    def _take(self, number: int, event: Event) -> PartitionStep:
        partition = self.copy(number)
        try:
            self._handover(partition).happen(event)
        except Wrong as wrong:
            step = PartitionStep(event, number, str(wrong))
        except FAILURES as problem:  # the core itself has failed
            step = PartitionStep(event, number, f"the core raises {type(problem).__name__}: {problem}")
        else:
            step = PartitionStep(event, self.add(partition))
        self._steps[number, event] = step
        return step

    def _handover(self, partition: Partition) -> Handover:
        return Handover(self._scope, self._keys, partition)

    # -- the fair continuation -----------------------------------------------------------------------------------------

    def stuck(self, number: int) -> tuple[str, tuple[Event, ...]]:
        """Why it does not come to rest with all messages settled once nothing disturbs it, and what happened then."""
        trail: list[int] = []
        path: list[Event] = []
        while number not in self._good:
            if len(trail) > MOST_STEPS:
                return f"after {MOST_STEPS} undisturbed steps it is not at rest", tuple(path)
            trail.append(number)
            step = self._fair(number)
            if step is None:
                wrong = self._at_rest(number)
                if wrong:
                    return wrong, tuple(path)
                break
            path.append(step.event)
            if step.wrong:
                return step.wrong, tuple(path)
            number = step.after
        self._good.update(trail)
        return "", ()

    def _fair(self, number: int) -> PartitionStep | None:
        """What keeps it going. Of timers only those that change something, and the retry last."""
        calm = [it for it in self.events(number) if it[0] not in {*COSTS, "reset", "cut short"}]
        calm.sort(key=lambda it: (it[0] == "timer", Timer.RETRY in it))
        steps = (self.step(number, it) for it in calm)
        return next((it for it in steps if it.wrong or it.after != number), None)

    def _at_rest(self, number: int) -> str:
        try:
            self._handover(self.copy(number)).check_rest()
        except Wrong as wrong:
            return str(wrong)
        return ""


class HandoverTransitions:
    """The transitions of a scope."""

    def __init__(self, scope: HandoverScope) -> None:
        self.scope = scope
        self.partitions = [Partitions(scope, at) for at in range(len(scope.messages))]
        self._budgets = [name for name, _ in scope.budgets]
        self._at = {what: self._budgets.index(cost) for what, cost in COSTS.items() if cost in self._budgets}

    @property
    def beginning(self) -> Ids:
        """The first member has everything, and nothing has started."""
        return (*(it.first for it in self.partitions), *(most for _, most in self.scope.budgets))

    def successors(self, state: Ids) -> Iterator[Successor]:
        """Yields every transition from a state."""
        count = len(self.partitions)
        for at, partitions in enumerate(self.partitions):
            for event in partitions.events(state[at]):
                left = self._paid(state, event[0])
                if left is not None:
                    step = partitions.step(state[at], event)
                    after = (*state[:at], step.after, *state[at + 1 : count], *left)
                    yield Successor((event[0], at, *event[1:]), after, step.wrong)
        left = self._paid(state, "cut")
        for member in MEMBERS if left is not None else "":
            cut = [it.step(number, ("cut", member)) for it, number in zip(self.partitions, state, strict=False)]
            if [it.after for it in cut] != list(state[:count]):
                wrong = next((it.wrong for it in cut if it.wrong), "")
                yield Successor(("cut", member), (*(it.after for it in cut), *(left or ())), wrong)

    def _paid(self, state: Ids, what: str) -> Ids | None:
        """The budgets afterwards; None if it may not happen."""
        left = state[len(self.partitions) :]
        if what not in COSTS:
            return left
        at = self._at.get(what)
        if at is None or not left[at]:
            return None
        return (*left[:at], left[at] - 1, *left[at + 1 :])


class HandoverSearch(BreadthFirst):
    """Through the states of a few partitions."""

    def __init__(self, world: HandoverTransitions, *, liveness: bool = True, seconds: float | None = None) -> None:
        super().__init__(world, seconds=seconds)
        self._world, self._liveness = world, liveness

    def _beginning(self) -> Ids:
        return self._world.beginning

    def _executions(self) -> int:
        return sum(len(it) for it in self._world.partitions)

    def _also_reached(self) -> Counter[str]:
        return Counter()

    def _closures(self) -> dict[str, int]:
        return {"": len(self._hashes)} if self._liveness else {}

    def _stuck(self, state: Ids) -> tuple[str, tuple[Action, ...]]:
        for at, partitions in enumerate(self._world.partitions if self._liveness else ()):
            wrong, path = partitions.stuck(state[at])
            if wrong:
                return wrong, tuple((event[0], at, *event[1:]) for event in path)
        return "", ()
