"""Pressing Ctrl-C twice: the first one makes the program leave, the second one ends it at once."""

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

busy = threading.Event()

def for_ever(*_):
    busy.set()
    while True:
        time.sleep(0.05)

def tell(tenure):
    tenure.wait_draining()
    print("leaving", flush=True)

def watch(group):
    (tenure,) = group.wait_held()
    threading.Thread(target=tell, args=(tenure,), daemon=True).start()
    busy.wait()
    print("began", flush=True)

def tell_and_go_on(*_):
    print("began", flush=True)
    for_ever()
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
    group.membership.tasks.start(tell)
group = ConsumerGroup("g", "t", tell_and_go_on, amqp_url=URL, on_assigned=assigned, **OPTIONS)
run(group, backend="{backend}")
""",
    "blocks-its-event-loop-alone": """
async def work(tenure):
    tell_and_go_on()
def tell_left():
    busy.wait()
    group.membership.engine.wait_left()
    print("left", flush=True)
times = GroupSettings(session_timeout_ms=1_000, heartbeat_interval_ms=300)
own = MemberSettings(drain_timeout_ms=100)
group = Group("g", ["r"], work=work, redis_url="memory://r", settings=times, member=own)
threading.Thread(target=tell_left, daemon=True).start()
run(group, backend="{backend}")
""",
    "blocks-its-event-loop": """
publish()
async def handle(delivery):
    tell_and_go_on()
group = ConsumerGroup("g", "t", handle, amqp_url=URL, **OPTIONS)
run(group, backend="{backend}")
""",
}


def ends(
    folder: Path, program: str, wait: Callable[[IO[str]], None], second: signal.Signals = signal.SIGINT
) -> tuple[int, str]:
    """Starts the program, sends Ctrl-C and this signal, and returns its exit code and output."""
    (folder / "program.py").write_text(SETTINGS + program)
    command = [sys.executable, "program.py"]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as it:
        overdue = threading.Timer(60, it.kill)
        overdue.start()
        try:
            assert it.stdout is not None
            assert it.stdout.readline() == "began\n"
            it.send_signal(signal.SIGINT)
            wait(it.stdout)
            it.send_signal(second)
            _, errors = it.communicate(timeout=60)
        finally:
            overdue.cancel()
            it.kill()
    return it.returncode, errors


def leaving(output: IO[str]) -> None:
    """The first Ctrl-C has started the leave."""
    assert output.readline() == "leaving\n"


def left(output: IO[str]) -> None:
    """The group has been left."""
    assert output.readline() == "left\n"


@pytest.mark.parametrize("program", BLOCKING)
def test_a_second_ctrl_c_ends_a_program_with_threads(program: str, tmp_path: Path) -> None:
    """Even if its handler never returns."""
    code, errors = ends(tmp_path, BLOCKING[program], leaving)
    assert code in {130, -signal.SIGINT, 1}, errors  # 1: another thread called eval(), as imports do, before the exit
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_second_ctrl_c_ends_run(backend: str, tmp_path: Path) -> None:
    """Even if its handler never returns."""
    code, errors = ends(tmp_path, RUN["plain"].format(backend=backend), leaving)
    assert code == 130, errors


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_first_signal_gives_back_what_a_blocked_event_loop_holds(backend: str, tmp_path: Path) -> None:
    """Others get it when the drain timeout is over. The process goes on, until the second signal."""
    program = RUN["blocks-its-event-loop-alone"].format(backend=backend)
    code, errors = ends(tmp_path, program, left, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM, errors


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_second_signal_ends_run_though_its_handler_blocks_the_event_loop(backend: str, tmp_path: Path) -> None:
    """The second signal differs from the first, about which nothing can be logged: Python merges two of the same kind
    that arrive at once.
    """
    program = RUN["blocks-its-event-loop"].format(backend=backend)
    code, errors = ends(tmp_path, program, lambda _: None, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM, errors
