"""The rules of one partition during one tenure, without I/O: ``event(…, now) → actions``.

Each method is one event, and returns what to do about it, in order. The theory is in `states.py`. An event that the
table does not allow raises IllegalTransition and changes nothing. What *the broker* does, and the timers, come in on
the one thread that talks to it, which carries the actions out before the next event. What *the program* does may come
in on any thread, so its events return only actions that are safe there: `Turn` has the other thread call `turn`.

What differs for streams is data: a gate, which judges what arrives, and whether there is a lock to hold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from cobalance.errors import CobalanceError, UsageError
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.acks import AckTracker
from cobalance.rabbitmq.partition.actions import CLOSE_CHANNEL, DRAINED, NOTHING, READY, TURN, Actions, Timer
from cobalance.rabbitmq.partition.backlog import Backlog, Outcome
from cobalance.rabbitmq.partition.opening import Opening
from cobalance.rabbitmq.partition.states import (
    ACKNOWLEDGING,
    LIVE,
    RECEIVING,
    TABLE,
    Lock,
    PartitionState,
    Step,
)

UNSETTLED_MS = 5_000.0
"""After this long it is said that a partition cannot stop before the program settles what it has."""

_CONSUMING = PartitionState.CONSUMING


class PartitionCore(Opening):
    """One partition for one tenure. Not thread-safe."""

    def __init__(
        self,
        name: str,
        *,
        prefetch: int = 100,
        ack_every: int = 50,
        ack_interval_ms: float = 50.0,
        acks_ahead: bool = False,
        acks_ahead_at_close: bool = False,
        locks: bool = False,
        gate: act.Gate | None = None,
    ) -> None:
        super().__init__(name, locks=locks, gate=gate)
        self.passed_over = 0
        """Messages that a gate found processed before."""
        # An ack that waits for more messages than the broker will send would always wait for its timer.
        self.acks = AckTracker(min(ack_every, prefetch), ahead=acks_ahead)
        self.backlog = Backlog(self.acks)
        self._acks_ahead_at_close = acks_ahead_at_close
        self._tick = (act.SetTimer(Timer.TICK, ack_interval_ms),)
        self._ready_and_tick = (*READY, *self._tick)
        self._ticking = self._turn_due = self._flush_due = False
        self.close_wanted = self._release_wanted = self._drained = False
        self._halt_error: CobalanceError | None = None
        self._end: tuple[CobalanceError | None, bool] = (None, False)  # why, and whether the program let go of it

    def may_answer(self, tag: int) -> bool:
        """Not after a release. After a lost channel a handler may still run, but its message is redelivered anyway."""
        let_go = self.state is PartitionState.ENDED and self._end[0] is None
        return self.acks.is_open(tag) and not let_go

    # -- the program: messages (any thread) --------------------------------------------------------------------------

    def take(self, most: int = 1_000_000) -> list[Any]:
        """The next messages, oldest first. After an empty result, `Ready` follows when there is something."""
        return self.backlog.take(most)

    def done(self, tag: int) -> Actions:
        """The message was processed."""
        return self._settled(due=self.acks.done(tag))

    def settle(self, tag: int, outcome: Outcome) -> Actions:
        """Something else became of the message."""
        if outcome is Outcome.REJECTED and self._gate is not None:
            raise UsageError(
                f"{self.name!r} is a stream, which cannot dead-letter messages: store it elsewhere, then acknowledge it"
            )
        due = self.backlog.settle(tag, outcome)
        if self.state is PartitionState.ENDED or self.state is PartitionState.UNLOCKING:
            self.acks.keep_left()
        return self._settled(due=due)

    def done_up_to(self, tag: int, besides: Collection[int]) -> tuple[int, Actions]:
        """All messages handed out up to this one were processed, besides some; returns how many that settles."""
        count = self.acks.done_up_to(tag, besides=besides)
        return count, (*self.flush_soon(), *self._settled(due=False))

    def put_down(self, messages: Sequence[Any]) -> Actions:
        """The last messages taken were not begun: they wait for it to go on. If it cannot, they are given back."""
        if not (self._is_finishing and self.backlog.take_back(messages)):
            return self.give_back(len(messages))
        self.backlog.hold(everything=True)
        return self._report_drained()

    def give_back(self, count: int) -> Actions:
        """The last messages taken will not be worked: the close returns those that are open to the queue."""
        self._step(Step.DRAIN)
        self.backlog.clear()
        self.acks.give_back(count)
        return self._report_drained()

    def flush_soon(self) -> Actions:
        """The acks that are due are wanted, without waiting for more."""
        self._flush_due = True
        return self._take_turn()

    def _settled(self, *, due: bool) -> Actions:
        """`due`: so many are finished that acks are."""
        if self.state is _CONSUMING or self.state is PartitionState.PROVING:
            return self.flush_soon() if due and not self._flush_due else NOTHING
        if self.state is PartitionState.HALTING:
            return self.flush_soon() if due or self.backlog.is_idle else NOTHING
        return self._report_drained()

    def _take_turn(self) -> Actions:
        due, self._turn_due = self._turn_due, True
        return NOTHING if due else TURN

    # -- the program: the tenure (any thread) ------------------------------------------------------------------------

    def pause(self) -> None:
        """`take` returns nothing until `resume`. The subscription stays; at most the prefetch waits here."""
        self.backlog.paused = True

    def resume(self) -> Actions:
        self.backlog.paused = False
        return READY

    def drain(self, *, finish_buffer: bool = False) -> Actions:
        """Only what was taken, and with `finish_buffer` what has arrived, is still to be finished.

        Acks are held back from here until the close, or until it goes on: each would bring more messages, which would
        only be returned with a higher delivery count.
        """
        first = not (self.is_spent or self._is_finishing)
        self._step(Step.FINISH if Step.FINISH in TABLE[self.state] else Step.DRAIN)
        everything = not finish_buffer or self.backlog.paused
        if self._is_finishing:
            self.backlog.hold(everything=everything)
        elif everything:
            self.backlog.clear()
        return (*(self.flush_soon() if first else NOTHING), *self._report_drained())

    @property
    def may_go_on(self) -> bool:
        """Whether it can consume as before though it was drained: nothing it was sent has been let go of."""
        is_open = self.state is _CONSUMING or (self._is_finishing and not self._drained)
        return is_open and not self.acks.has_kept

    def go_on(self) -> Actions:
        """The partition is kept after all. There may be something to take."""
        if not self.may_go_on:
            raise self._illegal("going on cannot happen")
        if self._is_finishing:
            self._step(Step.GO_ON)
        self.backlog.go_on()
        return self.flush_soon()

    @property
    def _is_finishing(self) -> bool:
        return self.state is PartitionState.FINISHING

    def _finish_no_more(self) -> None:
        """It is not kept."""
        if self._is_finishing:
            self._step(Step.DRAIN)
            self.backlog.drop_held()

    def release(self) -> Actions:
        """Drains, if not begun already, then closes."""
        if self.state is PartitionState.IDLE:
            return self._finish(None)
        self._release_wanted = True
        begun = NOTHING if self.is_spent or self._is_finishing else self.drain()
        self._finish_no_more()
        return (*begun, *(self.abort() if self._drained else NOTHING))

    def abort(self) -> Actions:
        """Closes without waiting: unfinished messages return to the queue, even while a handler processes one."""
        if self.state is PartitionState.IDLE:
            return self._finish(None)
        self._step(Step.DRAIN)
        self.backlog.clear()
        self.close_wanted = True
        return (*self._take_turn(), *self._report_drained())

    def _report_drained(self) -> Actions:
        if self._drained or not (self.is_spent or self._is_finishing) or not self.backlog.is_idle:
            return NOTHING
        self._drained = True
        closes = self._release_wanted and self.state is PartitionState.DRAINING
        return (*DRAINED, *self.abort()) if closes else DRAINED

    # -- the broker: messages ----------------------------------------------------------------------------------------

    def message(self, message: Any, now: int) -> Sequence[Any]:
        """A message arrived."""
        if self.state is not _CONSUMING and self._step(Step.RECEIVE) not in RECEIVING:
            return NOTHING
        if self._gate is None:
            return self._admit(message, now)
        verdicts = self._gate.message(message)
        return self._admit(message, now) if verdicts is act.ADMIT else self._carry_out(verdicts, now)

    def unreadable(self, error: CobalanceError, now: int) -> Sequence[Any]:
        """A message arrived that nobody can read."""
        if self._step(Step.RECEIVE) not in RECEIVING:
            return NOTHING
        return self._halt(error) if self._gate is None else self._carry_out(self._gate.unreadable(error), now)

    def answered(self, answer: Any, now: int) -> Sequence[Any]:
        """The answer to a question of the gate's."""
        if not (self.state is _CONSUMING or self._is_finishing) or self._gate is None:
            return NOTHING
        return self._carry_out(self._gate.answered(answer), now)

    def _admit(self, message: Any, now: int) -> Actions:
        is_awaited = self.backlog.admit(message, now)
        if self._ticking or self._is_finishing:
            return READY if is_awaited else NOTHING
        self._ticking = True
        return self._ready_and_tick if is_awaited else self._tick

    def _carry_out(self, verdicts: Sequence[Any], now: int) -> Sequence[Any]:
        actions: list[Any] = []
        for it in verdicts:
            match it:
                case act.Admit(message):
                    actions += self._admit(message, now)
                case act.PassOver():
                    actions += self._pass_over()
                case act.Halt(error):
                    actions += self._halt(error)
                case act.GiveUp(error):
                    actions += self.give_up(error)
                case _:
                    actions.append(it)
        return actions

    def _pass_over(self) -> Actions:
        """These come before all others, so nothing has been handed out yet."""
        self.passed_over += 1
        self.acks.deliver(1)
        self.acks.done(self.acks.delivered)
        return self._flush()  # otherwise it would use up a prefetch of one

    def _halt(self, error: CobalanceError) -> Actions:
        if self._is_finishing:  # whoever comes next meets the same message
            self._finish_no_more()
            return NOTHING
        self._step(Step.HALT)
        self._halt_error = error
        return self._end_halt() if self.backlog.is_idle else (act.SetTimer(Timer.UNSETTLED, UNSETTLED_MS),)

    def _end_halt(self) -> Actions:
        return (*self._flush(), *(self.give_up(self._halt_error) if self._halt_error is not None else NOTHING))

    @property
    def closes_channel(self) -> bool:
        """Whether the next turn does."""
        return self.close_wanted and self._has_channel and self.state is PartitionState.DRAINING

    # -- the broker: acks and timers ---------------------------------------------------------------------------------

    def turn(self) -> Actions:
        """Does what has become due on other threads."""
        self._turn_due = False
        if self.close_wanted and self.state is PartitionState.DRAINING:
            return self._close()
        if self.state is PartitionState.HALTING and self.backlog.is_idle:
            return self._end_halt()
        return (*self._flush(), *self._tick_again()) if self._flush_due else NOTHING

    def _tick_again(self) -> Actions:
        """Ticks have stopped if it was drained, and has gone on."""
        if self._ticking or self.state not in LIVE or self.backlog.is_quiet:
            return NOTHING
        self._ticking = True
        return self._tick

    def fired(self, timer: Timer, now: int) -> Sequence[Any]:
        """A timer has fired; one that is not awaited any more has no effect."""
        if timer is Timer.TICK:
            return self._ticked()
        if timer is Timer.RETRY:
            return self.start() if self.state is PartitionState.WAITING else NOTHING
        if timer is Timer.UNSETTLED:
            return self._unsettled() if self.state is PartitionState.HALTING else NOTHING
        if self._gate is None or not (self.state is _CONSUMING or self._is_finishing):
            return NOTHING
        return self._carry_out(self._gate.fired(timer, quiet=self.backlog.is_quiet), now)

    def _ticked(self) -> Actions:
        """Ticks go on while anything that arrived is unfinished or unacknowledged."""
        self._ticking = self.state in LIVE and not self.backlog.is_quiet
        return (*self._flush(), *self._tick) if self._ticking else NOTHING

    def _flush(self) -> Actions:
        self._flush_due = False
        if not self._has_channel or self.state not in ACKNOWLEDGING:
            return NOTHING
        flush = self.acks.flush()
        return (flush,) if flush else NOTHING

    def _unsettled(self) -> Actions:
        """Where the program acknowledges messages itself, that may be for ever."""
        words = f"stops as soon as {self.acks.delivered - self.acks.settled} older messages are acknowledged"
        return (act.Warn(f"queue {self.name} {words}: {self._halt_error}"),)

    # -- the broker: the end -----------------------------------------------------------------------------------------

    def channel_ended(self, error: CobalanceError | None) -> Actions:
        """The channel is closed; without an error, by us."""
        if not (self._has_channel or self.is_spent):
            raise self._illegal("no channel can end")
        self._has_channel = False
        return NOTHING if self.state is PartitionState.UNLOCKING else self._finish(error)

    def connection_ended(self, error: CobalanceError) -> Actions:
        """The connection is gone, and with it the channel and the lock. Without a channel, no ack is in doubt."""
        is_lost = self._has_channel or not self.is_spent
        self._has_channel, self._lock = False, Lock.NONE
        return self._finish(error if is_lost else None)

    def give_up(self, error: CobalanceError) -> Actions:
        """The broker has cancelled the consumer, or something here has failed."""
        closing = CLOSE_CHANNEL if self._has_channel else NOTHING
        self._has_channel = False
        return (*closing, *self._finish(error))

    def last_acks(self) -> Actions:
        """What the next turn sends before it closes the channel."""
        self.acks.ahead = self.acks.ahead or self._acks_ahead_at_close
        return self._flush()

    def _close(self) -> Actions:
        if not self._has_channel:
            return self._finish(None)
        last = self.last_acks()
        self._step(Step.CLOSE)
        return (*last, *CLOSE_CHANNEL)

    def _finish(self, error: CobalanceError | None) -> Actions:
        """Ends once the lock is free, since the next holder may come as soon as this tenure has ended."""
        if self.state is PartitionState.ENDED:
            return NOTHING
        if self.state is not PartitionState.UNLOCKING:
            self._end = error, error is None or self.state is PartitionState.CLOSING
            self.backlog.clear()
            self.acks.keep_left()
        if self._lock is not Lock.NONE:
            return (*self._unlock(), *self._report_drained())
        self._step(Step.END)
        return (*self._report_drained(), act.End(self._end[0], self.acks.progress, self._end[1]))
