"""A group at one moment, as ``describe`` needs it."""

from __future__ import annotations

from typing import Literal, Self

import attrs

from cobalance.coordinator.client import Coordinator, MemberRow, ResourceRow

GroupState = Literal["Empty", "Assigning", "Reconciling", "Stable", "Recovering"]


@attrs.frozen(kw_only=True)
class Snapshot:
    """State, members and resources, read one after the other: a group in motion may have moved in between."""

    group: str
    scalars: dict[str, str]
    members: tuple[MemberRow, ...]
    resources: tuple[ResourceRow, ...]

    @classmethod
    def take(cls, coordinator: Coordinator) -> Self:
        """Reads a group.

        Raises:
            UnknownGroup: there is no such group.
        """
        members, resources = tuple(coordinator.members()), tuple(coordinator.resources())
        return cls(group=coordinator.group, scalars=coordinator.state(), members=members, resources=resources)

    @property
    def now_ms(self) -> int:
        """The group's clock when it was read."""
        return int(self.scalars["heard"])

    @property
    def state(self) -> GroupState:
        """In Kafka's words. Recovering: it is being found out who holds what, after a loss of data or in a new group."""
        if int(self.scalars["recovering"]) > self.now_ms:
            return "Recovering"
        if all(self.is_silent(member) for member in self.members):
            return "Empty"
        statuses = {resource.status for resource in self.resources}
        if "free" in statuses:
            return "Assigning"
        return "Stable" if statuses <= {"held", "halted"} else "Reconciling"

    def is_silent(self, member: MemberRow) -> bool:
        """Its session is over, and nobody is there to act on it: the coordinator expires members only while it hears of others."""
        return member.status in {"active", "leaving"} and member.expires_ms < self.now_ms

    @property
    def by_id(self) -> dict[str, MemberRow]:
        """Member id → member."""
        return {member.id: member for member in self.members}

    @property
    def coordinator(self) -> MemberRow | None:
        """The elected one."""
        return self.by_id.get(self.scalars["coordinator"])

    def held_by(self, member: str) -> list[str]:
        """The resources of a member, in order."""
        return [resource.name for resource in self.resources if resource.owner == member]


def host_of(label: str) -> str:
    """The host in a member's label, which is host and process id."""
    return label.partition("/")[0]
