"""A group whose members are driven one call at a time, each call measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.replies import Change, CoordinatorReply, decode
from cobalance.coordinator.requests import (
    Header,
    Heartbeat,
    Join,
    Leave,
    Payload,
    Release,
    ReleaseItem,
    Request,
    SetResources,
    Tick,
)
from cobalance.coordinator.scripts import VERBS, load
from cobalance.coordinator.transport import CERTAIN, Script
from cobalance.settings import GroupSettings
from proof.bench.server import CallTimes, Server

IDENTITY = "bench" * 8  # as long as those of servers are


class BenchGroup:
    """A group whose members are driven one call at a time, each call measured."""

    def __init__(self, server: Server, settings: GroupSettings) -> None:
        self.server, self.settings = server, settings
        self.keys = group_keys("bench")
        self.tally = CallTimes()
        self.members: dict[str, Header] = {}
        self.asked_back: dict[str, list[Change]] = {}
        self._shas: dict[str, Any] = {verb: server.command("SCRIPT", "LOAD", self.source(load(verb))) for verb in VERBS}
        server.command("FLUSHDB")
        Coordinator(self, "bench").create(settings)  # type: ignore[arg-type]

    def source(self, script: Script) -> str:
        """What Redis is given for a script."""
        return script.source

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> object:
        """Measures the call, as a transport would make it."""
        certain = CERTAIN if script.name == "join" else ""  # a first join is for an identity that was read again
        return self.server.command("EVALSHA", self._shas[script.name], len(keys), *keys, certain + IDENTITY, *args)

    def ask(self, member: str, payload: Payload) -> CoordinatorReply:
        """One measured call of a member."""
        header = attrs.evolve(self.members[member], number=self.members[member].number + 1)
        args = Request(header, payload).args()
        raw, cpu_us = self.server.timed(lambda: self.call(load(payload.verb), self.keys, args))
        self.tally.add(payload.verb, cpu_us)
        reply = decode(raw)  # type: ignore[arg-type]
        if reply.status != "OK":
            raise RuntimeError(f"{payload.verb} was answered {reply.status}")
        self.members[member] = attrs.evolve(
            header, incarnation=reply.incarnation, seen=reply.version, cursor=reply.cursor
        )
        self.asked_back.setdefault(member, []).extend(it for it in reply.changes if it.kind == "revoke")
        return reply

    def join(self, member: str, capacity: int = 1) -> CoordinatorReply:
        self.members[member] = Header(member, 0)
        return self.ask(member, Join(settings=self.settings, capacity=capacity))

    def leave(self, member: str) -> None:
        """Removes a member, once all members have done their part in that."""
        while self.ask(member, Leave()).results[0] != "LEFT":
            self.drain()
        del self.members[member]

    def settle(self, member: str) -> None:
        """Ticks as long as more is due."""
        while self.ask(member, Tick()).more:
            pass

    def set_resources(self, member: str, names: Sequence[str]) -> None:
        """Declares a list in pages."""
        for start in range(0, len(names), 200):
            page = names[start : start + 200]
            to = "" if start + 200 >= len(names) else page[-1]
            after = names[start - 1] if start else ""
            reply = self.ask(member, SetResources(version=1, digest="x", after=after, to=to, names=tuple(page)))
            while reply.results[0] == "NEXT" and reply.results[1] != to:  # cut short: the rest of the page
                rest = tuple(name for name in page if name > reply.results[1])
                reply = self.ask(member, SetResources(version=1, digest="x", after=reply.results[1], to=to, names=rest))

    def drain(self, page: int = 200) -> None:
        """Every member hears everything and gives back what was revoked, until nothing is pending."""
        moved = True
        while moved:
            moved = False
            for member in self.members:
                while self.ask(member, Heartbeat()).more:
                    pass
                pending = self.asked_back.pop(member)
                for start in range(0, len(pending), page):
                    items = tuple(
                        ReleaseItem(resource=it.resource, token=it.token) for it in pending[start : start + page]
                    )
                    self.ask(member, Release(items))
                    moved = True
