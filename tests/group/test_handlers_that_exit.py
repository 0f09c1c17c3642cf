"""``sys.exit()`` and Ctrl-C in the program's code end the process, and with it the membership."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.consumers import bodies_in, channel, new_topic
from tests.names import unique

from cobalance import GroupAdmin
from cobalance.rabbitmq import Topic

CONSUMER = """
import sys
import anyio
from cobalance import ConsumerGroup, GroupSettings, run

def leave():
    print("began", flush=True)
    {statement}

async def handle_async(delivery):
    leave()

def handle_plain(delivery):
    leave()

async def be_member(group):
    async with group:
        await anyio.sleep_forever()

group = ConsumerGroup(
    "g",
    sys.argv[1],
    handle_{kind},
    amqp_url=sys.argv[2],
    redis_url="memory://exit",
    settings=GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=300, revocation_timeout_ms=10_000),
)
if "{way}" == "run":
    run(group, backend="{backend}")
else:
    anyio.run(be_member, group, backend="{backend}")
"""

OLD = """
import sys
import anyio
from cobalance import ConsumerGroup, GroupSettings, Publisher, run
from cobalance.rabbitmq import grow_topic

topic, amqp_url = sys.argv[1:]

async def handle(delivery):
    if delivery.body == b"grow":
        grow_topic(amqp_url, topic, 2)
        with Publisher(amqp_url, topic) as publisher:
            publisher.publish("k", b"end")
    else:
        print("began", flush=True)
        {statement}

async def be_member(group):
    async with group:
        await anyio.sleep_forever()

group = ConsumerGroup(
    "g",
    topic,
    handle,
    amqp_url=amqp_url,
    redis_url="memory://exit",
    refresh_ms=100,
    settings=GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=300, revocation_timeout_ms=10_000),
)
if "{way}" == "run":
    run(group, backend="{backend}")
else:
    anyio.run(be_member, group, backend="{backend}")
"""

PUBLISHER = """
import sys
import anyio
from cobalance import AsyncPublisher

async def publish():
    await AsyncPublisher(sys.argv[2], sys.argv[1]).publish("k", b"1")
    {statement}

anyio.run(publish, backend="{backend}")
"""

THREADS = """
import logging, sys
from cobalance import BlockingGroup, GroupSettings

logging.basicConfig()

def leave(_):
    print("began", flush=True)
    {statement}

settings = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=300, revocation_timeout_ms=10_000)
with BlockingGroup("g", ["r"], redis_url="memory://exit", settings=settings, {callback}=leave) as group:
    group.wait_left()
    print("went on", type(group.failed).__name__, flush=True)
"""

LOOPS_LAST = """
import asyncio, sys
from cobalance import ConsumerGroup, GroupSettings

async def leave():
    sys.exit(7)

async def handle(delivery):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(leave())

async def be_member(topic, amqp_url, redis_url, name):
    settings = GroupSettings(session_timeout_ms=60_000, revocation_timeout_ms=60_000)
    async with ConsumerGroup(name, topic, handle, amqp_url=amqp_url, redis_url=redis_url, settings=settings):
        await asyncio.sleep(30)

asyncio.run(be_member(*sys.argv[1:]))
"""

EXITS = {"sys.exit(7)": 7, "raise KeyboardInterrupt": 130}
WAYS = ("run", "embedded")


def cases(*choices: Iterable[str]) -> list[Any]:
    """All combinations on both backends, those on trio for `make thorough`."""
    usual, thorough = product(["asyncio"], *choices), product(["trio"], *choices)
    return [*map(pytest.param, usual), *(pytest.param(it, marks=pytest.mark.thorough) for it in thorough)]


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url) as it:
        yield it


def end_of(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it, for two minutes at most."""
    (folder / "program.py").write_text(program)
    command = [sys.executable, "program.py", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("case", cases(WAYS, ["async", "plain"], EXITS), ids="-".join)
def test_a_handler_may_end_the_process(case: tuple[str, ...], topic: Topic, amqp_url: str, tmp_path: Path) -> None:
    """With its own exit code, after the message has returned to its queue."""
    backend, way, kind, statement = case
    with channel(amqp_url) as it:
        it.basic_publish("", topic.queue_names[0], b"1")
    program = CONSUMER.format(statement=statement, kind=kind, way=way, backend=backend)
    ended = end_of(tmp_path, program, topic.name, amqp_url)
    assert ended.stdout == "began\n"
    assert ended.returncode in {EXITS[statement], -2}, ended.stderr
    assert bodies_in(amqp_url, topic.queue_names[0]) == ["1"]


@pytest.mark.parametrize("case", cases(WAYS, EXITS), ids="-".join)
@pytest.mark.thorough
def test_so_may_that_of_a_member_that_has_looked_for_its_queues(
    case: tuple[str, ...], topic: Topic, amqp_url: str, tmp_path: Path
) -> None:
    """The handler gets a message of a queue that the running member discovered by itself."""
    backend, way, statement = case
    with channel(amqp_url) as it:
        it.basic_publish("", topic.queue_names[0], b"grow")
    ended = end_of(tmp_path, OLD.format(statement=statement, way=way, backend=backend), topic.name, amqp_url)
    assert ended.stdout == "began\n", ended.stderr
    assert ended.returncode in {EXITS[statement], -2}, ended.stderr


@pytest.mark.parametrize("case", cases(EXITS), ids="-".join)
def test_so_may_a_task_that_has_published(case: tuple[str, ...], topic: Topic, amqp_url: str, tmp_path: Path) -> None:
    """Even if its publisher was never closed."""
    backend, statement = case
    ended = end_of(tmp_path, PUBLISHER.format(statement=statement, backend=backend), topic.name, amqp_url)
    assert ended.returncode in {EXITS[statement], -2}, ended.stderr
    assert bodies_in(amqp_url, topic.queue_names[0]) == ["1"]


@pytest.mark.parametrize("statement", EXITS)
@pytest.mark.parametrize("callback", ["work", "on_assigned"])
def test_a_thread_may_end_the_process(callback: str, statement: str, tmp_path: Path) -> None:
    """The main thread, which waits for the end of the membership, ends as if it had exited itself."""
    ended = end_of(tmp_path, THREADS.format(statement=statement, callback=callback))
    assert ended.stdout.startswith("began\nwent on")
    assert "This portal is not running" not in ended.stderr
    assert "_Exit" not in ended.stderr  # the exception that carried it
    assert "ContainedExit" not in ended.stderr
    assert ended.returncode in {EXITS[statement], -2}, ended.stderr


@pytest.mark.thorough
def test_a_task_of_a_handlers_may_end_the_process(topic: Topic, amqp_url: str, redis_url: str, tmp_path: Path) -> None:
    """The exception ends the event loop again when the handler is cancelled, so nothing waits for the membership."""
    name = unique("exit")
    with channel(amqp_url) as it:
        it.basic_publish("", topic.queue_names[0], b"1")
    with GroupAdmin(redis_url) as admin:
        admin.create(name)
        ended = end_of(tmp_path, LOOPS_LAST, topic.name, amqp_url, redis_url, name)
        assert ended.returncode == 7, ended.stderr
        assert admin.describe(name).members == ()
