"""Everything that can happen to a tenure at one moment, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cobalance.rabbitmq.partition.states import SPENT, TABLE, PartitionState, Step
from proof.partitions.stage import LOST, Stage

Choice = tuple[str, Callable[[], object]]


def choices(stage: Stage) -> list[Choice]:
    """By the broker, by the program, and what must not happen."""
    return [*_broker(stage), *_program(stage), *_settling(stage), *_illegal(stage)]


def _broker(stage: Stage) -> Iterator[Choice]:
    for what in stage.pending:
        yield what, partial(stage.answer, what)
    for timer in stage.timers:
        yield f"timer {timer.value}", partial(stage.fire, timer)
    if stage.queue.may_deliver:
        yield "message", stage.deliver
        yield "unreadable", stage.deliver_unreadable
    if stage.queue.is_open and "close-ok" not in stage.pending:
        yield "channel lost", stage.lose_channel
        yield "cancelled", lambda: stage.do(stage.core.give_up(LOST))
    if stage.begun and stage.end is None:
        yield "connection lost", stage.lose_connection


def _program(stage: Stage) -> Iterator[Choice]:
    core = stage.core
    if not stage.begun:
        yield "start", stage.start
    yield "take 1", partial(stage.take, 1)
    yield "take all", partial(stage.take, 100)
    yield "pause", core.pause
    yield "resume", lambda: stage.do(core.resume())
    yield "flush", lambda: stage.do(core.flush_soon())
    yield "drain", partial(stage.drain, finish_buffer=False)
    yield "drain what has arrived", partial(stage.drain, finish_buffer=True)
    if core.may_go_on:
        yield "go on", stage.go_on
    yield "release", partial(stage.let_go, core.release)
    yield "abort", partial(stage.let_go, core.abort)


def _settling(stage: Stage) -> Iterator[Choice]:
    for tag in sorted(stage.open):
        yield f"done {tag}", partial(stage.done, tag)
        if not stage.kind.stream:
            yield f"reject {tag}", partial(stage.reject, tag)
        yield f"leave {tag}", partial(stage.leave, tag)
        yield f"reply {tag}", partial(stage.reply, tag)
        yield f"put back {tag}", partial(stage.put_back, tag)
    for tag in sorted(stage.left):
        yield f"gone {tag}", partial(stage.gone, tag)
        yield f"keep {tag}", partial(stage.keep, tag)
        if tag not in stage.replying:
            yield f"stay {tag}", partial(stage.stay, tag)
    if max(stage.taken, default=0) in stage.open:
        yield "give back", stage.give_back
        yield "put down", stage.put_down


def _illegal(stage: Stage) -> Iterator[Choice]:
    """Events that the table does not allow now."""
    core = stage.core
    events: tuple[tuple[Step, str, Callable[[], object]], ...] = (
        (Step.RECEIVE, "message", partial(core.message, 99, 0)),
        (Step.RECEIVE, "unreadable", partial(core.unreadable, LOST, 0)),
        (Step.CONSUME, "consume-ok", core.subscribed),
        (Step.OPENED, "open-ok", core.opened),
        (Step.LOCKED, "lock", core.locked),
        (Step.REFUSE, "lock refused", partial(core.lock_refused, LOST)),
    )
    for step, name, event in events:
        if step not in TABLE[core.state]:
            yield f"illegal {name}", partial(stage.must_refuse, event)
    if not core.may_go_on:
        yield "illegal going on", partial(stage.must_refuse, core.go_on)
    if core.state not in SPENT | {PartitionState.IDLE, PartitionState.WAITING}:
        yield "illegal start", partial(stage.must_refuse, core.start)
