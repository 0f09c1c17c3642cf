"""What a stream's reader meets: retention, streams created again, a slow RabbitMQ, and answers that are lost.

The stream is a list of offsets, with holes where RabbitMQ keeps entries of its own. A reader that comes back to it gets
what is left behind its position, in order. Whatever RabbitMQ answers: nothing that is left is skipped unless the user's
policy was asked, nothing comes twice, and what is not the stream that was read is never read on.
"""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from cobalance.errors import ChannelLost
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.actions import Timer
from cobalance.rabbitmq.streams.continuity import Answer, Ask, Continuity, GapJudged, MeetGap, Question
from proof.partitions.broker import BrokenHistory, Wrong, require

LOST = ChannelLost("lost")


@attrs.define
class Log:
    """The messages of one stream."""

    offsets: list[int]
    """In order; a number in between is an entry of RabbitMQ's own."""
    read: set[int]
    """Those that the reader has processed before, in this very stream."""

    def since(self, offset: int) -> int | None:
        return next((it for it in self.offsets if it >= offset), None)


def read_on(seed: int) -> None:
    """Plays one history.

    Raises:
        BrokenHistory: a promise is broken.
    """
    random = Random(seed)
    steps: list[str] = []
    try:
        Reading(random, steps).play()
    except Wrong as wrong:
        raise BrokenHistory(seed, wrong, steps) from wrong
    except Exception as problem:  # the gate itself has failed
        raise BrokenHistory(seed, problem, steps) from problem


class Reading:
    """One reader, which continues after a message that it has processed."""

    def __init__(self, random: Random, steps: list[str]) -> None:
        self._random, self._steps = random, steps
        offsets = _with_holes(random)
        self._after = random.choice(offsets[: len(offsets) // 2])
        self._other = random.random() < 0.2
        if self._other:
            offsets = [it for it in offsets if it != self._after]
        elif random.random() < 0.5:
            offsets = offsets[random.randrange(len(offsets) // 2) :]
        self._log = Log(offsets, set() if self._other else {it for it in offsets if it <= self._after})
        self._gate = Continuity("s", self._after, int)
        self._handed: list[int] = []
        self._gaps: list[int] = []
        self._halted = False
        self._pending: list[Any] = []
        self._steps.append(f"after {self._after}, the stream has {offsets}")

    def play(self) -> None:
        """All messages arrive, in order, between the answers."""
        arriving = [it for it in self._log.offsets if it >= self._after]
        while (arriving or self._pending) and not self._halted:
            if arriving and (not self._pending or self._random.random() < 0.5):
                self._steps.append(f"message {arriving[0]}")
                self._meet(self._gate.message(arriving[0]), arriving.pop(0))
            else:
                self._answer(self._pending.pop(0))
        self._check()

    def _meet(self, verdicts: Any, message: int | None = None) -> None:
        for it in verdicts:
            match it:
                case act.Admit(held):
                    self._hand_out(held if held is not None else message)
                case act.Halt():
                    self._halted = True
                    return
                case MeetGap(first):
                    self._gaps.append(first)
                    self._meet(self._gate.answered(GapJudged(goes_on=True)))
                case Ask() | act.SetTimer(Timer.ASK | Timer.EXAMINE):
                    self._pending.append(it)
                case _:
                    pass

    def _answer(self, what: Ask | act.SetTimer) -> None:
        if isinstance(what, act.SetTimer):
            self._meet(self._gate.fired(what.timer, quiet=False))
            return
        found = self._log.since(what.offset) if what.question is Question.SINCE else self._log.since(0)
        is_lost = self._random.random() < 0.2
        self._steps.append(f"{what} is answered: {'lost' if is_lost else found}")
        answer = Answer(what.question, None, LOST) if is_lost else Answer(what.question, found)
        self._meet(self._gate.answered(answer))

    def _hand_out(self, offset: int | None) -> None:
        require(offset is not None and offset not in self._log.read, f"{offset} is handed out, but was read before")
        require(not self._handed or offset > self._handed[-1], f"{offset} is handed out after {self._handed}")  # type: ignore[operator]
        self._handed.append(offset)  # type: ignore[arg-type]

    def _check(self) -> None:
        behind = [it for it in self._log.offsets if it > self._after]
        if self._other and behind and behind[0] > self._after + 1:
            is_older = self._log.offsets[0] < self._after
            require(self._halted or not is_older, "another stream is read on")
        if not self._halted:
            require(self._handed == behind, f"{self._handed} were handed out of {behind}")
            taken = not self._other and self._after not in self._log.offsets and behind and behind[0] > self._after + 1
            require(not taken or self._gaps, "a gap is not noticed")


def _with_holes(random: Random) -> list[int]:
    offsets, at = [], random.randrange(3)
    for _ in range(random.randrange(6, 20)):
        offsets.append(at)
        at += 1 if random.random() < 0.8 else random.randrange(2, 6)
    return offsets
