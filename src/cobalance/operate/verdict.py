"""Whether work goes on, without thresholds for lag: from a short history of each resource.

The idea is Burrow's. What is known of a queue is its lag and the age of its oldest message in flight. Something was
done between two samples if the lag fell, if a committed offset rose, or if another message is the oldest now. A long
lag that shrinks is well; a short one of which nothing is ever done is not. Two rules prevent false alarms: lag that
was not there a sample ago proves nothing, so that the first message after a quiet night is no reason; and what is not
known is not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import attrs

from cobalance.description import GroupDescription, ResourceDescription, Verdict

WINDOW_MS = 60_000
"""How long a handler may be busy with one message before that counts as standing still."""

SLACK_MS = 500
"""Ages come from other clocks, to a tenth of a second, and are some milliseconds older than the sample."""

Standing = Literal["worked", "moving", "paused", "halted", "unworked"]
"""worked: held by a live member. moving: to be handed over, granted or claimed, by a deadline. paused: halted, and retried
by itself. halted: until an operator resumes it. unworked: nobody is there who could.
"""

_ORDER: tuple[Verdict, ...] = ("OK", "WARN", "STALL", "STOP")


@attrs.frozen(kw_only=True)
class Sample:
    """One resource at one moment. None means unknown."""

    at_ms: int
    standing: Standing
    token: int | None = None
    lag: int | None = None
    in_flight: int | None = None
    oldest_ms: int | None = None
    committed: int | None = None


def sample(group: GroupDescription, resource: ResourceDescription) -> Sample:
    """What counts of a resource in this snapshot."""
    return Sample(
        at_ms=group.at_ms,
        standing=_standing(group, resource),
        token=resource.token,
        lag=resource.backlog.lag,
        in_flight=resource.backlog.in_flight,
        oldest_ms=resource.backlog.oldest_ms,
        committed=resource.committed,
    )


def judge(history: Sequence[Sample], window_ms: int = WINDOW_MS) -> Verdict | None:
    """The verdict on one resource.

    Args:
        history: at least one sample, the latest last. Earlier ones should reach back a window; those of unknown lag do not
            count.
        window_ms: how long nothing may get done.

    Returns:
        None if it is not known, or not known yet.
    """
    now = history[-1]
    if now.standing in {"halted", "paused"}:  # over a message that is still there, whether or not it can be counted
        return "STOP" if now.standing == "halted" else "STALL"
    if now.lag is None:
        return None
    if now.lag == 0:
        return "OK"
    known = [it for it in history if it.lag is not None]
    behind, is_unworked = _behind(known), now.standing == "unworked"
    has_just_come = len(behind) < 2 <= len(known)
    if is_unworked:
        return None if has_just_come else "STOP"
    if has_just_come:
        return "OK"
    return None if len(behind) < 2 else _judge_lag(behind, window_ms)


def worst(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """The worst of those known. None if none is, or if all that are known are OK, and others are not: one of these may stand
    still.
    """
    distinct = {*verdicts}
    found = max((it for it in distinct if it is not None), key=_ORDER.index, default=None)
    return None if found == "OK" and None in distinct else found


def _judge_lag(behind: Sequence[Sample], window_ms: int) -> Verdict | None:
    now, is_done = behind[-1], _is_anything_done(behind)
    is_long = now.at_ms - behind[0].at_ms >= window_ms
    if is_done:
        return "WARN" if is_long and _grows(behind) else "OK"
    if now.standing == "moving":
        return "WARN"
    if not is_long or is_done is None:
        return None
    has_moved = any(it.token != now.token for it in behind)
    return "WARN" if has_moved else "STALL"


def _behind(history: Sequence[Sample]) -> Sequence[Sample]:
    """The samples since the last one without lag."""
    for at in range(len(history) - 1, -1, -1):
        if not history[at].lag:
            return history[at + 1 :]
    return history


def _grows(behind: Sequence[Sample]) -> bool:
    lags = [it.lag or 0 for it in behind]
    return lags[-1] > lags[0] and all(a <= b for a, b in pairwise(lags))


def _is_anything_done(behind: Sequence[Sample]) -> bool | None:
    """None if no two samples tell. Whoever does not answer a look hides nothing: those before and after it tell."""
    answered = [it for it in behind if it.oldest_ms is not None or it.in_flight == 0]
    answers = {_is_done_between(a, b) for a, b in (*pairwise(behind), *pairwise(answered))}
    return True if True in answers else False if False in answers else None


def _is_done_between(a: Sample, b: Sample) -> bool | None:
    if (b.lag or 0) < (a.lag or 0):
        return True
    if a.token != b.token:
        return None
    if a.committed is not None and b.committed is not None and b.committed > a.committed:
        return True
    between_ms = b.at_ms - a.at_ms
    if a.oldest_ms is not None:  # messages that are in flight no longer may have gone back, if the lag is what it was
        return None if b.oldest_ms is None else b.oldest_ms + SLACK_MS < a.oldest_ms + between_ms
    if b.oldest_ms is not None:
        return False if b.oldest_ms + SLACK_MS >= between_ms else None
    is_idle = a.in_flight == b.in_flight == 0
    return False if is_idle or b.committed is not None else None


def _standing(group: GroupDescription, resource: ResourceDescription) -> Standing:
    if resource.halted is not None:
        return "halted" if resource.tried_in_ms is None else "paused"
    if group.state == "Recovering":
        return "moving"
    if group.state == "Empty" or (resource.owner is None and not _is_anybody_there(group, resource)):
        return "unworked"
    return "worked" if resource.state == "held" else "moving"


def _is_anybody_there(group: GroupDescription, resource: ResourceDescription) -> bool:
    return resource.is_named and any(it.state == "active" and it.capacity for it in group.members)
