"""How many members a group should have: from the throughput measured per member, and from how long messages wait.

What comes in is what got done plus what the lag rose by; both are counted. Only a member that is late to say what it got
done is taken to have done as many as in the rest of the window, and is unknown if it says nothing in all of it. A member's
throughput is the most that it can do where it had work throughout: each of its partitions had lag at both ends of the
interval, and at its beginning it had no less than it got done in it. Messages in flight are lag, too, so a member that is
never short of time may be seen with some at every look; so where members say how much of their time their work takes,
most of the looks within the window have to show that.

Otherwise it is what got done, divided by the share of their time that members say it took them (`occupied_ms`). That
leaves out what they wait for besides their handlers, such as a small prefetch, and what is slower under load. So it is
never more than was measured where they had work throughout, for a day from then on, or until they get more done than
that in a window. Time that takes a process without messages is left out, too: a night of heartbeats says nothing. Where
members say nothing of their time, the best throughput so far, in a window, of those that were there from its beginning
to its end, is what they can do at least.

What is needed is then what comes in, and the lag within `drain_within_ms`, divided by that.

Hysteresis, so that no number goes up and down with every burst: more members only once they would have been needed for
`out_after_ms` without a break, and then as few as that takes; fewer only once they would have done for `in_after_ms`,
and then as many as were needed at any time in it. In between, and until so much is known, the number stays: that which
was wanted last. Those who restart, be it all of them, or have not come yet, or not gone yet, change nothing about it.
Nor do more than were wanted or there, as while a deploy replaces them; until they have stayed for `out_after_ms`, and
count, there is no answer, since they may also have been started by hand. Both times begin again whenever the number of
members changes, so that what a change brings is seen before the next one, and a deploy is no reason for anything. But
no changes put either off for more than five times as long: then it is what was needed in all of that which counts, since
a member may restart again and again for the very reason that it has too much to do. Both begin again, too, when nobody
has looked, or the lag or what got done was not known, for a minute, in which anything may have been needed. What is
unknown for less than that is no break. A clock that was set back by more begins everything again but what members are
known to be able to do.

More are never called for than there are partitions, nor than partitions that have work, which is all that more members
can share. Those that were there at the first look may stay; those that come uncalled count up to the partitions. A
group that has work, and had nobody, gets one member at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, inf
from statistics import median

import attrs

from cobalance.description import GroupDescription
from cobalance.settings import between

LEAST_INTERVAL_MS = 1_000
"""Between two samples, so that a rate means something."""

LONGEST_INTERVAL_MS = 60_000
"""Between two samples, so that what was needed meanwhile is taken as known."""

SAMPLES = 60
"""In a window, at most: each look goes over all of them."""

LEAST_MESSAGES = 10
"""To tell how long they take."""

DAY_MS = 86_400_000

PUT_OFF = 5
"""For how many times as long changes of the number of members put a decision off at most; for a day if that is less."""


@attrs.frozen(kw_only=True)
class ScalingSettings:
    """What is asked of a group's size.

    Raises:
        InvalidSettings: a value is out of range; the message names it.
    """

    least: int = attrs.field(default=1, validator=between(0, 10_000))
    """The fewest members. 0 lets a group without work have none."""
    drain_within_ms: int = attrs.field(default=300_000, validator=between(1_000, DAY_MS))
    """How soon what waits is to be done."""
    out_after_ms: int = attrs.field(default=30_000, validator=between(0, DAY_MS))
    """How long more members must have been needed before there are more."""
    in_after_ms: int = attrs.field(default=600_000, validator=between(0, DAY_MS))
    """How long fewer must have been enough before there are fewer."""
    window_ms: int = attrs.field(default=60_000, validator=between(2_000, SAMPLES * LONGEST_INTERVAL_MS))
    """How long throughput is measured: an hour at most. A sixtieth of it lies between two samples, or a second."""


@attrs.frozen(kw_only=True)
class Desired:
    """The answer, and what it rests on. None means unknown."""

    members: int | None
    """How many there should be. None while that is not known: leave the number as it is."""
    present: int
    """How many are at work, those without a share not counted."""
    needed: int | None
    """How many would be enough at this moment, without hysteresis."""
    partitions: int
    lag: int | None
    waiting_ms: int
    """For how long there has been lag without a break, as far as was looked."""
    in_per_s: float | None
    """Messages that came in."""
    done_per_s: float | None
    """Messages that were acknowledged."""
    per_member_per_s: float | None
    """What one member can do: measured where it had work throughout, else by the share of its time that its work takes;
    or, where that is not known, what it can do at least.
    """
    reason: str


@attrs.frozen
class _Sample:
    at_ms: int
    lag: int | None
    handled: dict[str, int | None]
    """Member at work → how many messages it has acknowledged."""
    occupied: dict[str, int | None]
    """Member at work → for how long that has taken all that it can do, in ms."""
    busy: dict[str, tuple[str, ...]]
    """Member → what it holds, if there is lag in each of them."""
    waiting: dict[str, int]
    """Member → the lag of what it holds."""
    awaited: int
    """How many have gone whose place is kept for their instance id."""


class Scaling:
    """Watches one group's size. Give it each snapshot; not for several threads at once."""

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self._settings = settings or ScalingSettings()
        self._samples: deque[_Sample] = deque()
        self._needs: deque[tuple[int, int]] = deque()
        self._waiting_since: int | None = None
        self._looked_ms: int | None = None
        self._per_member_per_s: float | None = None
        self._done = self._occupied_ms = 0.0
        """Of members that say both; what is older than the window counts half, and so on."""
        self._measured: tuple[int, float] | None = None
        """When members had work throughout for the last time, and what each got done a second; or more, since then."""
        self._presents: deque[tuple[int, int]] = deque()
        self._changed_ms = 0
        """When their number changed for the last time."""
        self._wanted = self._explained = 0
        """The last: how many may be there without being a reason for anything, since some have yet to go."""

    def judge(self, group: GroupDescription) -> Desired:
        """Takes a snapshot in, and says how many members there should be."""
        sample = _sample(group)
        present = len(sample.handled)
        if self._looked_ms is None or abs(sample.at_ms - self._looked_ms) > LONGEST_INTERVAL_MS:
            if self._looked_ms is not None and sample.at_ms < self._looked_ms:
                self._samples.clear()  # the clock was set back
            self._needs.clear()
            self._waiting_since = None
            self._presents.clear()
            self._wanted = self._explained = present + sample.awaited
        self._looked_ms = sample.at_ms
        if not sample.lag:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = sample.at_ms
        self._take(sample)
        done, came = self._rates()
        needed = self._needed(group, sample, came)
        if not self._presents or present != self._presents[-1][1]:
            self._changed_ms = sample.at_ms
        if needed is not None:
            if self._needs and sample.at_ms - self._needs[-1][0] > LONGEST_INTERVAL_MS:
                self._needs.clear()
            self._needs.append((sample.at_ms, needed))
        self._presents.append((sample.at_ms, present))
        self._count_newcomers(sample.at_ms, len(group.resources))
        self._forget(sample.at_ms)
        members, reason = self._settled(sample, needed)
        return Desired(
            members=members,
            present=present,
            needed=needed,
            partitions=len(group.resources),
            lag=sample.lag,
            waiting_ms=0 if self._waiting_since is None else sample.at_ms - self._waiting_since,
            in_per_s=came,
            done_per_s=done,
            per_member_per_s=self._per_member_per_s,
            reason=reason,
        )

    def _take(self, sample: _Sample) -> None:
        before = self._samples[-1] if self._samples else sample
        interval_ms = max(LEAST_INTERVAL_MS, self._settings.window_ms // SAMPLES)
        if before is not sample and sample.at_ms - before.at_ms < interval_ms:
            return
        self._samples.append(sample)
        least, able = _least_rate(self._samples[0], sample), self._able_per_s(before, sample)
        if self._measured is not None:
            self._measured = self._measured[0], max(self._measured[1], least)
        rates = [rate for a, b in pairwise(self._samples) for rate in _saturated_rates(a, b)]
        looks = sum(len(b.handled) for _, b in pairwise(self._samples))
        if rates and (able is None or 2 * len(rates) >= looks):
            self._per_member_per_s = median(rates)
            self._measured = sample.at_ms, self._per_member_per_s
        elif able is not None:
            self._per_member_per_s = max(least, min(able, self._most_per_s(sample.at_ms)))
        elif least:
            self._per_member_per_s = max(self._per_member_per_s or 0.0, least)

    def _most_per_s(self, now_ms: int) -> float:
        """What a member can do as far as that was measured."""
        return self._measured[1] if self._measured is not None and now_ms - self._measured[0] <= DAY_MS else inf

    def _able_per_s(self, before: _Sample, sample: _Sample) -> float | None:
        """What a member could do if its work might take all of its time; None if that is not known."""
        done, occupied_ms = _occupied_between(before, sample)
        kept = 0.5 ** ((sample.at_ms - before.at_ms) / self._settings.window_ms)
        if self._done * kept < LEAST_MESSAGES:
            kept = 1.0
        self._done, self._occupied_ms = self._done * kept + done, self._occupied_ms * kept + occupied_ms
        is_known = self._done >= LEAST_MESSAGES and self._occupied_ms
        return 1_000 * self._done / self._occupied_ms if is_known else None

    def _forget(self, now_ms: int) -> None:
        settings, samples = self._settings, self._samples
        while len(samples) > 2 and now_ms - samples[1].at_ms >= settings.window_ms:
            samples.popleft()
        longer_ms = _put_off(max(settings.in_after_ms, settings.out_after_ms))
        for looks, kept_ms in ((self._needs, longer_ms), (self._presents, settings.out_after_ms)):
            while len(looks) > 1 and now_ms - looks[1][0] >= kept_ms:
                looks.popleft()

    def _count_newcomers(self, now_ms: int, partitions: int) -> None:
        """More than are wanted are wanted, too, once they have stayed: somebody has started them."""
        out_after_ms = self._settings.out_after_ms
        if not self._reaches(self._presents, now_ms, out_after_ms):
            return
        recent = [present for _, present in self._recent(self._presents, now_ms, out_after_ms)]
        if max(recent) <= self._wanted:
            self._explained = self._wanted
        elif min(recent) > max(self._wanted, self._explained):
            self._explained = min(recent)
            self._wanted = max(self._wanted, min(self._explained, partitions))

    def _rates(self) -> tuple[float | None, float | None]:
        """Messages a second that got done, and that came in."""
        samples = self._samples
        took_ms = samples[-1].at_ms - samples[0].at_ms
        done = [_handled_in(samples, member) for member in {name: 0 for it in samples for name in it.handled}]
        counted = [it for it in done if it is not None]
        if not took_ms or len(counted) < len(done):
            return None, None
        rate = 1_000 * sum(counted) / took_ms
        lags = [(it.at_ms, it.lag) for it in samples if it.lag is not None]
        if len(lags) < 2:
            return rate, None
        (since_ms, before), (until_ms, after) = lags[0], lags[-1]
        return rate, max(0.0, rate + 1_000 * (after - before) / (until_ms - since_ms))

    def _needed(self, group: GroupDescription, sample: _Sample, came: float | None) -> int | None:
        settings, present = self._settings, len(sample.handled)
        if sample.lag is None or group.state == "Recovering":
            return None
        if not present and not (self._wanted and came is not None and self._per_member_per_s):
            return max(settings.least, 1 if sample.lag else 0)
        if came is None:
            return None
        wanted = came + 1_000 * sample.lag / settings.drain_within_ms
        if not wanted:
            return settings.least
        if self._per_member_per_s is None:  # nothing has got done yet
            return present
        at_work = sum(bool(it.backlog.lag) for it in group.resources)
        most = min(len(group.resources), max(present, at_work))
        return max(settings.least, min(most, ceil(wanted / self._per_member_per_s)))

    def _settled(self, sample: _Sample, needed: int | None) -> tuple[int | None, str]:
        wanted, settings = self._wanted, self._settings
        if needed is None:
            return None, "the lag, or what members got done, is not known, or not known yet"
        if not (wanted or sample.handled):
            self._wanted = needed
            return needed, "nobody is there" + (", and messages wait" if sample.lag else "")
        present = len(sample.handled)
        needs, for_ms = self._lasting(sample.at_ms, settings.out_after_ms)
        if (more := min(needs, default=wanted)) > wanted:
            self._wanted = more
            return more, f"so many have been needed for {for_ms // 1_000} s"
        needs, for_ms = self._lasting(sample.at_ms, settings.in_after_ms)
        if needs and (fewer := max(needs)) < max(wanted, present):
            self._wanted, self._explained = fewer, max(self._explained, present)
            return fewer, f"no more have been needed for {for_ms // 1_000} s"
        return self._unchanged(present, needed)

    def _lasting(self, now_ms: int, after_ms: int) -> tuple[Sequence[int], int]:
        """What was needed at any time in so long without a change, or in the longest that changes put off; nothing if it is
        not known for so long. And how long that is.
        """
        unchanged = [it for it in self._needs if it[0] >= self._changed_ms]
        for looks, for_ms in ((unchanged, after_ms), (self._needs, _put_off(after_ms))):
            if looks and self._reaches(looks, now_ms, for_ms):
                return [need for _, need in self._recent(looks, now_ms, for_ms)], for_ms
        return (), 0

    def _unchanged(self, present: int, needed: int) -> tuple[int | None, str]:
        wanted = self._wanted
        if present > max(wanted, self._explained):
            return None, f"more have come than the {wanted} that were there or called for; if they stay, they count"
        if present > wanted:
            return wanted, f"{wanted} are enough: the others have yet to go, or have nothing to do"
        if present < wanted:
            return wanted, f"{wanted} were there or called for; that fewer would be enough has to last"
        enough = "so many are enough, and none is too many"
        return wanted, enough if needed == wanted else f"{needed} would be enough now, but that has to last"

    @staticmethod
    def _recent(looks: Iterable[tuple[int, int]], now_ms: int, within_ms: int) -> Sequence[tuple[int, int]]:
        """What was so at any time in it: at its looks, and from the one before on."""
        older = [it for it in looks if now_ms - it[0] >= within_ms]
        return older[-1:] + [it for it in looks if now_ms - it[0] < within_ms]

    @staticmethod
    def _reaches(looks: Sequence[tuple[int, int]], now_ms: int, back_ms: int) -> bool:
        """Whether it has been looked for so long, without a break of which nothing is known."""
        return now_ms - looks[0][0] >= back_ms


def _put_off(after_ms: int) -> int:
    return min(PUT_OFF * after_ms, DAY_MS)


def _sample(group: GroupDescription) -> _Sample:
    lags = [it.backlog.lag for it in group.resources]
    known = [it for it in lags if it is not None]
    waiting = {it.name: it.backlog.lag for it in group.resources if it.backlog.lag}
    at_work = [it for it in group.members if it.state == "active" and it.capacity]
    return _Sample(
        at_ms=group.at_ms,
        lag=sum(known) if lags and len(known) == len(lags) else None,
        handled={it.id: it.handled for it in at_work},
        occupied={it.id: it.occupied_ms for it in at_work},
        busy={it.id: it.resources for it in at_work if it.resources and waiting.keys() >= set(it.resources)},
        waiting={it.id: sum(waiting.get(name, 0) for name in it.resources) for it in at_work},
        awaited=sum(it.state == "graced" and bool(it.capacity) for it in group.members),
    )


def _handled_in(samples: Sequence[_Sample], member: str) -> float | None:
    """What a member got done; None if it is there and does not say. At looks at which it did not answer it is taken to have
    got done as many as in the rest of the time.
    """
    there = [it for it in samples if member in it.handled]
    said = [(it.at_ms, handled) for it in there if (handled := it.handled[member]) is not None]
    is_gone = there[-1] is not samples[-1]
    if len(there) < 2 or (is_gone and len(said) < 2):
        return 0.0
    if len(said) < 2:
        return None
    (since_ms, before), (until_ms, after) = said[0], said[-1]
    there_ms = until_ms - since_ms if is_gone else there[-1].at_ms - there[0].at_ms
    return max(0, after - before) * there_ms / (until_ms - since_ms)


def _least_rate(a: _Sample, b: _Sample) -> float:
    """Messages a second that a member can do at least: of those that are there, and say it, at both ends; 0 if there are none."""
    both = [
        max(0, after - before)
        for it, after in b.handled.items()
        if after is not None and (before := a.handled.get(it)) is not None
    ]
    return 1_000 * sum(both) / (b.at_ms - a.at_ms) / len(both) if any(both) else 0.0


def _occupied_between(a: _Sample, b: _Sample) -> tuple[int, int]:
    """What got done by members that say how long that takes, and for how long (ms) it took all that they can do. What takes
    an idle process its time is not for messages.
    """
    both = [it for it in b.handled if it in a.handled and b.occupied[it] is not None and not _is_idle(it, a, b)]
    done, occupied_ms = (
        sum(max(0, (after[it] or 0) - (before[it] or 0)) for it in both if before[it] is not None)
        for before, after in ((a.handled, b.handled), (a.occupied, b.occupied))
    )
    return done, occupied_ms


def _is_idle(member: str, a: _Sample, b: _Sample) -> bool:
    is_known = a.lag is not None and b.lag is not None
    return is_known and a.handled[member] == b.handled[member] and not (a.waiting[member] or b.waiting[member])


def _saturated_rates(a: _Sample, b: _Sample) -> list[float]:
    """Messages a second of each member that had work throughout."""
    found = []
    for member in b.busy:
        before, after = a.handled.get(member), b.handled[member]
        if a.busy.get(member) != b.busy[member] or before is None or after is None:
            continue
        if 0 < after - before <= a.waiting[member]:
            found.append(1_000 * (after - before) / (b.at_ms - a.at_ms))
    return found
