"""Vouching: this member tells the coordinator that a broker guards whatever it holds, for as long as its connection to
the broker lasts.

Its session may then end early once its process is seen to be dead (``lua/suspect.lua``). It vouches when it has joined
and whenever its listener has connected, since the coordinator has to find it at the server that it will look at. A listener
that is not found there hears another server, as one that was left at the former master: it reconnects. When it has
lost the broker, it takes that back at once, which only a living process does; and before it works anything that no
broker guards, for good.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from cobalance.coordinator.requests import Header, Request, Vouch
from cobalance.errors import CobalanceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cobalance.coordinator.replies import CoordinatorReply

ATTEMPTS, WITHIN_S = 3, 0.1
"""To tell the coordinator: its connection may have been lost together with the broker's, and each attempt makes it again.
Heartbeats wait meanwhile, so a Redis that does not answer is asked once."""


class Executes(Protocol):
    """Such as a :class:`cobalance.coordinator.client.Coordinator`."""

    def execute(self, request: Request) -> CoordinatorReply: ...


class Vouching:
    """What this member vouches for. Any thread; only those methods block that say so."""

    def __init__(
        self,
        coordinator: Executes,
        *,
        listens: Callable[[], bool] = lambda: False,
        renew: Callable[[], None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`listens`: whether the member's listener has said that it listens; `renew`: has it reconnect."""
        self._coordinator, self._listens, self._renew, self._now_s = coordinator, listens, renew, now_s
        self._lock = threading.Lock()
        self._member = ""
        self._connection: str | None = None
        self._is_over = self._recorded = self._may_renew = False
        self.is_unheard = False
        """Whether the coordinator may not have heard what it was told last."""
        self._number = 0

    def joined(self, member: str) -> None:
        """The process is this member from now on."""
        self._member, self._recorded, self._may_renew = member, False, True

    def connected(self, connection: str | None) -> None:
        """From the next :meth:`tell` on, it vouches for this connection to the broker, or for none."""
        self._connection = connection

    def tell(self) -> None:
        """Tells the coordinator what it vouches for now, if that has not heard it. Blocks. Without an answer, it is sent
        again once another call was answered.
        """
        give_up_at = self._now_s() + WITHIN_S
        with self._lock:
            for _ in range(ATTEMPTS):
                with suppress(CobalanceError):
                    self._tell()
                    return
                if self._now_s() > give_up_at:
                    return

    def withdraw(self) -> None:
        """Returns once the coordinator no longer counts on a guard, and never will. Blocks.

        Raises:
            ServerError: it may still count on one: try again.
        """
        with self._lock:
            self._is_over = True
            self._tell()

    def _tell(self) -> None:
        connection = None if self._is_over else self._connection
        if not self._member or (connection is None and not self._recorded):
            return
        self._recorded = self.is_unheard = True  # it may be recorded, whatever the answer
        self._number += 1  # a copy of an earlier one, whose answer was lost, may come later
        listened = self._listens()
        reply = self._coordinator.execute(Request(Header(self._member, self._number), Vouch(connection)))
        self._recorded, self.is_unheard = connection is not None, False
        self._heed(reply.results, listened=listened)

    def _heed(self, results: Sequence[str], *, listened: bool) -> None:
        if "VOUCHED" in results:
            self._may_renew = True
        elif "UNHEARD" in results and listened and self._may_renew:
            self._may_renew = False  # once: where the server does not say who it is, none is ever found
            self._renew()
