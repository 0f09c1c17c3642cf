"""Polls for conditions that send no event: the state of other threads, other processes and servers."""

from __future__ import annotations

from collections.abc import Callable

import anyio

WITHIN_S = 60.0
LOOK_EVERY_S = 0.01


async def eventually(condition: Callable[[], object], within_s: float = WITHIN_S) -> float:
    """Returns when the condition is true, with the longest time between two looks, in s: so long was this process held up.

    Raises:
        TimeoutError: it takes too long.
    """
    longest, looked_at = 0.0, anyio.current_time()
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(LOOK_EVERY_S)
            longest, looked_at = max(longest, anyio.current_time() - looked_at), anyio.current_time()
    return longest
