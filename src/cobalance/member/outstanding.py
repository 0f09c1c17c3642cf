"""A member's connection to its coordinator: its member id, its one outstanding request, and whether to ask for news."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Header, Payload, Request
from cobalance.errors import IllegalTransition

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply


class Line:
    """Has one outstanding request at a time, repeated unchanged until it is answered.

    A member id is never reused: each join has its own, made of the process's name and a count.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.member = self.previous = ""
        self.incarnation = 0
        """The group's highest incarnation in any answer."""
        self.outstanding: Request | None = None
        self._joins = self._number = self._seen = self._cursor = self._hinted = 0
        self._resync = self._more = False

    def begin_member(self) -> str:
        """Creates a new member id for the next join. An outstanding request is dropped."""
        self.previous = self.member
        self._joins += 1
        self.member = f"{self.name}.{self._joins}"
        self._number = self._cursor = self._hinted = 0
        self._resync = self._more = False
        self.outstanding = None
        return self.member

    def send(self, payload: Payload, held: tuple[int, ...] | None = None) -> Request:
        """Creates a request, with the tokens of everything held. Its answer will cover whatever earlier hints were
        about.
        """
        self._number += 1
        self._hinted, self._resync, self._more = 0, False, False
        self.outstanding = Request(
            Header(self.member, self._number, self.incarnation, self._seen, self._cursor, held), payload
        )
        return self.outstanding

    def waits_for(self, request: Request) -> bool:
        """Whether this request is outstanding, rather than dropped.

        Raises:
            IllegalTransition: it was never sent.
        """
        unsent = request.header.member == self.member and request.header.number > self._number
        if unsent or self._joins == 0:
            raise IllegalTransition("an answer came to a request that was never sent")
        return request is self.outstanding

    def answered(self, reply: CoordinatorReply) -> None:
        """The outstanding request was answered. Later answers cannot be older than this one."""
        self.outstanding = None
        self._seen = max(self._seen, reply.version)
        self.incarnation = max(self.incarnation, reply.incarnation)

    def heard(self, reply: CoordinatorReply) -> None:
        """The changes in an answer were applied."""
        self._cursor, self._more = reply.cursor, reply.more

    def ask_again(self) -> None:
        """The changes in an answer were not applied: they come again with the next one."""
        self._more = True

    def hinted(self, version: int) -> None:
        """Something changed at this version; -1 means that anything may have."""
        self._resync = self._resync or version < 0
        self._hinted = max(self._hinted, version)

    @property
    def has_news(self) -> bool:
        """Whether a heartbeat may bring changes. A hint is worth one request, even if the answer does not reach its
        version: a Redis that has lost its data may never do so.
        """
        return self._more or self._resync or self._hinted > self._cursor
