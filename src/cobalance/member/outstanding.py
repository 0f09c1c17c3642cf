"""A member's line to its coordinator: who it is there, the one request that waits for an answer, and what is worth asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Header, Payload, Request
from cobalance.errors import IllegalTransition

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply


class Line:
    """One outstanding request at a time, repeated as it is until it is answered.

    A member id is never reused: each join has its own, made of the process's name and a count.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.member = self.previous = ""
        self.incarnation = 0
        """The highest of the group that any answer has named."""
        self.outstanding: Request | None = None
        self._joins = self._number = self._seen = self._cursor = self._hinted = 0
        self._resync = self._more = False

    def begin_member(self) -> str:
        """The next join goes out under a new id. What was outstanding is given up."""
        self.previous = self.member
        self._joins += 1
        self.member = f"{self.name}.{self._joins}"
        self._number = self._cursor = self._hinted = 0
        self._resync = self._more = False
        self.outstanding = None
        return self.member

    def send(self, payload: Payload, held: tuple[int, ...] | None = None) -> Request:
        """A new request, with the tokens of all that is held. Its answer will tell whatever every earlier hint was about."""
        self._number += 1
        self._hinted, self._resync, self._more = 0, False, False
        self.outstanding = Request(
            Header(self.member, self._number, self.incarnation, self._seen, self._cursor, held), payload
        )
        return self.outstanding

    def waits_for(self, request: Request) -> bool:
        """Whether this is the request we wait for; one that was given up is not.

        Raises:
            IllegalTransition: it was never sent.
        """
        unsent = request.header.member == self.member and request.header.number > self._number
        if unsent or self._joins == 0:
            raise IllegalTransition("an answer came to a request that was never sent")
        return request is self.outstanding

    def answered(self, reply: CoordinatorReply) -> None:
        """The line is free again. Nothing the coordinator tells later may be older than this."""
        self.outstanding = None
        self._seen = max(self._seen, reply.version)
        self.incarnation = max(self.incarnation, reply.incarnation)

    def heard(self, reply: CoordinatorReply) -> None:
        """The changes in an answer were taken in."""
        self._cursor, self._more = reply.cursor, reply.more

    def ask_again(self) -> None:
        """The changes in an answer were not taken in: they come again with the next one."""
        self._more = True

    def hinted(self, version: int) -> None:
        """Something changed at this version; -1 says that anything may have."""
        self._resync = self._resync or version < 0
        self._hinted = max(self._hinted, version)

    @property
    def has_news(self) -> bool:
        """Whether a heartbeat would bring something. A hint is worth one question, even if the answer knows nothing of it:
        a Redis that has lost its data may never come to the version hinted at.
        """
        return self._more or self._resync or self._hinted > self._cursor
