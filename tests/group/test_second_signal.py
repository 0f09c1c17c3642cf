"""Ctrl-C twice, as whoever sits in front of the program: the first has it leave, the second ends it at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

SETTINGS = """
import sys, threading, time
from cobalance import *
from cobalance.rabbitmq import create_topic

SETTINGS = GroupSettings(session_timeout_ms=30_000, heartbeat_interval_ms=300, revocation_timeout_ms=90_000)
OPTIONS = dict(redis_url="memory://r", settings=SETTINGS, member=MemberSettings(drain_timeout_ms=60_000))
URL = "memory://b"

def publish():
    with Publisher(URL, create_topic(URL, Topic("t", partitions=1))) as publisher:
        publisher.publish("k", b"1")

def for_ever(*_):
    print("began", flush=True)
    while True:
        time.sleep(60)

def tell(tenure):
    tenure.wait_draining()
    print("leaving", flush=True)

def watch(group):
    (tenure,) = group.wait_held()
    threading.Thread(target=tell, args=(tenure,), daemon=True).start()
"""

BLOCKING = {
    "group": """
with BlockingGroup("g", ["r"], work=for_ever, **OPTIONS) as group:
    watch(group)
    group.wait_left()
""",
    "consumer": """
publish()
with BlockingConsumerGroup("g", "t", for_ever, amqp_url=URL, **OPTIONS) as group:
    watch(group)
    group.wait_left()
""",
    "start-stop": """
publish()
group = BlockingConsumerGroup("g", "t", for_ever, amqp_url=URL, **OPTIONS)
group.start()
try:
    watch(group)
    group.wait_left()
finally:
    group.stop()
""",
}

RUN = {
    "plain": """
publish()
async def assigned(tenures):
    async def tell():
        try:
            await tenures[0].wait_draining()
        finally:
            print("leaving", flush=True)
    group._tasks.start_soon(tell)
group = ConsumerGroup("g", "t", for_ever, amqp_url=URL, on_assigned=assigned, **OPTIONS)
run(group, backend="{backend}")
""",
    "blocks-its-event-loop": """
publish()
async def handle(delivery):
    for_ever()
group = ConsumerGroup("g", "t", handle, amqp_url=URL, **OPTIONS)
run(group, backend="{backend}")
""",
}


def ends(folder: Path, program: str, wait: Callable[[IO[str]], None]) -> tuple[int, str]:
    """Starts it, and sends Ctrl-C twice; its exit code and what it wrote."""
    (folder / "program.py").write_text(SETTINGS + program)
    command = [sys.executable, "program.py"]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as it:
        overdue = threading.Timer(30, it.kill)
        overdue.start()
        try:
            assert it.stdout is not None
            assert it.stdout.readline() == "began\n"
            it.send_signal(signal.SIGINT)
            wait(it.stdout)
            it.send_signal(signal.SIGINT)
            _, errors = it.communicate(timeout=10)
        finally:
            overdue.cancel()
            it.kill()
    return it.returncode, errors


def leaving(output: IO[str]) -> None:
    """The first Ctrl-C has begun the leaving."""
    assert output.readline() == "leaving\n"


@pytest.mark.parametrize("program", BLOCKING)
def test_a_second_ctrl_c_ends_a_program_with_threads(program: str, tmp_path: Path) -> None:
    """Though its handler never returns."""
    code, errors = ends(tmp_path, BLOCKING[program], leaving)
    assert code in {130, -signal.SIGINT}, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("program", RUN)
def test_a_second_ctrl_c_ends_run(program: str, backend: str, tmp_path: Path) -> None:
    """Though its handler never returns, or lets the event loop do nothing else."""
    wait = leaving if program == "plain" else lambda _: None
    code, errors = ends(tmp_path, RUN[program].format(backend=backend), wait)
    assert code == 130, errors
