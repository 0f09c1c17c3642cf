"""From a group's journal to better timeouts: exports, calibrates, searches and plots, with Spark.

    pip install 'cobalance[spark]'
    python examples/tune_from_journal.py FOLDER

A small group of processes shares shelves, whose orders take a second or two, and is deployed twice; its revocation
timeout is too short for that. FOLDER then holds the journal, the fitted model, the recommendation, and report.html, a
page to look at.
"""

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import anyio

from cobalance import Group, Tenure, run
from cobalance.errors import DrainTimedOut

REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
SHELVES = [f"shelf-{number}" for number in range(16)]
MEMBERS, DEPLOYS = 3, 2
REFUSED = 5  # tune's exit code if it has nothing to recommend


async def work(shelf: Tenure) -> None:
    """Picks one order after the other; an order that has begun is finished before the shelf is released."""
    print("works", flush=True)
    while shelf.active:
        await pick_order()


async def pick_order() -> None:
    """A second or two of work."""
    await anyio.sleep(random.lognormvariate(0.4, 0.7))


def start_member() -> subprocess.Popen[bytes]:
    """Starts a process of the group, which is this file again."""
    return subprocess.Popen([sys.executable, __file__, "--member"], stdout=subprocess.PIPE)


def await_work(member: subprocess.Popen[bytes]) -> None:
    """Waits until the member has a shelf."""
    if member.stdout is not None:
        member.stdout.readline()


def command(*words: str) -> int:
    """Runs `cobalance sims …` in this process, so that Spark starts only once."""
    from cobalance.cli.app import run

    print("$ cobalance sims", *words, flush=True)
    return run(["sims", *words])


def live() -> None:
    """The group starts, is deployed twice, and one of its processes crashes."""
    settings = ["--session-timeout", "3s", "--heartbeat-interval", "1s", "--revocation-timeout", "3s", "--gather", "0s"]
    create = [sys.executable, "-m", "cobalance.cli", "group", "create", "warehouse", "--redis-url", REDIS_URL]
    subprocess.run([*create, *settings], check=True)
    members = [start_member() for _ in range(MEMBERS)]
    for member in members:
        await_work(member)
    for _ in range(DEPLOYS * MEMBERS):
        leaving = members.pop(0)
        leaving.terminate()
        leaving.wait()
        members.append(start_member())
        await_work(members[-1])
        time.sleep(2)  # time for the others to hand over to it
    members.pop().kill()
    time.sleep(5)
    for member in members:
        member.terminate()
    for member in members:
        member.wait()


def analyse(folder: Path) -> int:
    """Journal → Parquet → churn → recommendation → page."""
    from cobalance_sims.spark.session import spark_session

    journal, churn, tuned, page = (str(folder / name) for name in ("journal", "churn", "tune.json", "report.html"))
    preferences = ["--weight", "forced=10", "--seeds", "12", "--tolerance", "0.3"]
    with spark_session():
        code = command("journal", "--group", "warehouse", "--redis-url", REDIS_URL, "--out", journal)
        code = code or command("calibrate", journal, "--out", churn)
        code = code or command("tune", "--churn", churn, "--out", tuned, *preferences)
        if code in {0, REFUSED}:
            code = command("report", tuned, journal, "--out", page) or code
    return code


if __name__ == "__main__":
    if sys.argv[1:] == ["--member"]:
        with suppress(DrainTimedOut):  # work that the current timeout cuts short
            run(Group("warehouse", SHELVES, redis_url=REDIS_URL, work=work))
    else:
        live()
        sys.exit(analyse(Path(sys.argv[1])))
