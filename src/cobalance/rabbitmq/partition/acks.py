"""Which acknowledgements one tenure of a partition owes the broker.

Delivery tags count 1, 2, 3 … on a channel with one consumer, so the tracker needs no map of what is out: everything up to
`delivered` was handed to the handler, everything up to `settled` is finished without a gap, and the few that finished ahead of an
older one wait in a set. Only the gapless prefix is acknowledged, by one frame for all of it: were the process to die, the broker
would redeliver from the first unfinished message on, and order would hold.

Where messages may wait for another try while others overtake them (`ahead`), those are acknowledged one by one: only what waits would come
again, in its order. So are, at the end of a tenure, those that the user has acknowledged himself, in whatever order.
"""

import attrs


@attrs.frozen
class Progress:
    """How far one tenure came."""

    delivered: int
    """Messages handed to the handler."""
    committed: int
    """Messages of the gapless prefix, or ahead of it where that is acknowledged, that the broker was told about."""


@attrs.frozen
class Flush:
    """The frames to send now: first every reject, then acks one by one, then one ack for everything up to a tag."""

    rejects: tuple[int, ...]
    ack: int | None
    singles: tuple[int, ...] = ()


class AckTracker:
    """Deliveries in order, completions in any order, acknowledgements for the gapless prefix only, unless `ahead`. Pure; not thread-safe."""

    def __init__(self, every: int = 50, *, ahead: bool = False) -> None:
        self.every, self.ahead = every, ahead
        """How many make a flush due; and whether what finished ahead of an older message is acknowledged, too."""
        self.delivered = 0
        self.settled = 0
        self._committed = 0
        self._ackable = 0
        self._acked = 0
        self._ahead: set[int] = set()
        self._covered = -1  # Up to here, all is settled by `done_up_to`.
        self._rejected: set[int] = set()  # Of those ahead: the broker does not hold them any more.
        self._rejects: list[int] = []
        self._given_up: set[int] = set()  # Not settled: on their way to the dead letters, or kept.
        self._kept: set[int] = set()  # They could not be sent there, and come again.

    def deliver(self, count: int) -> None:
        """The next `count` messages were handed out."""
        self.delivered += count

    def give_back(self, count: int) -> None:
        """The last `count` messages handed out were not begun: they count as not delivered, unless `done_up_to` said otherwise."""
        least = max(self._ahead, default=self.settled)
        if self.delivered - count < least and least > self._covered:
            raise ValueError("only what was handed out last, and not settled, can be given back")
        self.delivered = max(self.delivered - count, least)
        self._kept = {tag for tag in self._kept if tag <= self.delivered}

    def done(self, tag: int) -> bool:
        """The message was processed. True when a flush is due by count."""
        if tag == self.settled + 1 <= self.delivered and not (
            self._ahead or self._given_up
        ):  # In order: the common case stays cheap.
            self.settled = self._ackable = tag
        elif tag > self._covered:
            self._check(tag)
            self._settle(tag)
        return self._is_due

    def done_up_to(self, tag: int) -> int:
        """Everything handed out up to here was processed, and may still be said to be done, one by one. How many that settles."""
        open_ = [it for it in range(self.settled + 1, min(tag, self.delivered) + 1) if it not in self._ahead]
        for it in open_:
            self._settle(it)
        self._covered = max([self._covered, *open_])
        return len(open_)

    def reject(self, tag: int) -> bool:
        """The message is left to the broker, to be dead-lettered or dropped. True when a flush is due by count."""
        self._check(tag)
        self._rejects.append(tag)
        self._rejected.add(tag)
        self._settle(tag)
        return self._is_due

    def leave(self, tag: int) -> None:
        """The message is being sent to the dead letters, until `gone` or `keep`."""
        self._check(tag)
        self._given_up.add(tag)

    def gone(self, tag: int) -> bool:
        """It is there. True when a flush is due by count."""
        self._given_up.discard(tag)
        return self.done(tag)

    def keep(self, tag: int) -> None:
        """It is not: it comes again, and so does what is behind it, since nothing from here on is acknowledged."""
        self._kept.add(tag)

    @property
    def outstanding(self) -> bool:
        """Something was handed out that the broker has not heard the end of."""
        return self._committed < self.delivered or bool(self._rejects)

    @property
    def idle(self) -> bool:
        """Everything handed out is finished (the broker may not know it yet)."""
        return self.delivered - self.settled == len(self._ahead) + len(self._kept)

    @property
    def progress(self) -> Progress:
        """What was handed out, and what the broker was told."""
        return Progress(self.delivered - len(self._kept), self._committed)

    def flush(self) -> Flush:
        """What to send now; it counts as sent."""
        rejects, self._rejects = tuple(self._rejects), []
        ack = self._ackable if self._ackable > self._acked else None
        singles = tuple(sorted(self._ahead - self._rejected)) if self.ahead else ()
        self._rejected.update(singles)
        self._acked, self._committed = self._ackable, self._finished
        return Flush(rejects, ack, singles)

    @property
    def _finished(self) -> int:
        return self.settled + (len(self._ahead) if self.ahead else 0)

    @property
    def _is_due(self) -> bool:
        return self._finished - self._committed >= self.every

    def is_open(self, tag: int) -> bool:
        """The message was handed out, and nothing was said of its end."""
        return self.settled < tag <= self.delivered and tag not in self._ahead and tag not in self._given_up

    def _check(self, tag: int) -> None:
        if not self.is_open(tag):
            raise ValueError(f"delivery {tag} was settled before, or never handed out")

    def _settle(self, tag: int) -> None:
        self._ahead.add(tag)
        while self.settled + 1 in self._ahead:
            self.settled += 1
            self._ahead.remove(self.settled)
            self._advance(self.settled)

    def _advance(self, tag: int) -> None:
        # An ack must name a tag that the broker still holds; a rejected one is gone, so the ack stays at the one before it.
        if tag in self._rejected:
            self._rejected.remove(tag)
        else:
            self._ackable = tag
