"""The outputs of :class:`cobalance.member.session.Session`: what a member must do, carried out in order."""

from __future__ import annotations

from typing import Literal

import attrs

from cobalance.coordinator.requests import Request
from cobalance.member.events import CommitOutcome

AbortReason = Literal["lost", "fenced", "deadline", "hung", "left", "blocked"]


@attrs.frozen
class Call:
    """Send this request and report :class:`Replied` or :class:`CallFailed`."""

    request: Request


@attrs.frozen
class Listen:
    """Listen for hints to this member id, instead of the previous one."""

    member: str


@attrs.frozen
class Start:
    """Work the resource under this token, starting from this committed offset."""

    resource: str
    token: int
    committed: int | None
    tries: int = 0
    """How often in a row it was given up before."""


@attrs.frozen
class Drain:
    """Stop delivery, finish, commit and report :class:`Drained`; otherwise :class:`Abort` follows at ``abort_at``."""

    resource: str
    token: int
    abort_at: int


@attrs.frozen
class Hasten:
    """The deadline of a :class:`Drain` was moved forward, to ``abort_at``."""

    resource: str
    token: int
    abort_at: int


@attrs.frozen
class Keep:
    """The revocation was cancelled: go on, unless :class:`DrainBegun` was reported already."""

    resource: str
    token: int


@attrs.frozen
class Abort:
    """Stop at once. For ``lost`` the ownership is gone; otherwise report :class:`Abandoned` when done."""

    resource: str
    token: int
    reason: AbortReason


@attrs.frozen
class CommitDone:
    ticket: int
    outcome: CommitOutcome


@attrs.frozen
class Joined:
    """The process is a member under this id."""

    member: str


@attrs.frozen
class Declared:
    """The group uses the resource list this process declared, or will once it has recovered."""


@attrs.frozen
class Problem:
    """Something the user should know. ``fatal`` ends the session."""

    code: Literal[
        "list_disagrees",
        "instance_in_use",
        "subscriptions",
        "recovering",
        "cut_off",
        "commit_refused",
        "unreachable",
        "hung",
        "overlap",
    ]
    message: str
    fatal: bool = False
    expected: bool = False
    """Part of a normal start."""


@attrs.frozen
class Left:
    """The session is over."""


@attrs.frozen
class Wait:
    """Report :class:`TimerFired` at this time unless another event happens first."""

    until: int


Action = Call | Listen | Start | Drain | Hasten | Keep | Abort | CommitDone | Joined | Declared | Problem | Left | Wait
