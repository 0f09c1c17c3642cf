"""The agent: starts member processes of the user, and does to them what a replay orders.

It takes orders of one replay at a time, through the group's Redis, and for processes that it has started itself. When
the replay ends or falls silent, it lets go on what is frozen and has as many processes run as at first; what does not
leave is killed. When the agent ends, so do its processes; none stays frozen.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs

from cobalance.errors import ServerError, UsageError
from cobalance.group.group import INSTANCE_ID
from cobalance.threads.gate import Gate
from cobalance_sims.replay.member_process import MemberProcess
from cobalance_sims.replay.posts import BEAT_S, SILENT_S, Post, Posts

TURN_S = 0.05
LONGEST_FREEZE_MS = 3_600_000


class Declined(Exception):
    """An order that is not carried out; the message says why."""


@attrs.frozen(kw_only=True)
class Program:
    """What the agent starts."""

    command: Sequence[str]
    processes: int
    """How many run at first, and after a replay."""
    at_most: int
    """How many a replay may have run at once."""
    instances: str = ""
    """Each gets this and its slot for an instance id; "" for none."""

    def start(self, name: str, slot: int) -> MemberProcess:
        """Starts a process.

        Raises:
            UsageError: the command cannot be started.
        """
        environment = {INSTANCE_ID: f"{self.instances}-{slot}"} if self.instances else {}
        return MemberProcess(name, slot, self.command, environment)


class Agent:
    """The agent of one program.

    Args:
        say: called with a line of text about what it does.
        leave_s: how long processes may take to leave at its end, or that of a replay, before they are killed.
    """

    def __init__(self, posts: Posts, program: Program, say: Callable[[str], object], *, leave_s: float = 60.0) -> None:
        self._posts, self._program, self._say, self._leave_s = posts, program, say, leave_s
        self._processes: dict[str, MemberProcess] = {}
        self._frozen_by: dict[str, int] = {}
        self._untold: deque[tuple[float, str, dict[str, Any]]] = deque()
        self._replay = ""
        self._heard_at = self._beats_at = 0.0
        self._reaches_redis = True
        self._successors = 0
        self._due: dict[str, tuple[int, int | None]] = {}
        """Processes that are started once their slot is empty: its number, and the order's if there is one."""
        self._to_leave_by: dict[str, float] = {}
        """Processes that were leaving when a replay ended: when they are killed, on the monotonic clock."""
        self._taken: set[int] = set()
        """Orders of this replay; one whose sender did not hear that it was posted comes again."""

    def run(self, stop: Gate, hurry: Gate) -> int:
        """Runs until it is asked to stop, or all processes have ended by themselves outside a replay; returns how many
        had.

        Args:
            stop: asks the processes to leave, and ends.
            hurry: does not wait for them.

        Raises:
            UsageError: the program cannot be started.
            ServerError: Redis cannot be reached at the beginning.
        """
        self._posts.write("beat", replay="", processes=[])
        self._say(f"agent {self._posts.sender} starts {self._program.processes} x {self._program.command[0]}")
        failed = 0
        try:
            for slot in range(1, self._program.processes + 1):
                self._start(f"m{slot}", slot)
            while not stop.is_open:
                failed += self._take_a_turn()
                if not (self._processes or self._due or self._replay):
                    break
                stop.wait(TURN_S)
        finally:
            self._close(hurry)
        return failed

    def _take_a_turn(self) -> int:
        self._thaw_due()
        for name, until in self._to_leave_by.items():
            if time.monotonic() > until:
                self._kill(self._processes[name])
        failed = self._notice_ends()
        self._start_due()
        try:
            self._talk()
            self._reaches_redis = True
        except ServerError as error:
            if self._reaches_redis:
                self._say(f"warning: {error} Trying again.")
            self._reaches_redis = False
        if self._replay and time.monotonic() - self._heard_at > SILENT_S:
            self._say(f"replay {self._replay} has fallen silent")
            self._restore()
        return failed

    def _talk(self) -> None:
        while self._untold:
            at, kind, words = self._untold[0]
            self._posts.write(kind, **words, ago_ms=int((time.monotonic() - at) * 1000))
            self._untold.popleft()
        if time.monotonic() >= self._beats_at:
            self._beat()
        for post in self._posts.read():
            self._take(post)

    def _beat(self) -> None:
        processes = [(it.name, it.slot, it.pid, it.state, it.age_ms) for it in self._processes.values()]
        self._posts.write("beat", replay=self._replay, at_most=self._program.at_most, processes=processes)
        self._beats_at = time.monotonic() + BEAT_S

    def _tell(self, kind: str, **words: Any) -> None:
        """Posts it as soon as Redis can be reached."""
        self._untold.append((time.monotonic(), kind, words))

    # -- what a replay says --------------------------------------------------------------------------------------------

    def _take(self, post: Post) -> None:
        if post.kind == "hello":
            self._beats_at = 0.0
        elif post.kind == "begin":
            self._begin(post.sender)
        elif post.kind == "order" and post.text("agent") == self._posts.sender:
            self._obey(post)
        elif post.kind == "end" and post.sender == self._replay:
            self._restore()
        if post.sender == self._replay:
            self._heard_at = time.monotonic()

    def _begin(self, replay: str) -> None:
        if self._replay not in {"", replay}:
            self._tell("refuses", replay=replay, why=f"it is in replay {self._replay}")
            return
        self._replay = replay
        self._taken.clear()
        self._say(f"obeys replay {replay}")
        self._tell("obeys", replay=replay)

    def _obey(self, post: Post) -> None:
        order = post.number("order")
        try:
            if post.sender != self._replay:
                raise Declined(f"it obeys {f'replay {self._replay}' if self._replay else 'no replay'} now")
            if order in self._taken:
                return
            self._taken.add(order)
            if self._posts.now_ms - post.at_ms > SILENT_S * 1000:
                raise Declined("the order is too old")
            process = self._carry_out(post)
        except (Declined, UsageError) as why:
            self._say(f"declines {post.text('verb')} {post.text('name')}: {why}")
            self._tell("declined", replay=post.sender, order=order, why=str(why))
        else:
            if process:
                self._report(order, post.text("verb"), process)

    def _carry_out(self, post: Post) -> MemberProcess | None:
        """None if it has to wait."""
        verb, name = post.text("verb"), post.text("name")
        if verb == "start":
            return self._start_one_more(name, post.number("slot"), post.number("order"))
        if name in self._due and verb in {"stop", "kill"}:
            del self._due[name]
            raise Declined("it had not started yet, and will not: its predecessor is still there")
        process = self._processes.get(name)
        if process is None or process.code is not None:
            raise Declined(f"it has no process {name}")
        if verb == "stop":
            process.leave()
        elif verb == "kill":
            process.kill()
        elif verb == "freeze" and 0 <= post.number("for_ms") <= LONGEST_FREEZE_MS:
            self._frozen_by[name] = post.number("order")
            process.freeze(post.number("for_ms") / 1000)
        else:
            raise Declined("there is no such order")
        return process

    def _start_one_more(self, name: str, slot: int, order: int) -> MemberProcess | None:
        if not name or name in self._processes or not 1 <= slot <= self._program.at_most:
            raise Declined("there is such a process already, or no such slot")
        there = sum(it.state in {"running", "frozen"} for it in self._processes.values())
        if there + len(self._due) >= self._program.at_most:
            raise Declined(f"it may run {self._program.at_most} processes at most (--at-most)")
        if self._is_empty(slot):
            return self._start(name, slot)
        self._due[name] = slot, order
        return None

    def _report(self, order: int, verb: str, process: MemberProcess) -> None:
        self._say(f"{verb} {process.name} (process {process.pid})")
        self._tell("done", replay=self._replay, order=order, verb=verb, name=process.name, pid=process.pid)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _start(self, name: str, slot: int) -> MemberProcess:
        process = self._processes[name] = self._program.start(name, slot)
        return process

    def _is_empty(self, slot: int) -> bool:
        """Whether a process may start there: two cannot have one instance id at a time."""
        return not self._program.instances or all(it.slot != slot for it in self._processes.values())

    def _start_due(self) -> None:
        for name, (slot, order) in list(self._due.items()):
            if self._is_empty(slot):
                del self._due[name]
                process = self._start(name, slot)
                if order is not None:
                    self._report(order, "start", process)

    def _thaw_due(self, *, every: bool = False) -> None:
        for process in self._processes.values():
            if process.thaws_at is not None and (every or time.monotonic() >= process.thaws_at):
                process.thaw()
                self._report(self._frozen_by.pop(process.name, -1), "resume", process)

    def _notice_ends(self) -> int:
        """Returns how many ended though nobody had asked them to, outside a replay."""
        ended = [it for it in self._processes.values() if it.code is not None]
        failed = [it for it in ended if it.is_wanted]
        for process in ended:
            del self._processes[process.name]
            self._to_leave_by.pop(process.name, None)
        for process in failed:
            self._say(f"{process.name} (process {process.pid}) has ended by itself with {process.code}")
            self._tell("ended", name=process.name, pid=process.pid, code=process.code)
        return 0 if self._replay else len(failed)

    def _restore(self) -> None:
        """The replay is over: what is frozen goes on, and each of the first slots has one process again, or will once it
        is empty.
        """
        self._thaw_due(every=True)
        self._due.clear()
        living = [it for it in self._processes.values() if it.state == "running"]
        filled = {it.slot: it for it in living if it.slot <= self._program.processes}
        for process in living:
            if filled.get(process.slot) is not process:
                process.leave()
        until = time.monotonic() + self._leave_s
        for process in self._processes.values():
            if process.state == "leaving":
                self._to_leave_by.setdefault(process.name, until)
        for slot in range(1, self._program.processes + 1):
            if slot not in filled:
                self._successors += 1
                self._due[f"m{slot}.{self._successors}"] = slot, None
        self._start_due()
        self._say(f"replay {self._replay} is over")
        self._tell("restored", replay=self._replay)
        self._replay, self._beats_at = "", 0.0

    def _close(self, hurry: Gate) -> None:
        """Ends all processes; whatever else fails, none stays frozen."""
        self._thaw_due(every=True)
        living = [it for it in self._processes.values() if it.code is None]
        for process in living:
            process.leave()
        until = time.monotonic() + self._leave_s
        while any(it.code is None for it in living) and time.monotonic() < until and not hurry.wait(TURN_S):
            pass
        for process in living:
            if process.code is None:
                self._kill(process)
        with suppress(ServerError):
            self._posts.write("gone")

    def _kill(self, process: MemberProcess) -> None:
        self._say(f"{process.name} (process {process.pid}) does not leave, and is killed")
        process.kill()
