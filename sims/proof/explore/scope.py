"""What is explored: how many members and resources, timeouts in ticks, and how many faults a path may have."""

from __future__ import annotations

import attrs

from cobalance.coordinator.requests import GROUPS_OWN
from cobalance.member.declaration import digest
from cobalance.settings import GroupSettings, MemberSettings

TICK_MS = 300
"""Time passes in steps of half a session timeout: a heartbeat is due at each, and the member's own lease (nine tenths
of a session) ends between two of them. An idle tick alone is no silence: that is more than half a session.
"""

GROUP_MS = 1_800_000_000_000
"""The group's clock in every canonical state: times are kept relative to it."""

MEMBER_MS = 3_000_000_000
"""The members' clocks in every canonical state."""

SLOTS = "abcdef"


@attrs.frozen(kw_only=True)
class Scope:
    """One exhaustive exploration. A budget is how often something may happen on one path from the beginning."""

    name: str
    members: int
    resources: int
    budgets: tuple[tuple[str, int], ...]
    faults: int = 1
    """How many of the faults (those in :data:`FAULTS`) one path may have altogether."""
    deeds: int = 100
    """How many of the deeds (those in :data:`DEEDS`) one path may have altogether."""
    events: int = 100
    """How many faults and deeds together."""
    settled: int = 0
    """How many members have joined and share evenly when the exploration begins; the others have not started."""
    is_concurrent: bool = False
    """Whether anything may happen while a call is in flight. Otherwise only other calls in flight (all those of the
    same tick), starts, and the faults of a call come between a request and its answer.
    """
    moves: int = 100
    revocation_ticks: int = 2
    created: bool = True
    """Whether the group is known to be new; otherwise the first join finds an empty Redis and recovers."""
    mode: str = "cooperative"
    instances: bool = False
    grace_ticks: int = 0
    gather_ms: int = 0
    drain_ticks: int = 2
    lists: tuple[tuple[int, ...], ...] = ()
    """What each process names, as numbers of resources; if empty, all use the group's own list, of all resources."""
    page: int | None = None
    """The most that a member sends in a call; None means as shipped, which is more than all that any scope has."""
    wedged: bool = True
    """Whether liveness is also checked with one member that never drains."""

    @property
    def group(self) -> GroupSettings:
        """The settings of the group."""
        return GroupSettings(
            mode="eager" if self.mode == "eager" else "cooperative",
            session_timeout_ms=2 * TICK_MS,
            heartbeat_interval_ms=2 * TICK_MS // 3,
            revocation_timeout_ms=self.revocation_ticks * TICK_MS,
            rejoin_grace_ms=self.grace_ticks * TICK_MS,
            gather_ms=self.gather_ms,
            moves_per_call=self.moves,
            journal_length=1000,
        )

    def member(self, slot: str) -> MemberSettings:
        """The settings of a process."""
        return MemberSettings(
            instance_id=f"i{slot}" if self.instances else None,
            drain_timeout_ms=self.drain_ticks * TICK_MS,
            guarded_outage_ms=0,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"r{number}" for number in range(1, self.resources + 1))

    def named_by(self, slot: str) -> tuple[str, ...]:
        """The resources that the code of a process names."""
        return tuple(f"r{number}" for number in self.lists[SLOTS.index(slot)]) if self.lists else self.names

    def subscription(self, slot: str) -> str:
        """A key shared by processes that declare the same list."""
        return digest(self.named_by(slot)) if self.lists else GROUPS_OWN

    @property
    def slots(self) -> str:
        """The processes, one letter each."""
        return SLOTS[: self.members]

    def budget(self, what: str) -> int:
        """How often something may happen on one path."""
        return dict(self.budgets).get(what, 0)


FAULTS = ("crash", "pause", "cut", "lost", "reply", "late", "flush", "die")
"""Faults share the budget `faults`."""

DEEDS = ("leave", "commit", "relist", "begin", "short")
"""What users do shares the budget `deeds`; a process that starts again has a budget of its own, and so have
the witnesses, who see that one is dead."""

_LIFE = {"crash": 1, "pause": 1, "cut": 1, "lost": 1, "reply": 1, "late": 1, "flush": 1}


def _scope(name: str, members: int, resources: int, **changes: object) -> Scope:
    budgets = {**_LIFE, "leave": 1, "restart": 1}
    for key in [key for key in changes if key in {*FAULTS, *DEEDS, "restart", "seen"}]:
        budgets[key] = int(str(changes.pop(key)))
    fields = {"name": name, "members": members, "resources": resources, "budgets": tuple(sorted(budgets.items()))}
    return Scope(**{**fields, **changes})  # type: ignore[arg-type]  # checked by the attrs class at run time


