"""Waits for servers that are not up yet when a program starts."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

import anyio

from cobalance.errors import Unreachable
from cobalance.group.engine import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("cobalance")

FIRST_S, LAST_S = 0.1, 1.0
"""Delays between attempts double from the first to the last."""

T = TypeVar("T")


def with_patience(attempt: Callable[[], T], timeout_s: float, may_come_up: Callable[[Exception], bool]) -> T:
    """Repeats the attempt until it succeeds, the server cannot be expected to come up, or the time is up. Returns or
    raises the last result. Blocks; needs no event loop.
    """
    until, delay_s = time.monotonic() + timeout_s, FIRST_S
    while True:
        try:
            return attempt()
        except Exception as error:
            left_s = until - time.monotonic()
            if left_s <= 0 or not may_come_up(error):
                raise
        time.sleep(min(delay_s, left_s))
        delay_s = min(2 * delay_s, LAST_S)


class Patience:
    """One deadline for all servers of a group, counted from construction."""

    def __init__(self, group: str, timeout_s: float) -> None:
        self._group, self._until = group, monotonic_ms() + timeout_s * 1000

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeats the attempt until it succeeds, and returns its result.

        Raises:
            Unreachable: none succeeded in time.
        """
        delay_s, told = FIRST_S, False
        while True:
            try:
                return await attempt()
            except Unreachable as error:
                left_s = (self._until - monotonic_ms()) / 1000
                if left_s <= 0:
                    raise
                if not told:
                    log.warning("group %s: %s It is waited for, up to %.0f s", self._group, error, left_s)
                    told = True
            await anyio.sleep(min(delay_s, left_s))
            delay_s = min(2 * delay_s, LAST_S)
