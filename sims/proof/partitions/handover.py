"""One partition, its readers, and everything that can happen to them, with an oracle of order and acks.

Who holds the partition is decided as any coordinator might: it asks the holder for it, grants it to the other member
once the holder has let go, or moves it by force. Each event is a method; what must not be raises Wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import attrs

from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.acks import Flush
from cobalance.rabbitmq.partition.actions import Timer
from cobalance.rabbitmq.partition.backlog import Outcome
from cobalance.rabbitmq.partition.states import PartitionState
from proof.partitions.broker import OneQueue, require
from proof.partitions.reader import IN_USE, LOST, TIMERS, Item, Reader
from proof.partitions.scope import HandoverScope

Event = tuple[Any, ...]
"""A word, and mostly the number of a reader; then what it is about."""

MEMBERS = "ab"

UNHEARD = frozenset({"OpenOk", "ConsumeOk", *range(100)})
"""What a reader that is spent does not hear: the messages, and that its channel is open."""


@attrs.define
class Partition:
    """The queue, those who read it, and what the oracle remembers. The last reader is that of the present holder."""

    queue: OneQueue
    readers: list[Reader]
    committed: int = -1
    """Of a stream: the offset that the coordinator has."""
    begun: set[int] = attrs.Factory(set)
    finished: set[int] = attrs.Factory(set)
    repeatable: set[int] = attrs.Factory(set)
    """Messages that may be begun once more, as their channel was lost, or they were aborted or failed."""

    @classmethod
    def of(cls, scope: HandoverScope, number: int) -> Partition:
        """A partition that was just granted to the first member."""
        messages = len(scope.keys(number))
        queue = OneQueue(scope.prefetch)
        queue.ready.extend(range(messages))
        return cls(queue, [Reader.of(scope, MEMBERS[0], messages)])

    @property
    def holder(self) -> Reader:
        return self.readers[-1]


class Handover:
    """Lets one thing happen to a partition."""

    def __init__(self, scope: HandoverScope, keys: str, partition: Partition) -> None:
        self._scope, self._keys, self._it = scope, keys, partition

    # -- what can happen -----------------------------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        """Yields everything that can happen now; first what keeps the partition going, last what disturbs it."""
        for at, reader in enumerate(self._it.readers):
            yield from self._of_reader(at, reader)
        for at, reader in enumerate(self._it.readers):
            for timer in reader.timers:
                yield "timer", at, timer
        yield from self._disturbances()

    def _of_reader(self, at: int, reader: Reader) -> Iterator[Event]:
        if reader.core.state is PartitionState.IDLE and not reader.stopping:
            yield "start", at
        if reader.arriving:
            yield "arrive", at
        if reader.turn:
            yield "turn", at
        yield from self._of_messages(at, reader)
        yield from self._of_letting_go(at, reader)
        if self._scope.is_stream and not reader.fenced and reader.position > self._it.committed:
            yield "commit", at

    def _of_messages(self, at: int, reader: Reader) -> Iterator[Event]:
        busy = reader.burst or (reader.running and self._in_order)
        if not (reader.core.backlog.is_empty or reader.stopping or busy):
            yield "take", at
        if reader.may_begin():
            yield "begin", at
        for tag in reader.running:
            yield "finish", at, tag
        for tag in reader.held:
            yield "settle", at, tag

    def _of_letting_go(self, at: int, reader: Reader) -> Iterator[Event]:
        if self._may_drain(reader):
            yield "drain", at
        goes_on = reader.kept or reader.again
        if reader.drained and not (reader.released or reader.aborted or goes_on):
            yield "release", at
        if reader.kept and not (reader.running and (reader.stopping or self._in_order)):
            yield "go on", at
        if reader.given_up and reader.held and not (reader.running or reader.aborted or reader.end):
            yield "time out", at
        if reader.fenced and not reader.aborted and not reader.end:
            yield "fenced", at

    @property
    def _in_order(self) -> bool:
        return not self._scope.by_key

    def _may_drain(self, reader: Reader) -> bool:
        busy = self._in_order and (reader.burst or reader.running)
        return reader.asked and not (reader.core.is_spent or reader.stopping or busy)

    def _disturbances(self) -> Iterator[Event]:
        holder, last = self._it.holder, len(self._it.readers) - 1
        if not (holder.asked or holder.kept or holder.end):
            yield "ask", last
        lets_go = holder.released or holder.aborted or holder.fenced or holder.end
        if holder.asked and not lets_go:
            yield "keep", last
        began = holder.core.state is not PartitionState.IDLE
        if began and not (lets_go or holder.given_up or holder.again or (self._in_order and holder.running)):
            yield "give up", last
        if not holder.end:
            yield "force", last
        for at, reader in enumerate(self._it.readers):
            yield from self._disturbances_of(at, reader)

    def _disturbances_of(self, at: int, reader: Reader) -> Iterator[Event]:
        if (reader.served or reader.waits) and not reader.is_cut:
            yield "lose", at
        if "cut" in reader.arriving[1:]:
            yield "reset", at
        if not (reader.aborted or reader.end or reader.fenced or reader.core.state is PartitionState.IDLE):
            yield "abort", at
        if reader.asked and not reader.stopping and not (self._in_order and reader.running):
            yield "cut short", at
        for tag in reader.running if reader.order is not None else ():
            yield "fail", at, tag

    def happen(self, event: Event) -> None:
        """Lets it happen.

        Raises:
            Wrong: a promise is broken.
        """
        what, at, *more = event
        if what == "cut":
            self._cut(at)
        else:
            self._EVENTS[what](self, self._it.readers[at], *more)
        self._settle()
        self._let_go()
        self._check()

    def _cut(self, member: str) -> None:
        """RabbitMQ loses the connection of a member. Its readers hear of it later, each at its own time."""
        for reader in self._it.readers:
            if reader.member == member and not reader.end and "cut" not in reader.arriving:
                self._drop(reader)
                reader.has_lock = False
                reader.arriving.append("cut")

    # -- the broker ----------------------------------------------------------------------------------------------------

    def _arrive(self, reader: Reader) -> None:
        what, core = reader.arriving.pop(0), reader.core
        if isinstance(what, int):
            self._do(reader, core.message(what, 0))
        elif what == "in use":
            reader.has_channel = False
            self._do(reader, core.refused(IN_USE))
        elif what == "lost":
            self._do(reader, core.channel_ended(LOST))
        elif what == "cut":
            self._reset(reader)
        elif what == "no lock":
            self._do(reader, core.lock_refused(IN_USE))
        else:
            heard = {
                "OpenOk": core.opened,
                "ConsumeOk": core.subscribed,
                "lock": core.locked,
                "lock free": core.unlocked,
            }
            self._do(reader, heard[what]() if what in heard else core.channel_ended(None))

    def _reset(self, reader: Reader) -> None:
        """The connection is found dead. What it had brought may not have been read; nothing else comes of it."""
        reader.arriving, reader.timers, reader.turn = [], [], False
        self._do(reader, reader.core.connection_ended(LOST))

    def _lose(self, reader: Reader) -> None:
        self._drop(reader)
        reader.arriving.append("lost")

    def _drop(self, reader: Reader) -> None:
        """What it had may come again: nobody can say which acks have arrived."""
        self._it.repeatable |= self._unsettled()
        reader.is_cut = True
        self._free(reader)

    def _unsettled(self) -> set[int]:
        """The messages that were begun, and that RabbitMQ or the coordinator counts as open."""
        if self._scope.is_stream:
            return {it for it in self._it.begun if it > self._it.committed}
        return self._it.begun - self._it.queue.acked

    def _free(self, reader: Reader) -> None:
        """Its channel is closed at RabbitMQ: what is unacknowledged is back, and the next one is served."""
        if reader.log is not None:
            if reader.log.is_open:
                reader.log.close()
        elif reader.served:
            self._it.queue.close()
        reader.served = reader.waits = False
        if self._scope.guard == "single active" and not any(it.served for it in self._it.readers):
            following = next((it for it in self._it.readers if it.waits), None)
            if following is not None:
                self._serve(following, self._it.queue)

    def _serve(self, reader: Reader, queue: OneQueue) -> None:
        reader.served, reader.waits = True, False
        queue.open()
        self._pump(reader)

    def _pump(self, reader: Reader) -> None:
        """RabbitMQ sends as much as the prefetch allows."""
        queue = reader.log or self._it.queue
        while reader.served and queue.may_deliver:
            _, message = queue.deliver()
            reader.arriving.append(message)

    # -- what makes no difference --------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Has happen at once what changes nothing, whenever it happens: what reaches a reader that is spent, or over."""
        for reader in self._it.readers:
            while reader.core.is_spent and reader.arriving and (reader.end or reader.arriving[0] in UNHEARD):
                before = len(reader.arriving)
                self._arrive(reader)
                require(len(reader.arriving) < before, "what arrives too late is answered")
            while reader.end and (reader.turn or reader.timers):
                if reader.turn:
                    self._turn(reader)
                else:
                    self._timer(reader, reader.timers[0])
                require(not reader.turn or not reader.timers, "what comes after the end has consequences")
        it, past = self._it, self._past
        it.begun, it.repeatable, it.finished = it.begun - past, it.repeatable - past, it.finished - past

    @property
    def _past(self) -> set[int]:
        """Messages that do not come again: what was begun and finished of them need not be remembered."""
        it = self._it
        return set(range(it.committed + 1)) if self._scope.is_stream else it.queue.acked

    # -- the program ---------------------------------------------------------------------------------------------------

    def _start(self, reader: Reader) -> None:
        self._do(reader, reader.core.start())

    def _turn(self, reader: Reader) -> None:
        reader.turn = False
        self._do(reader, reader.core.turn())

    def _timer(self, reader: Reader, timer: Timer) -> None:
        reader.timers.remove(timer)
        self._do(reader, reader.core.fired(timer, 0))

    def _take(self, reader: Reader) -> None:
        messages: list[int] = reader.core.take()
        first = reader.core.acks.delivered - len(messages) + 1
        for tag, message in enumerate(messages, first):
            reader.taken[tag] = message
            if reader.order is None:
                reader.burst.append(tag)
            else:
                reader.order.add(Item(tag, self._keys[message]))

    def _begin(self, reader: Reader) -> None:
        it = self._it
        message = reader.taken[reader.begin()]
        self._check_order(reader, message)
        self._check_alone(reader, message)
        is_doubtful = reader.is_cut or reader.fenced
        again = message in it.begun and message not in it.repeatable and not is_doubtful
        require(not again, f"message {message} is begun again, although its partition was handed over in order")
        it.begun.add(message)
        if is_doubtful:
            it.repeatable.add(message)
        else:
            it.repeatable.discard(message)

    def _check_order(self, reader: Reader, message: int) -> None:
        """Promise M1: nothing older of its key is unfinished. After a seek back a stream is read again from there."""
        older = {it for it in range(message) if self._keys[it] == self._keys[message]}
        passed = older - self._it.finished - self._past
        require(not passed, f"message {message} is begun by {reader.member} before {sorted(passed)}")

    def _check_alone(self, reader: Reader, message: int) -> None:
        """Promise S2. Excused is a holder replaced by force: its handler may go on, and until it hears of that, it may be served."""
        key, is_guarded = self._keys[message], self._scope.guard != "none"
        for other in self._it.readers:
            same = [it for it in other.running if self._keys[other.taken[it]] == key and other.taken[it] != message]
            same += [it for it in other.running if other is not reader and other.taken[it] == message]
            is_hidden = reader.is_cut or not (is_guarded and other.served)
            excused = other.fenced or (reader.fenced and is_hidden)
            require(not same or excused, f"{reader.member} begins message {message} while {other.member} works")
        if is_guarded:
            held = reader.served or reader.is_cut
            require(held, f"message {message} is begun by {reader.member}, whose channel was closed")

    def _finish(self, reader: Reader, tag: int) -> None:
        reader.running.remove(tag)
        message = reader.taken[tag]
        self._it.finished.add(message)
        if reader.order is not None:
            reader.order.finish(self._keys[message])
        if not reader.end:
            reader.held.append(tag)
        if not self._scope.manual or reader.end:
            self._settled(reader, tag)
        self._end_slots(reader)

    def _settled(self, reader: Reader, tag: int) -> None:
        """Of a lost channel, too, though nothing comes of it."""
        reader.held = [it for it in reader.held if it != tag]
        del reader.taken[tag]
        self._do(reader, reader.core.done(tag))

    def _fail(self, reader: Reader, tag: int) -> None:
        """It is tried again, here or by the next holder."""
        reader.running.remove(tag)
        self._it.repeatable.add(reader.taken[tag])
        key = self._keys[reader.taken[tag]]
        if reader.order is not None and not (reader.stopping or reader.end):
            reader.order.put_back(key, [Item(tag, key)])
        elif reader.order is not None:
            reader.order.finish(key)
            self._put_back(reader, tag)
        self._end_slots(reader)

    def _put_back(self, reader: Reader, tag: int) -> None:
        reader.taken.pop(tag)
        self._do(reader, reader.core.settle(tag, Outcome.PUT_BACK))

    def _end_slots(self, reader: Reader) -> None:
        """Once nothing more is begun and no handler runs, the rest is drained."""
        lets_go = reader.asked or reader.given_up
        if lets_go and reader.stopping and not (reader.running or reader.aborted or reader.end):
            self._do(reader, reader.core.drain())

    def _commit(self, reader: Reader) -> None:
        """The coordinator stores what is finished, if it comes from the present holder."""
        position, it = reader.position, self._it
        require(position >= it.committed, f"the committed offset falls from {it.committed} to {position}")
        unfinished = set(range(position + 1)) - it.finished - self._past
        unfinished |= {reader.taken[tag] for tag in reader.held if reader.taken[tag] <= position}
        require(not unfinished, f"offset {position} is committed, but {sorted(unfinished)} are not finished")
        it.committed = position

    # -- the program: letting go ---------------------------------------------------------------------------------------

    def _ask(self, reader: Reader) -> None:
        reader.asked = True
        if reader.core.state is PartitionState.IDLE:
            reader.stopping = True
            self._do(reader, reader.core.release())

    def _drain(self, reader: Reader) -> None:
        self._do(reader, reader.core.drain(finish_buffer=True))

    def _cut_short(self, reader: Reader) -> None:
        """Half of the time to the deadline is over: what was not begun waits here, or, by key, goes back."""
        if reader.burst:
            messages = self._forget_burst(reader)
            self._do(reader, reader.core.drain(finish_buffer=True))
            self._do(reader, reader.core.put_down(messages))
        self._begin_no_more(reader)

    def _begin_no_more(self, reader: Reader) -> None:
        reader.stopping = True
        self._close_order(reader)
        self._end_slots(reader)

    def _close_order(self, reader: Reader) -> None:
        for item in reader.order.clear() if reader.order is not None else ():
            self._put_back(reader, item.tag)

    def _forget_burst(self, reader: Reader) -> list[int]:
        """The messages that were taken, and not begun."""
        burst, reader.burst = reader.burst, []
        return [reader.taken.pop(tag) for tag in burst]

    def _keep(self, reader: Reader) -> None:
        reader.asked, reader.kept = False, not reader.given_up

    def _go_on(self, reader: Reader) -> None:
        """On the same channel if nothing has been given back; on another one otherwise."""
        reader.kept = False
        if reader.core.may_go_on:
            reader.stopping = False
            self._do(reader, reader.core.go_on())
        elif not reader.end:
            reader.again = True
            self._close_unfinished(reader)

    def _give_up(self, reader: Reader) -> None:
        """Nothing more is begun. What was not begun goes back, and what is open is waited for, but not for ever."""
        reader.given_up, reader.kept = True, False
        if reader.burst:
            self._do(reader, reader.core.give_back(len(self._forget_burst(reader))))
        self._begin_no_more(reader)

    def _time_out(self, reader: Reader) -> None:
        reader.aborted = True
        self._close_unfinished(reader)

    def _release(self, reader: Reader) -> None:
        reader.released = True
        self._do(reader, reader.core.release())

    def _abort(self, reader: Reader) -> None:
        """Nothing is waited for; a handler that runs goes on, and its message comes again."""
        reader.aborted = True
        self._close_unfinished(reader)

    def _close_unfinished(self, reader: Reader) -> None:
        unfinished = {reader.taken[tag] for tag in (*reader.running, *reader.held)}
        self._it.repeatable |= self._unsettled() if self._scope.is_stream else unfinished
        reader.stopping = True
        self._forget_burst(reader)
        self._do(reader, reader.core.abort())
        self._close_order(reader)

    def _force(self, reader: Reader) -> None:
        self._it.repeatable |= self._unsettled()
        reader.fenced = True
        self._grant(_other(reader.member), self._it.committed)

    def _grant(self, member: str, after: int) -> None:
        self._it.readers.append(Reader.of(self._scope, member, len(self._keys), after))

    def _let_go(self) -> None:
        """Who holds it next, once its holder's channel is closed and its handlers have returned."""
        holder = self._it.holder
        if holder.end and not holder.running:
            goes_on = holder.end == "lost" or holder.again
            if goes_on and not (holder.asked or holder.aborted or holder.given_up):
                self._grant(holder.member, holder.position)
            else:
                if self._scope.is_stream and not holder.aborted:
                    self._commit(holder)  # with the release
                self._grant(_other(holder.member), self._it.committed)
        self._it.readers = [it for it in self._it.readers if it is self._it.holder or not it.is_over]

    # -- what the core asks for ----------------------------------------------------------------------------------------

    def _do(self, reader: Reader, actions: Sequence[Any]) -> None:
        for action in actions:
            perform = self._ACTIONS.get(type(action))
            if perform is not None:
                perform(self, reader, action)

    def _ask_turn(self, reader: Reader, _: act.Turn) -> None:
        require(not reader.turn, "a turn is asked for twice")
        reader.turn = True

    def _set_timer(self, reader: Reader, action: act.SetTimer) -> None:
        if action.timer in TIMERS:
            require(action.timer not in reader.timers, f"{action.timer} is set twice")
            reader.timers.append(action.timer)

    def _ask_lock(self, reader: Reader, _: act.AskLock) -> None:
        reader.has_lock = not (reader.is_cut or any(it.has_lock for it in self._it.readers))
        reader.arriving.append("lock" if reader.has_lock else "no lock")

    def _release_lock(self, reader: Reader, _: act.ReleaseLock) -> None:
        require(not reader.served, "the lock is released before the channel is closed")
        reader.has_lock = False
        reader.arriving.append("lock free")

    def _open(self, reader: Reader, _: act.OpenChannel) -> None:
        reader.has_channel = True
        reader.arriving.append("OpenOk")

    def _subscribe(self, reader: Reader, _: act.Subscribe) -> None:
        if reader.is_cut:
            return
        is_free = not any(it.served for it in self._it.readers)
        if self._scope.guard == "exclusive" and not is_free:
            reader.arriving.append("in use")
            return
        reader.arriving.append("ConsumeOk")
        reader.waits = True
        if reader.log is not None:
            self._serve(reader, reader.log)
        elif is_free:
            self._serve(reader, self._it.queue)

    def _send(self, reader: Reader, flush: Flush) -> None:
        if reader.is_cut:
            return
        queue = reader.log or self._it.queue
        require(reader.served, f"{flush} is sent by {reader.member}, who has no message")
        before = set(queue.acked)
        queue.take_acks(flush)
        if not self._scope.is_stream:
            held = {reader.taken[tag] for tag in reader.held}
            unfinished = queue.acked - before - (self._it.finished - held)
            require(not unfinished, f"{sorted(unfinished)} are acknowledged, and no handler has finished them")
        self._pump(reader)

    def _close(self, reader: Reader, _: act.CloseChannel) -> None:
        require(reader.has_channel or reader.is_cut, "a channel is closed that is not there")
        reader.has_channel = False
        if not (reader.is_cut or "in use" in reader.arriving):  # RabbitMQ has closed it, too, and answers with that
            self._free(reader)
            reader.arriving.append("CloseOk")

    def _drained(self, reader: Reader, _: act.Drained) -> None:
        require(not reader.drained, "it is drained twice")
        is_owed = reader.running or reader.burst or reader.held
        require(reader.aborted or reader.again or not is_owed, "it is drained while a handler works")
        reader.drained = True

    def _ended(self, reader: Reader, end: act.End) -> None:
        require(not reader.end, "it ends twice")
        require(not (reader.served or reader.has_lock), "it ends, and what was prefetched is not back")
        reader.end = "closed" if end.error is None else "lost"
        reader.stopping = True
        self._forget_burst(reader)
        for tag in reader.held:
            del reader.taken[tag]
        reader.held = []
        if reader.order is not None:
            for item in reader.order.clear():
                del reader.taken[item.tag]

    _EVENTS: ClassVar[dict[str, Callable[..., None]]] = {
        "start": _start,
        "arrive": _arrive,
        "reset": _reset,
        "turn": _turn,
        "timer": _timer,
        "take": _take,
        "begin": _begin,
        "finish": _finish,
        "fail": _fail,
        "settle": _settled,
        "drain": _drain,
        "cut short": _cut_short,
        "release": _release,
        "fenced": _abort,
        "abort": _abort,
        "commit": _commit,
        "ask": _ask,
        "keep": _keep,
        "go on": _go_on,
        "give up": _give_up,
        "time out": _time_out,
        "force": _force,
        "lose": _lose,
    }

    KINDS: ClassVar[tuple[str, ...]] = tuple(_EVENTS)

    _ACTIONS: ClassVar[dict[type, Callable[..., None]]] = {
        act.Turn: _ask_turn,
        act.SetTimer: _set_timer,
        act.AskLock: _ask_lock,
        act.ReleaseLock: _release_lock,
        act.OpenChannel: _open,
        act.Subscribe: _subscribe,
        Flush: _send,
        act.CloseChannel: _close,
        act.Drained: _drained,
        act.End: _ended,
    }

    # -- what is always true -------------------------------------------------------------------------------------------

    def _check(self) -> None:
        for reader in self._it.readers:
            over = reader.end and not reader.core.backlog.is_empty
            require(not over, f"{reader.member} would be handed out messages although its tenure has ended")
        if not self._scope.is_stream:
            known = self._it.queue.acked | set(self._it.queue.unacked.values()) | set(self._it.queue.ready)
            require(known == set(range(len(self._keys))), "a message is lost")
        locks = [it.member for it in self._it.readers if it.has_lock]
        require(len(locks) <= 1, "two have the lock")

    def check_rest(self) -> None:
        """What must be true when nothing can happen any more."""
        it, every = self._it, set(range(len(self._keys)))
        require(it.holder.core.state is PartitionState.CONSUMING, f"at rest its holder is {it.holder.core.state.value}")
        open_ = sorted(every - it.finished - self._past)
        require(not open_, f"at rest {open_} are not finished")
        if self._scope.is_stream:
            require(it.committed == len(every) - 1, f"at rest offset {it.committed} is committed")
        else:
            require(not it.queue.unacked and not it.queue.ready, "at rest something is unacknowledged")


def _other(member: str) -> str:
    return MEMBERS[1 - MEMBERS.index(member)]
