"""Proves that a stream goes on where its reader was: the gate that a stream's messages pass, without I/O.

The consumer asks for the message at its position again and drops it. Receiving that message proves that this is the
stream that was read before, and that nothing behind it was lost; otherwise the consumer of a recreated stream would
wait silently until the stream had grown past the old offset, and skip everything before that. If the message does not
come, the stream's leader is asked how much it has: in a cluster, the node that we are connected to may merely lag.

Each segment of a stream begins with an entry of RabbitMQ's own, and each offset that a client of the stream protocol
stores in the stream is another; both take an offset. Retention drops whole segments, and RabbitMQ continues with the
oldest message left. So when offsets jump, nothing is gone while the message before the jump is there. What comes
behind a jump is held until that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import attrs

from cobalance.backoff import Backoff
from cobalance.errors import ChannelLost, CobalanceError, MessageUnreadable, OffsetUnknown, counted
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.actions import ADMIT, NOTHING, PASS_OVER, Timer
from cobalance.rabbitmq.partition.refusals import BACKOFF_MS
from cobalance.rabbitmq.streams.position import BEFORE_FIRST, Position

SUSPICIOUS_MS = 1_000.0
"""The message at the position normally comes within milliseconds; after this long, the stream is examined."""

UNREADABLE = -2
"""In place of the offset that was asked for: that message is there, and nobody can read where."""

DOUBT_MS = 5_000.0
"""Pause between such checks while they prove nothing."""

LOOKS = 6
"""So many that prove nothing end the consumer as a lost channel does: the next one looks which stream it is that it reads."""

PROOFS = 2
"""RabbitMQ's count of a stream is up to five seconds old, so it must show twice that the stream is too short."""

STALL_MS = Backoff(30_000.0, 600_000.0)
"""Pauses between looks at the stream while nothing arrives."""

Verdicts = Sequence[Any]


class Question(Enum):
    """What RabbitMQ is asked. Each is asked at most once at a time."""

    SINCE = "since"  # of a jump: the first message at or behind the offset before it
    START = "start"  # of a jump: the stream's first message
    DOUBT = "doubt"  # nothing came: the stream's first message
    COUNT = "count"  # nothing came: how many messages the leader has
    STALL = "stall"  # nothing comes any more: the stream's first message


@attrs.frozen
class Ask:
    """Ask RabbitMQ: an `Answer` follows."""

    question: Question
    offset: int = 0
    """Of SINCE."""


@attrs.frozen
class Answer:
    """An offset, a count, or nothing; or why there is no answer."""

    question: Question
    found: int | None
    error: CobalanceError | None = None


@attrs.frozen
class MeetGap:
    """Unread messages are gone. Ask whether to go on at the oldest left: a `GapJudged` follows."""

    first: int


@attrs.frozen
class GapJudged:
    """The user's policy."""

    goes_on: bool


@attrs.frozen
class LeftBehind:
    """RabbitMQ sends nothing though there is more: end as with a lost channel."""

    last: int
    first: int


@attrs.define
class Jump:
    """A place where offsets are missing."""

    seen: int
    """The last offset before it."""
    offset: int
    """The first one behind it."""
    proven: bool
    """Whether this is surely the stream that was read before."""
    since: int | None = None
    """The answer to SINCE."""
    question: Ask | None = None
    failures: int = 0


class Undelivered(ChannelLost):
    """RabbitMQ is slow; or there is no message, only offsets that clients of the stream protocol have stored."""

    def __init__(self, stream: str, count: int) -> None:
        super().__init__(
            f"RabbitMQ delivers nothing of stream {stream!r}, though it counts {counted(count, 'message')} in it."
        )
        self.count = count
        """At most the offset of the next message."""


