"""Everything that can happen next. A state is a tuple of part numbers: the data, the processes, what the checks
remember, a late call.

Time stands still while any process that can reach Redis waits for an answer; whatever makes an answer late is a fault
and has a budget. When time passes, every running process checks its clock first, as a scheduled process does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from cobalance.coordinator.dump import State
from cobalance.coordinator.requests import Configure, Header, Request
from cobalance.coordinator.transport import Reply
from cobalance.member import events as ev
from cobalance.member.holding import State as HoldingState
from cobalance.settings import STORED_NAMES
from proof.explore import safety
from proof.explore.codec import Encoder, decode
from proof.explore.coordinator import Effect, ExploredCoordinator
from proof.explore.memory import Memories, PathMemory
from proof.explore.pool import Ids, Pool
from proof.explore.process import MOST_OFFSET, Processes, ProcessStep, Slot
from proof.explore.scope import Scope

STORE = 0
LATE = -1
MEMORY = -2

_STEPS = {"late": "failed", "lost": "failed", "restart": "start"}

Action = tuple[Any, ...]


@attrs.frozen(eq=False)
class Successor:
    action: Action
    state: Ids
    wrong: str = ""


class Transitions:
    """The transitions of a scope."""

    def __init__(
        self, scope: Scope, *, lua: str | None = None, digest: Callable[[Reply, State], bytes] | None = None
    ) -> None:
        self.scope = scope
        self.pool = Pool()
        self.coordinator = ExploredCoordinator(scope, self.pool, lua, digest)
        self.processes = Processes(scope, self.pool)
        self.memories = Memories(self.pool)
        self.checks = safety.Checks(scope, self.coordinator)
        self._ages: dict[int, int] = {}
        self._late_members: dict[int, str] = {}
        self._outcomes: dict[tuple[int, str, int], tuple[Request, Effect]] = {}
        self._members = range(1, scope.members + 1)
        self.nothing = self.pool.add(None, (), ())

    def initial(self) -> Ids:
        """Nobody has started yet."""
        empty = self.pool.add((), (), ())
        if self.scope.created:
            settings = self.scope.group
            values = tuple((stored, str(getattr(settings, name))) for name, stored in STORED_NAMES.items())
            create = Request(Header("-", 0), Configure(create=True, values=values))
            empty = self.coordinator.execute(empty, "redis-1", create).after
        processes = [self.processes.add(Slot(slot)) for slot in self.scope.slots]
        memory = self.memories.add(PathMemory.of(self.scope))
        return self.pool.normalise((empty, *processes, memory, self.nothing))

    def slots(self, state: Sequence[int]) -> list[tuple[int, Slot]]:
        """The processes and their positions in a state."""
        look = self.processes.look
        return [(at, look(state[at])) for at in self._members]

    # -- what can happen -----------------------------------------------------------------------------------------------

    def actions(self, state: Ids) -> Iterator[Action]:
        """Yields everything that can happen in a state."""
        memory = self.memories.look(state[MEMORY])
        is_busy = any(it.is_calling and it.status == "up" for _, it in self.slots(state))
        for at, process in self.slots(state):
            if process.status == "up" and process.is_calling:
                yield from self._of_calling(state, memory, at)
            elif process.status == "up" and (self.scope.is_concurrent or not is_busy):
                yield from self._of_quiet(state, memory, at, process)
            else:
                yield from self._of_others(memory, at, process)
        if not is_busy or self.scope.is_concurrent:
            yield from self._of_redis(state, memory)
            yield from self._of_witnesses(state, memory)
        if not is_busy:
            yield ("tick",)

    def _of_others(self, memory: PathMemory, at: int, process: Slot) -> Iterator[Action]:
        if process.status == "paused":
            yield ("resume", at)
        elif process.status == "absent":
            yield ("start", at)
        elif process.status in ("dead", "left") and memory.allows("restart"):
            yield ("restart", at)

    def _of_redis(self, state: Ids, memory: PathMemory) -> Iterator[Action]:
        if state[LATE] != self.nothing:
            yield ("arrive",)
        if memory.allows("flush") and self.pool.parts[state[STORE]].skeleton:
            yield ("empty",)
            yield ("replace",)

    def _of_witnesses(self, state: Ids, memory: PathMemory) -> Iterator[Action]:
        """Whose process is dead, or has been replaced, may be seen to be dead at any time until its session ends."""
        for at, process in self.slots(state) if memory.allows("seen") else ():
            living = f"{process.slot}{process.life}." if process.status in ("up", "paused") else ""
            for member in sorted(self.checks.facts(state[STORE]).records.members):
                is_another = not (living and member.startswith(living))
                if member[0] == process.slot and is_another and self._see_dead(state, memory, member) is not None:
                    yield ("seen", at, member)

    def _see_dead(self, state: Sequence[int], memory: PathMemory, member: str) -> tuple[Request, Effect] | None:
        return self.coordinator.see_dead(state[STORE], memory.identity, member)

    def _of_calling(self, state: Ids, memory: PathMemory, at: int) -> Iterator[Action]:
        yield ("answer", at)
        for what in ("lost", "reply", "late", "crash"):
            if memory.allows(what) and (what != "late" or state[LATE] == self.nothing):
                yield (what, at)
        if memory.allows("die"):
            for write in range(1, self._outcome(state, at)[1].writes + 1):
                yield ("die", at, write)

    def _of_quiet(self, state: Ids, memory: PathMemory, at: int, process: Slot) -> Iterator[Action]:
        if self.has_news(state[STORE], process):
            yield ("wake", at)
        if process.is_cut:
            yield ("heal", at)
        for what in ("crash", "pause", "cut", "leave", "relist"):
            if memory.allows(what) and not (what == "cut" and process.is_cut):
                yield (what, at)
        yield from self.of_work(at, process)
        yield from self._of_users(memory, at, process)

    def of_work(self, at: int, process: Slot) -> Iterator[Action]:
        """Yields the drains that may finish."""
        for name, held in process.tenures.items():
            if held.state in (HoldingState.DRAINING, HoldingState.CLOSING):
                yield ("finish", at, name)

    def _of_users(self, memory: PathMemory, at: int, process: Slot) -> Iterator[Action]:
        for held in process.tenures.values():
            if held.state is HoldingState.DRAINING and memory.allows("begin"):
                yield ("begin", at, held.resource)
            if held.state is HoldingState.DRAINING and memory.allows("short"):
                yield ("short", at, held.resource)
            if held.working and memory.allows("commit"):
                yield ("commit", at, held.resource)

    def has_news(self, store: int, process: Slot) -> bool:
        """Whether a hint may be on its way: something was published that the member has not heard."""
        session = process.session
        if session is None or process.is_cut or session.line.outstanding is not None:
            return False
        return self.checks.facts(store).is_told(session.member, session.line._cursor)  # noqa: SLF001

    # -- effects -------------------------------------------------------------------------------------------------------

    def successors(self, state: Ids) -> Iterator[Successor]:
        """Yields every transition from a state."""
        for action in self.actions(state):
            yield self.take(state, action)

    def take(self, state: Ids, action: Action) -> Successor:
        after = list(state)
        what = action[0]
        if what == "tick":
            wrong = self._tick(after)
        elif what in ("answer", "reply", "arrive"):
            wrong = self._execute(after, action)
        elif what == "die":
            wrong = self._die(after, *action[1:])
        elif what == "seen":
            wrong = self._end_seen(after, action[2])
        elif what in ("empty", "replace"):
            after[STORE] = self.pool.add((), (), ())
            wrong = ""
            after[MEMORY] = self.memories.use(after[MEMORY], "flush", int(what == "replace"))
        else:
            wrong = self._happen(after, what, *action[1:])
        wrong = wrong or self._two_at_once(after)
        return Successor(action, self.pool.normalise(tuple(after)), wrong)

    def _tick(self, after: list[int]) -> str:
        wrong = ""
        for index in (STORE, *range(1, self.scope.members + 1)):
            part = after[index]
            if part not in self._ages:
                aged = self.coordinator.aged(part) if index == STORE else self.processes.aged(part)
                self._ages[part] = aged
            after[index] = self._ages[part]
            if index != STORE and self.processes.look(after[index]).status == "up":
                wrong = wrong or self._apply(
                    after, index, self.processes.step(after[index], ("timer",), ev.TimerFired())
                )
        return wrong

    def _happen(self, after: list[int], what: str, at: int, resource: str = "") -> str:
        memory = self.memories.look(after[MEMORY])
        after[MEMORY] = self.memories.use(after[MEMORY], what)
        if what == "late":
            after[LATE] = self._late(after[at])
        key, event = self._event(what, memory, after[at], resource)
        return self._apply(after, at, self.processes.step(after[at], key, event))

    def _late(self, part: int) -> int:
        encoder = Encoder()
        skeleton = encoder.encode(self.processes.look(part).outstanding)
        return self.pool.add(skeleton, tuple(encoder.numbers), tuple(encoder.kinds))

    def _event(self, what: str, memory: PathMemory, part: int, resource: str) -> tuple[Action, ev.Event | None]:
        if resource:
            return (what, resource), self._of_tenure(what, part, resource)
        if what == "relist":
            names = self.scope.names if memory.list_version % 2 == 0 else self.scope.names[:-1]
            return (what, memory.list_version), ev.ResourcesDeclared(memory.list_version + 1, names)
        if what == "leave":
            return (what,), ev.StopAsked(remain=self.scope.instances)
        return (_STEPS.get(what, what),), ev.Hinted(-1) if what == "wake" else None

    def _of_tenure(self, what: str, part: int, resource: str) -> ev.Event:
        held = self.processes.look(part).tenures[resource]
        if what == "begin":
            return ev.DrainBegun(resource, held.token)
        if what == "finish":
            return ev.Drained(resource, held.token)
        if what == "short":  # a release that has to be refused: as uncommitted, or as regressed
            delivered = 1 if held.committed is None else 0
            return ev.Drained(resource, held.token, delivered, 0, None if delivered else (held.committed or 0) - 1)
        offset = (held.committed or 0) + 1
        ticket = self.scope.names.index(resource) * MOST_OFFSET + offset
        return ev.CommitAsked(ticket, resource, held.token, offset)

    def _execute(self, after: list[int], action: Action) -> str:
        caller = LATE if action[0] == "arrive" else action[1]
        request, outcome = self._outcome(after, caller)
        before, after[STORE] = after[STORE], outcome.after
        after[MEMORY], wrong = self.memories.granted(after[MEMORY], outcome)
        wrong = wrong or self.checks.execution(before, request, outcome)
        if action[0] == "arrive":
            after[LATE] = self.nothing
            return wrong
        if action[0] == "reply":
            after[MEMORY] = self.memories.use(after[MEMORY], "reply")
        if not wrong:
            step = self._heard(after[caller], outcome) if action[0] == "answer" else self._unheard(after[caller])
            wrong = self._apply(after, caller, step)
        if action[0] == "answer" and self._late_member(after[LATE]) != request.header.member:
            self._hear(after, caller, request.header.member)
        return wrong

    def _die(self, after: list[int], at: int, write: int) -> str:
        """The script dies between its writes, and its caller gets no answer. The next call has to repair the result."""
        identity, request = self.memories.look(after[MEMORY]).identity, self.processes.look(after[at]).outstanding
        outcome = self.coordinator.execute(after[STORE], identity, request, write)
        after[STORE] = outcome.after
        after[MEMORY], wrong = self.memories.granted(after[MEMORY], outcome)
        after[MEMORY] = self.memories.use(after[MEMORY], "die")
        return wrong or self._apply(after, at, self._unheard(after[at]))

    def _end_seen(self, after: list[int], member: str) -> str:
        found = self._see_dead(after, self.memories.look(after[MEMORY]), member)
        if found is None:
            raise LookupError(f"{member} cannot be seen to be dead")
        request, outcome = found
        before, after[STORE] = after[STORE], outcome.after
        after[MEMORY], wrong = self.memories.granted(after[MEMORY], outcome)
        after[MEMORY] = self.memories.use(after[MEMORY], "seen")
        return wrong or self.checks.execution(before, request, outcome)

    def _outcome(self, state: Sequence[int], caller: int) -> tuple[Request, Effect]:
        """The request of a process, or the late one, and its outcome now."""
        identity = self.memories.look(state[MEMORY]).identity
        key = (state[STORE], identity, state[caller])
        found = self._outcomes.get(key)
        if found is None:
            it = self.pool.parts[state[caller]]
            late = caller == LATE
            request = decode(it.skeleton, iter(it.numbers)) if late else self.processes.look(state[caller]).outstanding
            found = self._outcomes[key] = request, self.coordinator.execute(state[STORE], identity, request)
        return found

    def _heard(self, part: int, outcome: Effect) -> ProcessStep:
        return self.processes.replied(part, outcome.reply, outcome.reply_number)

    def _unheard(self, part: int) -> ProcessStep:
        return self.processes.step(part, ("failed",))

    def _late_member(self, part: int) -> str:
        if part == self.nothing:
            return ""
        if part not in self._late_members:
            it = self.pool.parts[part]
            self._late_members[part] = decode(it.skeleton, iter(it.numbers)).header.member
        return self._late_members[part]

    def _hear(self, after: list[int], at: int, member: str) -> None:
        """What a member has heard leaves the data: it has no request in flight that could ask for it again."""
        session = self.processes.look(after[at]).session
        if session is not None and session.member == member:
            after[STORE] = self.coordinator.heard(after[STORE], member, session.line._cursor)  # noqa: SLF001

    def _apply(self, after: list[int], at: int, step: ProcessStep) -> str:
        after[at] = step.after
        if step.wrong:
            return step.wrong
        after[MEMORY], wrong = self.memories.begun(after[MEMORY], step)
        return wrong

    def _two_at_once(self, after: list[int]) -> str:
        """Promise S2, for all with sound clocks: a frozen process checks its clock before it resumes."""
        worked: frozenset[str] = frozenset()
        for at in self._members:
            mine = self.processes.working(after[at])
            if not worked.isdisjoint(mine):
                return self._both(after, min(worked & mine))
            worked |= mine
        return ""

    def _both(self, after: list[int], name: str) -> str:
        one, other, *_ = [it.slot for _, it in self.slots(after) if name in it.working()]
        return f"{one} and {other} both work {name}"