SCOPES: dict[str, Scope] = {
    scope.name: scope
    for scope in (
        _scope("2x1", 2, 1, faults=1, leave=0, restart=0, late=0),
        _scope("2x1-two", 2, 1, faults=2, leave=0, restart=0),
        _scope("2x1-commit", 2, 1, faults=2, leave=0, restart=0, commit=1, flush=0, crash=0),
        _scope("2x2-leave", 2, 2, faults=0, leave=2),
        _scope("2x2-begin", 2, 2, faults=0, leave=1, begin=2),
        _scope("2x1-late", 2, 1, faults=1, crash=0, pause=0, cut=0, lost=0, reply=0, flush=0, restart=0),
        _scope("1x1", 1, 1, faults=1, commit=1, crash=0, pause=0, cut=0, reply=0, late=0, flush=0, restart=0),
        _scope("2x1-eager", 2, 1, faults=1, mode="eager", leave=0, restart=0, late=0),
        _scope("1x1-lost", 1, 1, faults=3, crash=0, pause=0, reply=0, late=0, leave=0, restart=0),
        _scope("2x1-lost", 2, 1, faults=2, pause=0, lost=0, reply=0, late=0, leave=0, restart=0),
        _scope("2x1-leave", 2, 1, faults=1, crash=0, pause=0, cut=0, late=0, flush=0, restart=0),
        _scope("1x2-lists", 1, 2, faults=1, crash=0, pause=0, cut=0, lost=0, reply=0, late=0, relist=2, leave=0),
        _scope(
            "2x6-narrow", 2, 6, faults=1, moves=1, pause=0, cut=0, lost=0, reply=0, late=0, flush=0, leave=0, restart=0
        ),
        _scope(
            "2x1-die",
            2,
            1,
            faults=1,
            die=1,
            crash=0,
            pause=0,
            cut=0,
            lost=0,
            reply=0,
            late=0,
            flush=0,
            leave=1,
            restart=0,
        ),
        _scope(
            "2x2-die",
            2,
            2,
            faults=1,
            die=1,
            pause=0,
            cut=0,
            lost=0,
            reply=0,
            late=0,
            flush=0,
            restart=0,
            commit=1,
            relist=1,
        ),
        _scope("2x2-short", 2, 2, faults=0, leave=0, restart=0, commit=1, short=1),
        _scope("2x2-narrow", 2, 2, faults=1, moves=1, leave=0, restart=0, late=0),
        _scope("tiny", 2, 2, faults=1, leave=0, restart=0),
        _scope("2x2", 2, 2, faults=1),
        _scope("2x2-commit", 2, 2, faults=1, leave=0, restart=0, commit=1),
        _scope("2x2-concurrent", 2, 2, faults=1, leave=0, restart=0, is_concurrent=True),
        _scope("2x4", 2, 4, faults=1, commit=1, relist=1, begin=1, events=1, settled=1),
        _scope("2x4-start", 2, 4, faults=1, leave=0, restart=0, late=0),
        _scope("2x4-all", 2, 4, faults=1, commit=1, relist=1, begin=1, events=1, restart=0),
        _scope("3x3", 3, 3, faults=1, commit=1, relist=1, begin=1, events=1, settled=2),
        _scope("3x3-start", 3, 3, faults=1, pause=0, cut=0, lost=0, reply=0, late=0, flush=0, leave=0, restart=0),
        _scope("2x2-pairs", 2, 2, faults=1, deeds=1, commit=1, relist=1, begin=1, settled=1),
        _scope("2x2-deep", 2, 2, faults=2, commit=1, begin=1, relist=2),
        _scope("2x2-relist", 2, 2, faults=0, relist=2, leave=0, restart=0),
        _scope(
            "2x3-deploy",
            2,
            3,
            faults=1,
            lists=((1, 2), (2, 3)),
            pause=0,
            cut=0,
            lost=0,
            reply=0,
            late=0,
            restart=0,
            leave=0,
        ),
        _scope("2x2-deploy-leave", 2, 2, faults=0, lists=((1,), (1, 2)), leave=1, restart=1),
        _scope("2x2-deploy", 2, 2, faults=1, lists=((1,), (1, 2)), late=0, leave=0, restart=0),
        _scope("2x3-narrow", 2, 3, faults=1, moves=1),
        _scope("2x2-seen", 2, 2, faults=1, seen=1, pause=0, cut=0, lost=0, reply=0, late=0, flush=0, begin=1),
        _scope(
            "2x2-static-seen",
            2,
            2,
            faults=1,
            seen=1,
            instances=True,
            grace_ticks=3,
            pause=0,
            cut=0,
            lost=0,
            reply=0,
            late=0,
            flush=0,
        ),
        _scope("1x3-pages", 1, 3, faults=1, page=2, moves=2, crash=0, pause=0, cut=0, late=0, restart=0),
        _scope("2x2-static", 2, 2, faults=1, instances=True, grace_ticks=3),
        _scope("2x2-eager", 2, 2, faults=1, mode="eager"),
        _scope("2x2-found", 2, 2, faults=1, created=False),
    )
}
"""All scopes by name; :mod:`tier` says which are explored together."""