class Continuity:
    """One stream for one tenure. `after` is the offset of the last message processed; `offset_of` is a message's."""

    def __init__(self, stream: str, after: int, offset_of: Callable[[Any], int]) -> None:
        self.position = Position(after)
        self._stream, self._after, self._offset_of = stream, after, offset_of
        self._heard: int | None = None  # the last offset that arrived
        self._guessed = False  # that offset: the message was unreadable
        self._jump: Jump | None = None
        self._held: list[tuple[Any, CobalanceError | None]] = []  # until the jump is judged
        self._first = 0  # when nothing came: the stream's first message
        self._found_short = self._doubts = 0
        self._warned_of_wait = self._warned_of_lag = False
        self._looked_at: int | None = None  # the last offset heard when it was last looked
        self._looks = 0

    # -- events ------------------------------------------------------------------------------------------------------

    def subscribed(self) -> Verdicts:
        """Looks whether the stream is still the same, and later whether it has left us behind."""
        self._looked_at, self._looks = None, 1
        look = act.SetTimer(Timer.LOOK, STALL_MS.first)
        return (look,) if self._after == BEFORE_FIRST else (act.SetTimer(Timer.DOUBT, SUSPICIOUS_MS), look)

    def message(self, message: Any) -> Verdicts:
        if self._jump is not None:
            self._held.append((message, None))
            return NOTHING
        offset = self._offset_of(message)
        proven = self._heard is not None and not self._guessed
        seen, most = (self._heard, 2) if self._heard is not None and proven else (self._after, 1)
        self._heard, self._guessed = offset, False
        if offset <= seen + most:
            return self._accept(offset)
        self._jump = Jump(seen, offset, proven)
        self._held.append((message, None))
        return self._examine(self._jump)

    def unreadable(self, error: CobalanceError) -> Verdicts:
        """The offset is unreadable, too. A consumer that continued behind the message meets it at the position."""
        if self._jump is not None:
            self._held.append((None, error))
            return NOTHING
        if self._heard is not None or self._after == BEFORE_FIRST:
            return (act.Halt(error),)
        self._heard, self._guessed = self._after, True
        return self._accept(self._after)

    def answered(self, answer: Answer | GapJudged) -> Verdicts:
        if isinstance(answer, GapJudged):
            return self._gap_judged(answer)
        found = None if answer.error is not None else answer.found
        match answer.question:
            case Question.DOUBT:
                return self._judge_doubt(found, answer.error)
            case Question.COUNT:
                return self._compare(found or 0)
            case Question.STALL:
                return self._judge_stall(found)
            case Question.SINCE | Question.START:
                return self._judge_jump(answer)

    def fired(self, timer: Timer, *, quiet: bool) -> Verdicts:
        if timer is Timer.LOOK:
            return self._look(quiet=quiet)
        if timer is Timer.DOUBT:
            return (Ask(Question.DOUBT),) if self._heard is None else NOTHING
        if self._jump is None:
            return NOTHING
        if timer is Timer.EXAMINE:
            return self._examine(self._jump)
        return () if self._jump.question is None else (self._jump.question,)

    def _accept(self, offset: int) -> Verdicts:
        self.position.arrived(offset)
        return PASS_OVER if offset <= self._after else ADMIT

    # -- jumps -------------------------------------------------------------------------------------------------------

    def _examine(self, jump: Jump) -> Verdicts:
        return self._ask(jump, Ask(Question.SINCE, max(jump.seen, 0)))

    def _ask(self, jump: Jump, question: Ask) -> Verdicts:
        jump.question, jump.failures = question, 0
        return (question,)

    def _judge_jump(self, answer: Answer) -> Verdicts:
        """A question that failed says nothing of the stream."""
        jump, error = self._jump, answer.error
        if jump is None or jump.question is None or jump.question.question is not answer.question:
            return NOTHING
        if isinstance(error, ChannelLost):
            jump.failures += 1
            return (act.SetTimer(Timer.ASK, BACKOFF_MS.pause(jump.failures)),)
        if error is not None and not isinstance(error, MessageUnreadable):
            return (act.Halt(error),)
        found = answer.found if error is None else UNREADABLE
        return self._judge_since(jump, found) if answer.question is Question.SINCE else self._judge_start(jump, found)

    def _judge_since(self, jump: Jump, since: int | None) -> Verdicts:
        if since == jump.seen:
            return self._go_on(jump)
        if jump.proven and since is not None and since != UNREADABLE:
            return (MeetGap(jump.offset),)
        jump.since = since
        return self._ask(jump, Ask(Question.START))

    def _judge_start(self, jump: Jump, first: int | None) -> Verdicts:
        if first is None:  # RabbitMQ is slow: a message is held
            return (*self._say_it_waits(jump.seen), act.SetTimer(Timer.EXAMINE, DOUBT_MS))
        if first > jump.seen or first == jump.since == UNREADABLE:  # else an unreadable first one is before `seen`
            return (MeetGap(jump.offset),)
        if jump.proven or jump.since == UNREADABLE:
            return self._go_on(jump)
        if jump.since is None:  # RabbitMQ was slow
            return self._examine(jump)
        return (act.Halt(_replaced(self._stream, jump.seen)),)

    def _gap_judged(self, answer: GapJudged) -> Verdicts:
        if self._jump is None:
            return NOTHING
        if answer.goes_on:
            return self._go_on(self._jump)
        return (act.Halt(_gone(self._stream, self._jump.seen, self._jump.offset)),)

    def _go_on(self, jump: Jump) -> Verdicts:
        """What was held is judged in its turn; it may have a jump of its own."""
        (first, *rest), self._held, self._jump = self._held, [], None
        verdicts = [*self._naming(first[0], self._accept(jump.offset))]
        for message, error in rest:
            judged = self.message(message) if error is None else self.unreadable(error)
            verdicts += self._naming(message, judged)
        return verdicts

    def _naming(self, message: Any, verdicts: Verdicts) -> Verdicts:
        return (act.Admit(message),) if verdicts is ADMIT else verdicts

    def _say_it_waits(self, seen: int) -> Verdicts:
        if self._warned_of_wait:
            return NOTHING
        self._warned_of_wait = True
        words = f"RabbitMQ does not say where it begins, so what comes behind offset {seen} waits"
        return (act.Warn(f"stream {self._stream}: {words}"),)

    # -- silence -----------------------------------------------------------------------------------------------------

    def _judge_doubt(self, first: int | None, error: CobalanceError | None) -> Verdicts:
        """Nothing came at the position or behind it: the stream may end before."""
        if self._heard is not None:
            return NOTHING
        if isinstance(error, Undelivered):  # there may be nothing but offsets that clients have stored
            return (act.SetTimer(Timer.DOUBT, DOUBT_MS),)
        # Without a first message it is empty, or RabbitMQ is slow.
        if first is None:
            return self._doubt_on()
        self._first = first
        return (Ask(Question.COUNT),)

    def _compare(self, count: int) -> Verdicts:
        """Compares with the leader's message count, from any node; 0 if the leader cannot be asked or is new."""
        if self._heard is not None:
            return NOTHING
        lags = self._first + count > self._after
        warning = self._say_it_lags() if lags else NOTHING
        self._found_short += bool(count) and not lags
        if self._found_short == PROOFS:
            return (act.GiveUp(_shorter(self._stream, self._after)),)
        return (*warning, *self._doubt_on())

    def _doubt_on(self) -> Verdicts:
        """The consumer may be one of a stream that is gone, and not know."""
        self._doubts += 1
        if self._doubts < LOOKS:
            return (act.SetTimer(Timer.DOUBT, DOUBT_MS),)
        words = f"No message of stream {self._stream!r} at offset {self._after} or behind it has come for long: a new consumer looks whether it is still the one that was read."
        return (act.GiveUp(ChannelLost(words)),)

    def _say_it_lags(self) -> Verdicts:
        if self._warned_of_lag:
            return NOTHING
        self._warned_of_lag = True
        words = f"this RabbitMQ node has not got offset {self._after} yet; waiting"
        return (act.Warn(f"stream {self._stream}: {words}"),)

    def _look(self, *, quiet: bool) -> Verdicts:
        """RabbitMQ may leave a reader at the end of a segment for ever if it has just dropped the next one."""
        if self._looked_at == self._heard and quiet and self._jump is None:
            return (Ask(Question.STALL),)
        self._looked_at, self._looks = self._heard, 1
        return (act.SetTimer(Timer.LOOK, STALL_MS.first),)

    def _judge_stall(self, first: int | None) -> Verdicts:
        last = self._after if self._looked_at is None else self._looked_at
        if first is not None and first > last and self._looked_at == self._heard:
            return (LeftBehind(last, first),)
        self._looks += 1
        return (act.SetTimer(Timer.LOOK, STALL_MS.pause(self._looks)),)


def _gone(stream: str, after: int, first: int) -> OffsetUnknown:
    return OffsetUnknown(
        f"Messages of stream {stream!r} are gone before they were read: {after} was the last one processed, and the oldest left has offset "
        f"{first}. Say where to go on, or use on_unknown_offset='first', which goes on at the oldest."
    )


def _shorter(stream: str, after: int) -> OffsetUnknown:
    why = "it was deleted and created again, or RabbitMQ lost its end, or an offset behind its end was committed"
    return _other(f"ends before offset {after}", stream, why)


def _replaced(stream: str, after: int) -> OffsetUnknown:
    return _other(f"has older messages, but none at offset {after}", stream, "it was deleted and created again")


def _other(what: str, stream: str, why: str) -> OffsetUnknown:
    return OffsetUnknown(
        f"Stream {stream!r} {what}, which was the last one processed: {why}. Committed offsets never fall by themselves: say where to go on"
    )
