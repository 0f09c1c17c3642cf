"""Polls for conditions that send no event: the state of other threads, other processes and servers."""

from __future__ import annotations

from collections.abc import Callable

import anyio

WITHIN_S = 30.0
LOOK_EVERY_S = 0.01


async def eventually(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Returns when the condition is true; raises TimeoutError when it takes too long."""
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 -- there is no event to wait for
            await anyio.sleep(LOOK_EVERY_S)
