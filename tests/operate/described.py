"""Descriptions of groups, made by hand."""

from __future__ import annotations

from typing import Any

from cobalance.description import GroupDescription, GroupState, MemberDescription, ResourceDescription
from cobalance.settings import GroupSettings


def group(state: GroupState = "Stable", /, *members: MemberDescription, **resource: Any) -> GroupDescription:
    """A group with one resource."""
    common: dict[str, Any] = {"name": "r", "state": "held", "owner": "a", "token": 1, "committed": None, "age_ms": 0}
    common |= {"deadline_in_ms": None, "is_removing": False, "is_named": True, "halted": None, "tried_in_ms": None}
    return GroupDescription(
        name="g",
        state=state,
        settings=GroupSettings(),
        coordinator=None,
        offsets_known=True,
        expires_at=None,
        members=members or (member(),),
        resources=(ResourceDescription(**common | resource),),
        subscriptions=(),
        let_go=(),
        at_ms=1,
    )


def member(**given: Any) -> MemberDescription:
    """A member that holds the resource."""
    common: dict[str, Any] = {"id": "a", "instance_id": None, "label": "h/1", "state": "active", "capacity": 1}
    common |= {"resources": ("r",), "kept": 1, "pending": 0, "quota": (1, 1), "expires_in_ms": 1, "subscription": "s"}
    return MemberDescription(**common | given)
