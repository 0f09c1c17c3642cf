"""One tenure of one partition, to which anything may happen: each event with what it may lead to.

The stage carries out what the core says, and checks it against an oracle: what arrived, what was taken, and what became
of it. What has been asked for (a turn, a timer, an answer) stays pending until somebody chooses that it happens, so any
order of events is a sequence of choices (`choices.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs

from cobalance.errors import ChannelLost, IllegalTransition, MessageUnreadable
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.acks import Flush
from cobalance.rabbitmq.partition.actions import Timer
from cobalance.rabbitmq.partition.backlog import Outcome
from cobalance.rabbitmq.partition.core import PartitionCore
from cobalance.rabbitmq.partition.states import LIVE, RECEIVING, PartitionState
from cobalance.rabbitmq.streams.continuity import Continuity
from proof.partitions.broker import OneQueue, require

LOST, UNREADABLE = ChannelLost("lost"), MessageUnreadable("headers")
MESSAGES = 12

LOCK_ANSWERS = ("lock", "lock refused", "lock failed")


@attrs.frozen(kw_only=True)
class Kind:
    """What sort of partition it is, and how its acks are sent."""

    prefetch: int = 4
    ack_every: int = 2
    ahead: bool = False
    ahead_at_close: bool = False
    locks: bool = False
    stream: bool = False


KINDS = (
    Kind(),
    Kind(prefetch=1),
    Kind(prefetch=12, ack_every=50),
    Kind(ahead=True),
    Kind(ahead_at_close=True),
    Kind(stream=True),
    Kind(stream=True, locks=True, prefetch=2),
)


class Stage:
    """A core, a queue, what has been asked for, and the oracle."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.now = kind, 0
        self.queue = OneQueue(kind.prefetch, kind.stream)
        self.queue.ready.extend(range(MESSAGES))
        gate = Continuity("q", 0, int) if kind.stream else None
        self.core = PartitionCore(
            "q",
            prefetch=kind.prefetch,
            ack_every=kind.ack_every,
            acks_ahead=kind.ahead,
            acks_ahead_at_close=kind.ahead_at_close,
            locks=kind.locks,
            gate=gate,
        )
        self.log: list[str] = []
        self.pending: list[str] = []  # turns, and answers of the broker
        self.timers: list[Timer] = []
        self.has_lock = self.turns = False
        # The oracle
        self.arrived: list[int] = []  # those to be handed out
        self.taken: dict[int, int] = {}  # tag → message
        self.open: set[int] = set()  # tags taken and not settled
        self.left: set[int] = set()  # tags on their way to the dead letters, or whose replies are
        self.replying: set[int] = set()  # of those left: the latter
        self.kept: set[int] = set()
        self.finished: set[int] = set()
        self.rejects: set[int] = set()
        self.awaits = False  # the last take was empty
        self.frozen_at: int | None = None  # what was to be handed out when it was drained
        self.reported_drained = self.begun = self.wants_end = False
        self.settled_at_close: set[int] = set()
        self.end: act.End | None = None

    # -- the broker --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.begun = True
        self.do(self.core.start())

    def answer(self, what: str) -> None:
        self.pending.remove(what)
        core = self.core
        if what == "turn":
            self.do(core.turn())
        elif what == "open-ok":
            self.queue.open()
            self.do(core.opened())
        elif what == "consume-ok":
            self._forget("in use")
            self.do(core.subscribed())
        elif what == "in use":
            self._forget("consume-ok")
            self.queue.close()
            self.do(core.refused(LOST))
        elif what == "close-ok":
            self._forget("consume-ok", "in use", "open-ok")
            if self.queue.is_open:
                self.queue.close()
            self.do(core.channel_ended(None))
        else:
            self._answer_lock(what)

    def _answer_lock(self, what: str) -> None:
        self._forget(*LOCK_ANSWERS)
        self.has_lock = what == "lock"
        if what == "lock":
            self.do(self.core.locked())
        elif what == "lock refused":
            self.do(self.core.lock_refused(LOST))
        elif what == "lock failed":
            self.do(self.core.lock_failed(LOST))
        else:
            self.do(self.core.unlocked())

    def _forget(self, *answers: str) -> None:
        self.pending = [it for it in self.pending if it not in answers]

    def fire(self, timer: Timer) -> None:
        self.timers.remove(timer)
        is_needed = self.core.state in LIVE and not self.core.backlog.is_quiet
        self.do(self.core.fired(timer, self.now))
        require(timer is not Timer.TICK or is_needed == (timer in self.timers), "ticks go on as they should not")
        waits = timer is Timer.TICK and self.core.state in LIVE and self.queue.is_open and self._unacknowledged()[1]
        require(not waits, "a tick leaves acks behind that nothing holds up")

    def deliver(self) -> None:
        _, message = self.queue.deliver()
        self._forget("in use")
        self.now += 1
        is_new = not (self.kind.stream and message == 0)
        if self.core.state in RECEIVING and is_new:
            self.arrived.append(message)
        ready = self.awaits and self.core.state in (PartitionState.PROVING, PartitionState.CONSUMING) and is_new
        did = self.core.message(message, self.now)
        require((act.Ready() in did) == ready, f"who came in vain is {'not ' if ready else ''}told of a message")
        self.awaits = self.awaits and not ready
        self.do(did)

    def deliver_unreadable(self) -> None:
        self.queue.deliver()
        self._forget("in use")
        self.do(self.core.unreadable(UNREADABLE, self.now))

    def lose_channel(self) -> None:
        self.queue.close()
        self._forget("consume-ok", "in use")
        self.do(self.core.channel_ended(LOST))

    def lose_connection(self) -> None:
        if self.queue.is_open:
            self.queue.close()
        self.has_lock, self.timers = False, []
        self._forget("consume-ok", "in use", "open-ok", "close-ok", "unlock", *LOCK_ANSWERS)
        self.do(self.core.connection_ended(LOST))

    # -- the program -------------------------------------------------------------------------------------------------

    def take(self, most: int) -> None:
        before = len(self.taken)
        taken = self.core.take(most)
        allowed = self.arrived if self.frozen_at is None else self.arrived[: self.frozen_at]
        require(taken == allowed[before : before + len(taken)], f"{taken} is handed out of {allowed} after {before}")
        first = 1 + before + self.core.passed_over
        self.taken |= dict(enumerate(taken, first))
        self.open |= set(range(first, first + len(taken)))
        self.awaits = not taken

    def drain(self, *, finish_buffer: bool) -> None:
        was_drained = self.core.is_spent or self._is_finishing
        if not was_drained and finish_buffer and not self.core.backlog.paused:
            self.frozen_at = len(self.arrived)
        elif not finish_buffer or self.core.backlog.paused:
            self._freeze()
        self.do(self.core.drain(finish_buffer=finish_buffer))

    @property
    def _is_finishing(self) -> bool:
        return self.core.state is PartitionState.FINISHING

    def go_on(self) -> None:
        """It is kept after all."""
        lets_go = self.wants_end or self.reported_drained or self.kept
        require(not lets_go, "it goes on, though something was let go of")
        self.frozen_at = None
        self.do(self.core.go_on())

    def _freeze(self) -> None:
        """From here on nothing more is handed out."""
        self.frozen_at = len(self.taken)

    def let_go(self, event: Callable[[], Sequence[Any]]) -> None:
        if event == self.core.abort or not (self.core.is_spent or self._is_finishing):
            self._freeze()
        self.wants_end = True
        self.do(event())

    def done(self, tag: int) -> None:
        self.open.discard(tag)
        self.finished.add(tag)
        self.do(self.core.done(tag))

    def reject(self, tag: int) -> None:
        self.open.discard(tag)
        self.rejects.add(tag)
        self.do(self.core.settle(tag, Outcome.REJECTED))

    def leave(self, tag: int) -> None:
        self.open.discard(tag)
        self.left.add(tag)
        self.do(self.core.settle(tag, Outcome.LEFT))

    def reply(self, tag: int) -> None:
        self.open.discard(tag)
        self.left.add(tag)
        self.replying.add(tag)
        self.do(self.core.settle(tag, Outcome.REPLYING))

    def gone(self, tag: int) -> None:
        self.left.discard(tag)
        self.replying.discard(tag)
        self.finished.add(tag)
        self.do(self.core.settle(tag, Outcome.GONE))

    def keep(self, tag: int) -> None:
        self.left.discard(tag)
        self.replying.discard(tag)
        self.kept.add(tag)
        self.do(self.core.settle(tag, Outcome.KEPT))

    def stay(self, tag: int) -> None:
        self.left.discard(tag)
        self.open.add(tag)
        self.do(self.core.settle(tag, Outcome.OPEN))

    def put_back(self, tag: int) -> None:
        self.open.discard(tag)
        self.kept.add(tag)
        self.do(self.core.settle(tag, Outcome.PUT_BACK))

    def give_back(self) -> None:
        """The last one taken."""
        self._let_last_go(partial(self.core.give_back, 1))

    def _let_last_go(self, event: Callable[[], Sequence[Any]]) -> None:
        self._freeze()
        self.open.discard(max(self.taken))
        self.kept.add(max(self.taken))
        self.do(event())

    def put_down(self) -> None:
        """The last one taken, which waits if it may still go on."""
        last = max(self.taken)
        if not self._is_finishing:
            self._let_last_go(partial(self.core.put_down, [self.taken[last]]))
            return
        message = self.taken.pop(last)
        self.open.discard(last)
        self._freeze()
        self.do(self.core.put_down([message]))

    def must_refuse(self, event: Callable[[], object]) -> None:
        before = state_of(self.core)
        try:
            event()
        except IllegalTransition:
            require(state_of(self.core) == before, "an illegal event changes something")
        else:
            require(False, "an illegal event is accepted")

    # -- what the core asks for --------------------------------------------------------------------------------------

    def do(self, actions: Sequence[Any]) -> None:
        for action in actions:
            perform = self._DO.get(type(action))
            if perform is not None:
                perform(self, action)

    def _ask_turn(self, _: act.Turn) -> None:
        require("turn" not in self.pending, "a turn is asked for twice")
        self.pending.append("turn")

    def _open(self, _: act.OpenChannel) -> None:
        require(not self.queue.is_open and "open-ok" not in self.pending, "a second channel")
        require(self.has_lock or not self.kind.locks, "a channel is opened without the lock")
        self.pending.append("open-ok")

    def _subscribe(self, _: act.Subscribe) -> None:
        self.pending += ["consume-ok", "in use"]

    def _ask_lock(self, _: act.AskLock) -> None:
        self.pending += LOCK_ANSWERS

    def _release_lock(self, _: act.ReleaseLock) -> None:
        closes = not self.queue.is_open or "close-ok" in self.pending
        require(self.has_lock and closes, "the lock is released before the channel is closed")
        self.pending.append("unlock")

    def _set_timer(self, action: act.SetTimer) -> None:
        require(action.timer not in self.timers, f"{action.timer} is set twice")
        self.timers.append(action.timer)

    def _close(self, _: act.CloseChannel) -> None:
        require("close-ok" not in self.pending, "the channel is closed twice")
        require(self.queue.is_open or "open-ok" in self.pending, "a channel is closed that is not there")
        self.pending.append("close-ok")
        self.settled_at_close = self.finished | self.rejects

    def _send(self, flush: Flush) -> None:
        require("close-ok" not in self.pending, "acks are sent after Channel.Close")
        self.queue.take_acks(flush)
        passed = self.core.passed_over
        processed = {self.taken[it] for it in self.finished} | ({0} if passed else set())
        require(self.queue.acked <= processed, f"{self.queue.acked - processed} is acknowledged, but not processed")
        require(self.queue.rejected <= {self.taken[it] for it in self.rejects}, "what was not rejected is")
        if not (self.kind.ahead or self.kind.ahead_at_close):
            gaps = set(range(min(self.taken, default=1), max(flush.singles, default=0))) - self.finished - self.rejects
            require(gaps <= self.replying, "an ack is ahead of a gap")

    @property
    def _unfinished(self) -> set[int]:
        """What was handed out and has to be finished. Once the channel is gone, what was left is redelivered."""
        is_gone = self.core.state in (PartitionState.UNLOCKING, PartitionState.ENDED)
        return self.open if is_gone else self.open | self.left

    def _drained(self, _: act.Drained) -> None:
        require(not self.reported_drained, "it is drained twice")
        require(not self._unfinished, "it is drained before all is finished")
        self.reported_drained = True

    def _ended(self, end: act.End) -> None:
        require(self.end is None, "it ends twice")
        require(not self.queue.is_open or "close-ok" in self.pending, "it ends with its channel open")
        require(not self.has_lock, "it ends with its lock")
        if end.error is UNREADABLE:
            idle = not (self.open | self.left) and len(self.taken) == len(self.arrived)
            require(idle, "it halts before all that came before is finished")
        self._freeze()
        self.end = end
        if end.error is None:
            gone = len(self.queue.acked | self.queue.rejected)
            require(len(self.queue.acked) <= end.progress.committed <= gone, "it miscounts its acks")
            self._check_last_acks()

    def _check_last_acks(self) -> None:
        """Nothing comes again that is finished, but for what is behind a gap."""
        gone = self.queue.acked | self.queue.rejected
        settled = self.settled_at_close
        for tag, message in sorted(self.taken.items()):
            if tag not in settled:
                if not (self.kind.ahead or self.kind.ahead_at_close):
                    return
            else:
                require(message in gone, f"message {message} is finished, and not acknowledged at the end")

    _DO: ClassVar[dict[type, Callable[[Stage, Any], None]]] = {
        act.Turn: _ask_turn,
        act.OpenChannel: _open,
        act.Subscribe: _subscribe,
        Flush: _send,
        act.AskLock: _ask_lock,
        act.ReleaseLock: _release_lock,
        act.SetTimer: _set_timer,
        act.CloseChannel: _close,
        act.Drained: _drained,
        act.End: _ended,
    }

    # -- what is always true -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Nothing is stuck: whatever is due has been asked for."""
        core = self.core
        self._check_acks_on_their_way()
        if core.state is PartitionState.WAITING:
            require(Timer.RETRY in self.timers, "it waits for nothing")
        idle = not (self.open | self.left) and len(self.taken) == len(self.arrived)
        if core.state is PartitionState.HALTING and idle:
            require("turn" in self.pending, "a halted partition does not end")
        if (core.is_spent or self._is_finishing) and not self._unfinished and core.backlog.is_empty:
            require(self.reported_drained, "nobody hears that it is drained")
            if self.wants_end and core.state is PartitionState.DRAINING:
                require("turn" in self.pending, "it is drained, and does not close")

    def _check_acks_on_their_way(self) -> None:
        """The prefix that is finished is acknowledged within a tick, and at once if it is long."""
        if self.core.state not in LIVE or not self.queue.is_open:
            return
        prefix, behind_replies = self._unacknowledged()
        require(not behind_replies or Timer.TICK in self.timers or "turn" in self.pending, "acks wait for ever")
        due = prefix >= min(self.kind.ack_every, self.kind.prefetch) and self.core.state is PartitionState.CONSUMING
        require(not due or "turn" in self.pending or self.kind.stream, "acks that are due wait")

    def _unacknowledged(self) -> tuple[int, int]:
        """How many are finished and not acknowledged: before the first gap, and before the first that is no reply's."""
        prefix = behind_replies = 0
        overtakes = False
        for tag, message in sorted(self.taken.items()):
            if tag not in self.finished | self.replying:
                break
            overtakes = overtakes or tag in self.replying
            behind_replies += tag in self.finished and message not in self.queue.acked
            prefix = prefix if overtakes else behind_replies
        return prefix, behind_replies

    def wind_down(self) -> None:
        """Lets go, has everything answered, and checks that it comes to an end."""
        self.do(self.core.resume())
        self.let_go(self.core.release)
        for _ in range(100):
            self.take(100)
            for tag in sorted(self.open):
                self.done(tag)
            for tag in sorted(self.left):
                self.gone(tag)
            answers = [it for it in self.pending if it not in ("in use", "lock refused", "lock failed")]
            if not answers:
                break
            self.answer(answers[0])
            self.check()
        require(self.end is not None, "it never ends")
        require(not self.queue.unacked, "the queue misses what was not acknowledged")
        gone = self.queue.acked | self.queue.rejected
        require([*self.queue.ready] == [it for it in range(MESSAGES) if it not in gone], "messages are out of order")


def state_of(it: Any) -> Any:
    """All that an object consists of, to be compared."""
    if hasattr(it, "__dict__") and not callable(it):
        return {name: state_of(value) for name, value in vars(it).items()}
    return repr(it)
