"""A group whose members bring what they own, as given to a Kafka assignor: each claims it under its tokens."""

from __future__ import annotations

from collections.abc import Mapping

from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, Tenure

from cobalance.coordinator.requests import Claim

Owned = Mapping[str, Mapping[str, int]]
"""Member → resource → the token under which it claims to own it."""


def claimed(backend: Backend, owned: Owned, wanted: tuple[str, ...]) -> tuple[Group, list[Member]]:
    """All members join an empty Redis in this order, claim, and declare the list; then the recovery is over."""
    group = Group(backend, create=False)
    members = [claim(group, member, tokens) for member, tokens in owned.items()]
    assert group.set_resources(members[0], wanted, version=1) == "RECOVERING"
    group.run(SETTINGS.session_timeout_ms + 1000)
    assert group.set_resources(members[0], wanted, version=1) == "DONE"
    return group, members


def claim(group: Group, id_: str, tokens: Mapping[str, int]) -> Member:
    """One member joins with its claims, and holds what was accepted."""
    member = Member(group, id_)
    group.members[id_] = member
    reply = member.join(claims=[Claim(name, token) for name, token in sorted(tokens.items())])
    for (name, token), result in zip(sorted(tokens.items()), reply.results, strict=True):
        if result == "KEPT":
            member.holds[name] = Tenure(token)
    return member
