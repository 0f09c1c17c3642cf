"""Tracks which acknowledgements a tenure owes the broker.

Delivery tags count 1, 2, 3 … on a channel with one consumer, so the tracker needs no map: everything up to `delivered`
was handed to the handler, everything up to `settled` is finished without a gap, and what finished ahead of an older one
is kept in a set (`tag_set.py`). Only the gapless prefix is acknowledged, by one frame for all of it: if the process died, the
broker would redeliver from the first unfinished message on, and order would hold.

With `ahead`, messages may wait for a retry while others overtake them, and those that overtake are acknowledged one by
one: only the waiting ones would be redelivered, in order. At the end of a tenure, messages that the user has
acknowledged manually, in any order, are treated the same way; and always what finished behind requests whose replies are
being sent, since their handlers have done their work, and a reply may wait for long.
"""

from collections.abc import Collection

import attrs

from cobalance.rabbitmq.partition.tag_set import TagSet


@attrs.frozen
class Progress:
    """How far a tenure has come, in messages."""

    delivered: int
    """Handed to the handler."""
    committed: int
    """Acknowledged at the broker: the gapless prefix, and what was rejected or acknowledged ahead of it."""


@attrs.frozen
class Flush:
    """The frames to send now: every reject, then one ack for everything up to a tag, then single acks."""

    rejects: tuple[int, ...]
    ack: int | None
    singles: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to send."""
        return self.ack is not None or bool(self.rejects or self.singles)


class AckTracker:
    """Deliveries in order, completions in any order, acks for the gapless prefix (see `ahead`). Not thread-safe."""

    def __init__(self, every: int = 50, *, ahead: bool = False) -> None:
        self.every, self.ahead = every, ahead
        """How many make a flush due; and whether messages that finished ahead of an older one are acknowledged, too."""
        self.delivered = 0
        self.settled = 0
        self.committed = 0
        """How many were acknowledged."""
        self.told = 0
        """How many the broker was told about without a gap."""
        self._ackable = 0
        self._acked = 0
        self._ahead = TagSet()
        self._newly_ahead: list[int] = []  # since the last flush with `ahead`
        self._covered = -1  # everything up to here was settled by `done_up_to`
        self._left_broker = TagSet()  # of those ahead: rejected, or acknowledged one by one
        self._rejects: list[int] = []
        self._given_up: set[int] = set()  # not settled: on their way to the dead letters, or kept
        self._kept: set[int] = set()  # could not be sent there, and will be redelivered
        self._replying: set[int] = set()  # of those given up: their replies are being sent

    def deliver(self, count: int) -> None:
        """The next `count` messages were handed out."""
        self.delivered += count

    def take_back(self, count: int) -> bool:
        """The last `count` messages were not handed out after all. False if any of them is not open any more."""
        last = range(self.delivered - count + 1, self.delivered + 1)
        if not all(self.is_open(tag) for tag in last):
            return False
        self.delivered -= count
        return True

    def give_back(self, count: int) -> None:
        """The last `count` messages will not be worked: those that are still open are redelivered.

        They count as not delivered, down to the last one that was settled, or is on its way to the dead letters.
        """
        before = max(self.delivered - count, self.settled)
        self.delivered = max(before, self._ahead.last, *(self._given_up - self._kept))
        self._kept = {tag for tag in self._kept if tag <= self.delivered}
        for tag in range(before + 1, self.delivered + 1):
            self.put_back(tag)

    def done(self, tag: int) -> bool:
        """The message was processed. Returns whether a flush is due by count."""
        if tag == self.settled + 1 <= self.delivered and not (
            self._ahead or self._given_up
        ):  # in order: keeps the common case cheap
            self.settled = self._ackable = tag
        elif self.is_open(tag) or tag > self._covered:
            self._check(tag)
            self._settle(tag)
        return self._is_due

    def done_up_to(self, tag: int, *, besides: Collection[int] = ()) -> int:
        """Marks everything handed out up to here as processed, besides some; returns how many that settles.

        `done` may still be called for each.
        """
        tags = range(self.settled + 1, min(tag, self.delivered) + 1)
        open_ = [it for it in tags if self.is_open(it) and it not in besides]
        for it in open_:
            self._settle(it)
        self._covered = max([self._covered, *open_])
        return len(open_)

    def reject(self, tag: int) -> bool:
        """Leaves the message to the broker, to be dead-lettered or dropped. Returns whether a flush is due by count."""
        self._check(tag)
        self._rejects.append(tag)
        self._left_broker.add(tag)
        self._settle(tag)
        return self._is_due

    def leave(self, tag: int) -> None:
        """The message is being sent to the dead letters; `gone` or `keep` follows."""
        self._check(tag)
        self._given_up.add(tag)

    def reply(self, tag: int) -> None:
        """The message's reply is being sent; `gone` or `keep` follows."""
        self.leave(tag)
        self._replying.add(tag)

    def gone(self, tag: int) -> bool:
        """The dead letters have the message, or its reply has arrived. Returns whether a flush is due by count."""
        self._reopen(tag)
        return self.done(tag)

    def stay(self, tag: int) -> None:
        """It could not be sent to the dead letters, and is open again."""
        self._reopen(tag)

    def _reopen(self, tag: int) -> None:
        for tags in (self._given_up, self._replying, self._kept):
            tags.discard(tag)

    def put_back(self, tag: int) -> None:
        """Has the message redelivered, unless it was settled or given up."""
        if self.is_open(tag):
            self.leave(tag)
            self.keep(tag)

    def keep(self, tag: int) -> None:
        """The dead letters do not have it: it is redelivered with all behind it, as nothing from here on is acked."""
        self._replying.discard(tag)
        self._kept.add(tag)

    def keep_left(self) -> None:
        """The channel is gone: what is on its way is redelivered, whether it arrives or not."""
        self._kept |= self._given_up

    @property
    def has_kept(self) -> bool:
        """Whether anything is redelivered after the close."""
        return bool(self._kept)

    def is_kept(self, tag: int) -> bool:
        """Whether this message or an older one is redelivered."""
        return any(it <= tag for it in self._kept)

    @property
    def outstanding(self) -> bool:
        """Whether the broker has yet to be told about messages handed out."""
        return self.committed < self.delivered or bool(self._rejects)

    @property
    def idle(self) -> bool:
        """Whether everything handed out is finished, even if the broker does not know yet."""
        return not self.unfinished

    @property
    def unfinished(self) -> int:
        """How many that were handed out are neither settled nor kept."""
        return self.delivered - self.settled - len(self._ahead) - len(self._kept)

    @property
    def progress(self) -> Progress:
        """Messages handed out and acknowledged."""
        return Progress(self.delivered - len(self._kept), self.committed)

    def flush(self) -> Flush:
        """Returns what to send now, and counts it as sent."""
        rejects, self._rejects = tuple(self._rejects), []
        ack = self._ackable if self._ackable > self._acked else None
        singles = self._singles()
        self._acked, self.told, self.committed = self._ackable, self.settled, self.settled + len(self._left_broker)
        return Flush(rejects, ack, singles)

    def _singles(self) -> tuple[int, ...]:
        """What finished ahead and the broker still holds, if that is to be acknowledged, too."""
        self._newly_ahead = [tag for tag in self._newly_ahead if tag > self.settled and tag not in self._left_broker]
        if not self._newly_ahead or not (self.ahead or self._replying):
            return ()
        last = self.delivered if self.ahead else self._last_behind_replies
        singles = tuple(sorted(tag for tag in self._newly_ahead if tag <= last))
        self._newly_ahead = [tag for tag in self._newly_ahead if tag > last]
        for tag in singles:
            self._left_broker.add(tag)
        return singles

    @property
    def _last_behind_replies(self) -> int:
        """The last message before the first one that is neither settled nor a request whose reply is being sent."""
        last = self.settled
        while (end := last + 1 if last + 1 in self._replying else self._ahead.end_of_run(last + 1)) > last:
            last = end
        return last

    @property
    def _finished(self) -> int:
        return self.settled + len(self._ahead if self.ahead else self._left_broker)

    @property
    def _is_due(self) -> bool:
        return self._finished - self.committed >= self.every

    def is_open(self, tag: int) -> bool:
        """Whether the message was handed out and not settled or given up."""
        return self.settled < tag <= self.delivered and tag not in self._ahead and tag not in self._given_up

    def _check(self, tag: int) -> None:
        if not self.is_open(tag):
            raise ValueError(f"delivery {tag} was settled before, or never handed out")

    def _settle(self, tag: int) -> None:
        if tag > self.settled + 1:
            self._ahead.add(tag)
            self._newly_ahead.append(tag)
            return
        before, self.settled = self.settled, self._ahead.pop_run(tag + 1)
        held = self._left_broker.gap_before(self.settled)  # an ack must name a tag that the broker still holds
        if held > before:
            self._ackable = held
        self._left_broker.discard_up_to(self.settled)
