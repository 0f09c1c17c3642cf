"""Promise L1, from every state: once all faults end and every call is answered, the group becomes even and stays so.

A fair closure instead of temporal logic: from each state one fair continuation is followed (late packets are gone,
frozen processes resume, connections recover, calls are answered, drains finish, hints arrive, then time passes), and
must lead to an even group. Where the continuation reaches a state that is known to get there, so does this one.
Wherever it needed a certain member to finish a drain, it is followed once more with that member never finishing any
(promise L2).
"""

from __future__ import annotations

from collections import Counter

import attrs

from proof.explore.fair import CALM_TICKS, NOBODY, Fair
from proof.explore.pool import Ids
from proof.explore.world import MEMORY, Action, Transitions

MOST_TICKS = 60
MOST_AT_ONCE = 100


@attrs.define
class _Walk:
    actions: list[Action] = attrs.field(factory=list)
    trail: list[int] = attrs.field(factory=list)
    ticks: int = 0
    calm: int = 0
    busy: int = 0
    drainers: int = 0

    def note(self, state: Ids, action: Action, *, is_settled: bool) -> None:
        self.trail.append(hash(state))
        self.actions.append(action)
        self.busy += 1
        if action[0] == "tick":
            self.busy, self.ticks, self.calm = 0, self.ticks + 1, self.calm + 1 if is_settled else 0
        elif action[0] == "finish":
            self.drainers |= 1 << action[1]


class Closure:
    """Which states lead to an even group, and on whose drains that depended."""

    def __init__(self, world: Transitions) -> None:
        self._world, self._fair = world, Fair(world)
        self._drainers: dict[tuple[int, int], int] = {}
        """(wedged member, hash of the state) → bits of the members whose drains the continuation needed."""
        self._calm: dict[int, int] = {}
        self.path: list[Action] = []
        self.followed: Counter[int] = Counter()
        """Number of states followed, by the member that never drained."""

    def check(self, state: Ids) -> str:
        """Says why the group does not become even; empty if it does. `path` is the continuation that fails."""
        calm = self._without_history(state)
        wrong, drainers = self._follow(calm, NOBODY)
        at = 1
        while not wrong and self._world.scope.wedged and drainers >= 1 << at:
            if drainers & (1 << at):
                wrong, _ = self._follow(calm, at)
            at += 1
        return wrong

    def _without_history(self, state: Ids) -> Ids:
        """What the checks remember, and what else could happen, no longer makes a difference."""
        part = state[MEMORY]
        if part not in self._calm:
            self._calm[part] = self._world.memories.calm(part)
        calm = (*state[:MEMORY], self._calm[part], self._world.nothing)
        return self._world.pool.normalise(calm)

    def _follow(self, state: Ids, wedged: int) -> tuple[str, int]:
        walk = _Walk()
        self.path = walk.actions
        self.followed[wedged] += 1
        while (wrong := self._problem(walk, wedged)) == "":
            known = self._drainers.get((wedged, hash(state)))
            action = self._fair.next(state, wedged) if known is None else None
            if action is None:
                walk.drainers |= known or 0
                break
            walk.note(state, action, is_settled=action[0] == "tick" and self._fair.is_settled(state))
            if walk.calm > CALM_TICKS:
                break
            successor = self._world.take(state, action)
            if successor.wrong:
                return successor.wrong, walk.drainers
            state = successor.state
        if not wrong:
            self._drainers.update(dict.fromkeys([(wedged, it) for it in walk.trail], walk.drainers))
        return wrong, walk.drainers

    def _problem(self, walk: _Walk, wedged: int) -> str:
        if walk.busy > MOST_AT_ONCE:
            return f"{MOST_AT_ONCE} things happen one after the other, and time does not pass"
        return self._verdict(wedged) if walk.ticks > MOST_TICKS else ""

    def _verdict(self, wedged: int) -> str:
        who = f", although only {self._world.scope.slots[wedged - 1]} never drains" if wedged else ""
        return f"after {MOST_TICKS} ticks without any trouble the group is not even{who}"
