"""Anything with a name can be shared: here folders, whose files are processed in order. Start it several times.

    python examples/any_resource.py FOLDER

Each folder inside FOLDER is a resource. The number of files done is committed, so the next holder continues from there.
"""

import os
import sys
from pathlib import Path

import anyio

from cobalance import Group, Tenure, run

REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
INBOX = Path(sys.argv[1])


async def work(folder: Tenure) -> None:
    """Works on one folder until it is revoked."""
    done = folder.committed or 0
    while folder.active:
        files = sorted([path.name async for path in anyio.Path(INBOX / folder.resource).iterdir()])
        for name in files[done : done + 1]:
            print(os.getpid(), folder.resource, name, flush=True)
            done += 1
            await folder.commit(done)
        if done == len(files):
            await anyio.sleep(0.1)


run(Group("inbox", sorted(path.name for path in INBOX.iterdir()), redis_url=REDIS_URL, work=work))
