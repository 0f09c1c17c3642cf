"""What the checks remember along a path, and what may still happen on it."""

from __future__ import annotations

import attrs

from proof.explore.codec import LOSABLE, Encoder, decode
from proof.explore.coordinator import Effect
from proof.explore.pool import Pool
from proof.explore.process import ProcessStep
from proof.explore.scope import DEEDS, FAULTS, Scope


@attrs.define
class PathMemory:
    """A path's past as far as it matters, and what is left of its budgets."""

    budgets: dict[str, int]
    faults: int
    deeds: int
    events: int
    server: int = 1
    """The number of the Redis that answers."""
    list_version: int = 1
    highest: dict[str, int] = attrs.field(factory=dict)
    """The highest token ever granted or worked, by resource."""
    acknowledged: dict[str, int] = attrs.field(factory=dict)
    """The highest offset a commit was acknowledged for, by resource."""

    @classmethod
    def of(cls, scope: Scope) -> PathMemory:
        """The memory at the beginning of a path."""
        return cls(dict(scope.budgets), scope.faults, scope.deeds, scope.events).spent()

    @property
    def identity(self) -> str:
        """The identity of the server that answers now."""
        return f"redis-{self.server}"

    def allows(self, what: str) -> bool:
        """Whether this may still happen; without a budget it always may."""
        return self.budgets.get(what, 0) > 0

    @property
    def can_lose_data(self) -> bool:
        """Whether Redis may still lose its data."""
        return self.allows("flush")

    def less(self, what: str, server: int = 0) -> PathMemory:
        """Returns the memory after it happened; ``server`` is the new server, if there is one."""
        return attrs.evolve(
            self,
            budgets={name: left - (name == what) for name, left in self.budgets.items()},
            faults=self.faults - (what in FAULTS),
            deeds=self.deeds - (what in DEEDS),
            events=self.events - (what in FAULTS or what in DEEDS),
            server=self.server + server,
            list_version=self.list_version + (what == "relist"),
        ).spent()

    def spent(self) -> PathMemory:
        """Drops everything about what can no longer happen, so that paths that differ only there meet."""
        faults, deeds = min(self.faults, self.events), min(self.deeds, self.events)
        budgets = {
            name: 0 if (name in FAULTS and not faults) or (name in DEEDS and not deeds) else left
            for name, left in self.budgets.items()
        }
        if not any(budgets[name] for name in budgets if name in FAULTS):
            faults = 0
        if not any(budgets[name] for name in budgets if name in DEEDS):
            deeds = 0
        return attrs.evolve(self, budgets=budgets, faults=faults, deeds=deeds, events=min(self.events, faults + deeds))


class Memories:
    """Memories by part number."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._memories: dict[int, PathMemory] = {}
        self._used: dict[tuple[int, str, int], int] = {}
        self._granted: dict[tuple[int, Effect], tuple[int, str]] = {}
        self._begun: dict[tuple[int, ProcessStep], tuple[int, str]] = {}

    def add(self, memory: PathMemory) -> int:
        """Returns the part number of a memory."""
        encoder = Encoder()
        skeleton = encoder.encode(memory)
        if memory.can_lose_data:
            encoder.numbers.append(1)
            encoder.kinds.append(LOSABLE)
        return self._pool.add(skeleton, tuple(encoder.numbers), tuple(encoder.kinds))

    def look(self, part: int) -> PathMemory:
        """Returns the memory, which must not be changed."""
        found = self._memories.get(part)
        if found is None:
            it = self._pool.parts[part]
            found = self._memories[part] = decode(it.skeleton, iter(it.numbers))
        return found

    def use(self, part: int, what: str, server: int = 0) -> int:
        """Takes one from a budget, if there is one."""
        key = (part, what, server)
        if key not in self._used:
            self._used[key] = self.add(self.look(part).less(what, server)) if self.look(part).allows(what) else part
        return self._used[key]

    def calm(self, part: int) -> int:
        """What the checks remember, and what else could happen, no longer makes a difference."""
        return self.add(PathMemory({}, 0, 0, 0, server=self.look(part).server))

    def granted(self, part: int, outcome: Effect) -> tuple[int, str]:
        """The memory after an execution, and what is wrong: tokens must rise with each grant, even across data loss."""
        if not outcome.granted:
            return part, ""
        found = self._granted.get((part, outcome))
        if found is None:
            found = self._granted[part, outcome] = self._grant(part, outcome)
        return found

    def _grant(self, part: int, outcome: Effect) -> tuple[int, str]:
        highest = dict(self.look(part).highest)
        for name, token, member in outcome.granted:
            if token <= highest.get(name, 0):
                return part, f"the token of {name} does not rise when it is granted to {member}"
            highest[name] = token
        return self.add(attrs.evolve(self.look(part), highest=dict(sorted(highest.items())))), ""

    def begun(self, part: int, step: ProcessStep) -> tuple[int, str]:
        """The memory after a step, and what is wrong: nothing may start under an old token or from an old offset."""
        if not (step.started or step.acknowledged):
            return part, ""
        found = self._begun.get((part, step))
        if found is None:
            found = self._begun[part, step] = self._begin(part, step)
        return found

    def _begin(self, part: int, step: ProcessStep) -> tuple[int, str]:
        memory = self.look(part)
        acknowledged = dict(memory.acknowledged)
        for name, offset in step.acknowledged:
            acknowledged[name] = max(offset, acknowledged.get(name, 0))
        for name, token, committed in step.started:
            if (committed or 0) < acknowledged.get(name, 0):
                return part, f"{name} starts below the offset that was acknowledged"
            if token < memory.highest.get(name, 0):
                return part, f"{name} starts under a token below the highest"
        return self.add(attrs.evolve(memory, acknowledged=dict(sorted(acknowledged.items())))), ""
