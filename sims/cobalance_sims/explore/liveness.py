"""Promise L1, from every state: once every trouble ends and everybody answers, the group becomes even and stays so.

A fair closure instead of temporal logic: from each state one fair continuation is followed (late packets are gone, the frozen
wake, lines heal, calls are answered, drains finish, hints arrive, then time passes), and must lead to an even group. Where the
continuation runs into a state that is known to get there, so does this one. Wherever it needed a certain member to finish a
drain, it is followed once more with that member never finishing any (promise L2).
"""

from __future__ import annotations

import attrs

from cobalance_sims.explore.pool import Ids
from cobalance_sims.explore.process import Process
from cobalance_sims.explore.safety import loads
from cobalance_sims.explore.world import MEMORY, STORE, Action, Memory, World

MOST_TICKS = 60
CALM_TICKS = 2
"""How long an even group is watched to stay so."""

MOST_AT_ONCE = 100

NOBODY = 0


@attrs.define
class _Walk:
    """One continuation."""

    actions: list[Action] = attrs.field(factory=list)
    trail: list[int] = attrs.field(factory=list)
    ticks: int = 0
    calm: int = 0
    busy: int = 0
    drainers: int = 0

    def note(self, state: Ids, action: Action, *, is_even: bool) -> None:
        """One more step."""
        self.trail.append(hash(state))
        self.actions.append(action)
        self.busy += 1
        if action[0] == "tick":
            self.busy, self.ticks, self.calm = 0, self.ticks + 1, self.calm + 1 if is_even else 0
        elif action[0] == "finish":
            self.drainers |= 1 << action[1]


class Closure:
    """Which states get to an even group, and on whose drains that depended."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._drainers: dict[tuple[int, int], int] = {}
        """(wedged member, hash of the state) → bits of the members whose drains the continuation needed."""
        self._calm: dict[int, int] = {}
        self.path: list[Action] = []

    def check(self, state: Ids) -> str:
        """Why the group does not become even from here; empty when it does. `path` is the continuation that fails."""
        calm = self._without_history(state)
        wrong, drainers = self._follow(calm, NOBODY)
        at = 1
        while not wrong and self._world.scope.wedged and drainers >= 1 << at:
            if drainers & (1 << at):
                wrong, _ = self._follow(calm, at)
            at += 1
        return wrong

    def _without_history(self, state: Ids) -> Ids:
        """What the checks remember and what else could happen makes no difference any more."""
        part = state[MEMORY]
        if part not in self._calm:
            self._calm[part] = self._world.remember(Memory({}, 0, server=self._world.memory(part).server))
        calm = (*state[:MEMORY], self._calm[part], self._world.nothing)
        return self._world.pool.normalise(calm)

    def _follow(self, state: Ids, wedged: int) -> tuple[str, int]:
        walk = _Walk()
        self.path = walk.actions
        while (wrong := self._problem(walk, wedged)) == "":
            known = self._drainers.get((wedged, hash(state)))
            action = self._next(state, wedged) if known is None else None
            if action is None:
                walk.drainers |= known or 0
                break
            walk.note(state, action, is_even=action[0] == "tick" and self._is_even(state))
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

    def _next(self, state: Ids, wedged: int) -> Action | None:
        """What happens next when all is well; nothing, where nobody is left."""
        running = [(at, it) for at, it in self._world.slots(state) if it.status in ("up", "paused")]
        if not running:
            return None
        for at, it in running:
            if it.status == "paused" or it.is_cut:
                return ("resume" if it.status == "paused" else "heal", at)
        for at, it in running:
            if it.is_calling:
                return ("answer", at)
        return self._work(state, running, wedged) or ("tick",)

    def _work(self, state: Ids, running: list[tuple[int, Process]], wedged: int) -> Action | None:
        for at, it in running:
            for action in self._world.of_work(at, it):
                if at != wedged:
                    return action
        return next((("wake", at) for at, it in running if self._world.has_news(state[STORE], it)), None)

    def _is_even(self, state: Ids) -> bool:
        """Everything is held, known to its holder, and shared within one; nothing is pending, nobody else is left."""
        records = self._world.checks.facts(state[STORE]).records
        working: dict[str, int] = {}
        for _, it in self._world.slots(state):
            working |= it.working()
        kept = loads(records)
        if not kept or max(kept.values()) - min(kept.values()) > 1:
            return False
        return not records.number("recovering") and all(
            it.status == "held" and not it.removing and working.get(name) == it.token
            for name, it in records.resources.items()
        )
