"""The inputs of :class:`cobalance.member.session.Session`. Times are the member's own monotonic ms."""

from __future__ import annotations

from typing import Literal

import attrs

from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import GROUPS_OWN, Effort, Request


@attrs.frozen
class Started:
    """The process wants to join. Members with the same subscription declare the same list."""

    subscription: str = GROUPS_OWN


@attrs.frozen
class ResourcesDeclared:
    """The sorted resource list that this process knows, and its version."""

    version: int
    names: tuple[str, ...]


@attrs.frozen
class Replied:
    """A request was answered. ``sent_at`` is the time at which the answered attempt was sent."""

    request: Request
    reply: CoordinatorReply
    sent_at: int


@attrs.frozen
class CallFailed:
    """A request got no answer. It may have run, and is sent again unchanged."""

    request: Request
    message: str


@attrs.frozen
class Hinted:
    """Something changed for this member at ``version``; -1 after a (re)subscription, when anything may have."""

    version: int


@attrs.frozen
class TimerFired:
    """Time has passed."""


@attrs.frozen
class Sample:
    """Since when the handler of one tenure has been busy; ``None`` if it is idle."""

    resource: str
    token: int
    busy_since: int | None

    def ahead(self, ms: int) -> Sample:
        """The same on a clock that is this much ahead."""
        return self if self.busy_since is None else Sample(self.resource, self.token, self.busy_since + ms)


@attrs.frozen
class Progressed:
    """The handlers that are busy, or were when they were last sampled."""

    samples: tuple[Sample, ...]


@attrs.frozen
class GuardChanged:
    """Whether the broker is proven to admit only one consumer of this resource."""

    resource: str
    token: int
    proven: bool


@attrs.frozen
class DrainBegun:
    """``on_revoked`` is about to run: this tenure can no longer be kept."""

    resource: str
    token: int


@attrs.frozen
class Drained:
    """The tenure's work is finished: how much was delivered and committed, and the offset to store, if there is one."""

    resource: str
    token: int
    delivered: int = 0
    committed: int = 0
    offset: int | None = None
    effort: Effort | None = None


@attrs.frozen
class Abandoned:
    """The tenure was stopped with its work unfinished: an abort was carried out, or its channel died."""

    resource: str
    token: int
    reason: str
    effort: Effort | None = None


@attrs.frozen
class CommitAsked:
    """The user commits an offset; ``ticket`` is returned with the outcome."""

    ticket: int
    resource: str
    token: int
    offset: int


@attrs.frozen
class StopAsked:
    """Leave gracefully. ``remain`` keeps everything for the rejoin grace period (instance id). Of several, the first
    counts, but for one that keeps nothing.
    """

    remain: bool = False


Event = (
    Started
    | ResourcesDeclared
    | Replied
    | CallFailed
    | Hinted
    | TimerFired
    | Progressed
    | GuardChanged
    | DrainBegun
    | Drained
    | Abandoned
    | CommitAsked
    | StopAsked
)

CommitOutcome = Literal["OK", "FENCED", "REGRESSED", "UNKNOWN"]
