"""One process leads, the others stand by: a group with a single resource. Start it several times.

A leader leads for three rounds, then makes way. A leader that dies is replaced after the session timeout.
"""

import os

import anyio

from cobalance import Group

REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")


async def main() -> None:
    """Waits for the role, holds it for a while, and leaves."""
    async with Group("nightly-report", ["leader"], redis_url=REDIS_URL) as group, group.leadership() as role:
        for number in range(3):
            print(os.getpid(), f"leads with token {role.token}, round {number}", flush=True)
            await anyio.sleep(0.1)


anyio.run(main)
