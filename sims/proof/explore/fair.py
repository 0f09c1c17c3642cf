"""The fair continuation: everything resumes, connections recover, calls are answered, drains finish, time passes."""

from __future__ import annotations

from collections import Counter

from proof.explore.pool import Ids
from proof.explore.process import Slot
from proof.explore.safety import loads
from proof.explore.world import STORE, Action, Transitions
from proof.records import Records

NOBODY = 0

CALM_TICKS = 2
"""How long an even group is checked to stay even."""

MOST_STEPS = 1000


class Fair:
    """The one fair continuation of each state."""

    def __init__(self, world: Transitions) -> None:
        self._world = world

    def next(self, state: Ids, wedged: int = NOBODY) -> Action | None:
        """Returns the next action, ignoring the drains of the wedged member; ``None`` if nobody is left."""
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

    def _work(self, state: Ids, running: list[tuple[int, Slot]], wedged: int) -> Action | None:
        for at, it in running:
            for action in self._world.of_work(at, it):
                if at != wedged:
                    return action
        return next((("wake", at) for at, it in running if self._world.has_news(state[STORE], it)), None)

    def is_settled(self, state: Ids) -> bool:
        """All resources are known, held, known to their holders, and shared within one; nothing is pending, and every
        running process is a member.
        """
        records = self._world.checks.facts(state[STORE]).records
        working: dict[str, int] = {}
        running: set[str] = set()
        for _, it in self._world.slots(state):
            working |= it.working()
            running |= {it.session.member} if it.session is not None else set()
        kept = loads(records)
        if not kept or kept.keys() != running or not records.resources or not _is_shared(records, kept):
            return False
        return (
            not records.number("recovering")
            and self._is_listed(state)
            and all(
                it.status == "held" and not it.removing and working.get(name) == it.token
                for name, it in records.resources.items()
            )
        )

    def _is_listed(self, state: Ids) -> bool:
        """Whether the group has the newest list of the running processes, unless one that is gone had a newer one."""
        if self._world.scope.lists:
            running = [it.slot for _, it in self._world.slots(state) if it.session is not None]
            named = {name for slot in running for name in self._world.scope.named_by(slot)}
            return self._world.checks.facts(state[STORE]).records.resources.keys() == named
        lists = [it.session.declaration for _, it in self._world.slots(state) if it.session is not None]
        newest = max(lists, key=lambda it: it._declared[0])  # noqa: SLF001  # nobody else needs to know
        records = self._world.checks.facts(state[STORE]).records
        version, declared = records.number("list_version"), newest._declared[0]  # noqa: SLF001
        return version > declared or (version == declared and records.resources.keys() == set(newest._names))  # noqa: SLF001


def _is_shared(records: Records, kept: Counter[str]) -> bool:
    """Within one; where members can work different resources, no single move makes two of them more even."""
    if not records.is_mixed:
        return max(kept.values()) - min(kept.values()) <= 1
    return not any(
        kept[it.owner] > kept[member] + 1 and records.can_work(member, name)
        for name, it in records.resources.items()
        for member in kept
        if it.owner in kept
    )


def beginning(world: Transitions) -> Ids:
    """Returns the first state of an exploration: nobody has started, except those that are settled.

    Raises:
        RuntimeError: they do not become even.
    """
    state = world.initial()
    for at in range(1, world.scope.settled + 1):
        state = _settled(world, world.take(state, ("start", at)).state)
    return state


def _settled(world: Transitions, state: Ids) -> Ids:
    fair, calm = Fair(world), 0
    for _ in range(MOST_STEPS):
        action = fair.next(state)
        if action is None:
            break
        if action[0] == "tick":
            calm = calm + 1 if fair.is_settled(state) else 0
            if calm > CALM_TICKS:
                return state
        state = world.take(state, action).state
    raise RuntimeError(f"nobody comes to an even group in {world.scope.name}, although nothing goes wrong")
