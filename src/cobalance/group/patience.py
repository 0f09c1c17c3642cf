"""Waits for servers that are not up yet when a program starts."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

import anyio

from cobalance.backoff import Backoff
from cobalance.errors import OutOfMemory, Unreachable, sentence
from cobalance.group.clock import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("cobalance")

BACKOFF_S = Backoff(0.1, 1.0)

CANNOT_SERVE = Unreachable, OutOfMemory
"""Errors of a server that may serve later: it does not answer, or is full."""

T = TypeVar("T")


def with_patience(attempt: Callable[[], T], timeout_s: float, may_come_up: Callable[[Exception], bool]) -> T:
    """Repeats the attempt until it succeeds, the server cannot be expected to come up, or the time is up. Returns or
    raises the last result. Blocks; needs no event loop.
    """
    until, failures = time.monotonic() + timeout_s, 0
    while True:
        try:
            return attempt()
        except Exception as error:
            left_s = until - time.monotonic()
            if left_s <= 0 or not may_come_up(error):
                raise
        failures += 1
        time.sleep(min(BACKOFF_S.pause(failures), left_s))


class Patience:
    """One deadline for all servers of a group, counted from construction."""

    def __init__(self, group: str, timeout_s: float) -> None:
        self._group, self._until = group, monotonic_ms() + timeout_s * 1000

    @property
    def over(self) -> bool:
        """Whether servers that cannot serve yet are not waited for any longer."""
        return monotonic_ms() >= self._until

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats the attempt until it succeeds, and returns its result.

        Raises:
            Unreachable, OutOfMemory: none succeeded in time.
        """
        failures = 0
        while True:
            try:
                return await attempt()
            except CANNOT_SERVE as error:
                left_s = (self._until - monotonic_ms()) / 1000
                if left_s <= 0:
                    raise
                failures += 1
                if failures == 1:
                    log.warning("group %s: %s It is waited for, up to %.0f s", self._group, sentence(error), left_s)
            await anyio.sleep(min(BACKOFF_S.pause(failures), left_s))
