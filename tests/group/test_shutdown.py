"""How a stopped process ends: drained, given up, or at once. Its exit code says which."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import attrs
import pytest
from tests.cli_process import Outcome, cobalance, running
from tests.consumers import until
from tests.names import unique
from tests.programs import NO_MORE_THREADS

from cobalance import Group, GroupSettings, MemberSettings, Tenure, run, servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import DrainTimedOut
from cobalance.rabbitmq import delete_topic
from cobalance.rabbitmq.topics.broker import ready_messages

pytestmark = pytest.mark.both_loops

HANDLER = """
import threading
import anyio

async def hang(delivery):
    print("began", flush=True)
    await anyio.sleep_forever()

def block(delivery):
    print("began", flush=True)
    threading.Event().wait()
"""

PROGRAM = """
import sys
import anyio
import shop
from cobalance import ConsumerGroup, GroupSettings, MemberSettings, run

async def be_member(group):
    async with group:
        await anyio.to_thread.run_sync(sys.stdin.readline)
    sys.exit(7)

group = ConsumerGroup(
    "g",
    sys.argv[2],
    shop.block,
    amqp_url=sys.argv[3],
    redis_url="memory://shutdown",
    settings=GroupSettings(session_timeout_ms=1_500, heartbeat_interval_ms=300, revocation_timeout_ms=3_000),
    member=MemberSettings(drain_timeout_ms=300),
)
if sys.argv[1] == "run":
    run(group, backend=sys.argv[4])
else:
    anyio.run(be_member, group, backend=sys.argv[4])
"""

SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=300, revocation_timeout_ms=10_000)


@pytest.fixture
def urls(redis_url: str, rabbitmq_server: servers.RabbitMQServer) -> dict[str, str]:
    """The environment variables that name the servers."""
    return {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": rabbitmq_server.url}


@pytest.fixture
def topic(urls: dict[str, str]) -> Iterator[str]:
    name = unique("shutdown")
    assert cobalance("topic", "create", name, "--partitions", "1", environment=urls) == Outcome(0, "", "")
    assert cobalance("publish", name, "endless", environment=urls).code == 0
    yield name
    delete_topic(urls["COBALANCE_AMQP_URL"], name, force=True)


@pytest.fixture
def command(topic: str, urls: dict[str, str], tmp_path: Path) -> tuple[str, ...]:
    """Consumes the topic, with a handler that never returns."""
    (tmp_path / "shop.py").write_text(HANDLER)
    group = unique("shutdown")
    timeouts = ("--session-timeout", "1500ms", "--heartbeat-interval", "300ms", "--revocation-timeout", "3s")
    assert cobalance("group", "create", group, *timeouts, environment=urls) == Outcome(0, "", "")
    return ("consume", topic, "--group", group, "--handler", "shop:hang")


@pytest.mark.parametrize("handler", ["hang", "block"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.thorough
def test_what_does_not_end_within_the_drain_timeout_is_given_up(
    number: int, handler: str, command: tuple[str, ...], urls: dict[str, str], tmp_path: Path
) -> None:
    """The exit code is 4, the message says how to wait longer, and the unfinished message is back in its queue. A
    thread that runs forever does not keep the process alive.
    """
    command = (*command[:-1], f"shop:{handler}")
    with running(*command, "--drain-timeout", "300ms", folder=tmp_path, environment=urls) as consumer:
        consumer.wait_for("began")
        outcome = consumer.end(number)
    assert outcome.code == 4
    assert "drain_timeout_ms" in outcome.err
    assert "Traceback" not in outcome.err
    queue = f"{command[1]}-0"
    anyio.run(until, lambda: ready_messages(urls["COBALANCE_AMQP_URL"], [queue]) == {queue: 1})


@pytest.mark.thorough
def test_a_handler_that_hangs_fails_after_max_processing(
    command: tuple[str, ...], urls: dict[str, str], tmp_path: Path
) -> None:
    """Its message is tried again, without end, until the process is stopped."""
    with running(*command, "--max-processing", "200ms", folder=tmp_path, environment=urls) as consumer:
        consumer.wait_for("longer than 200 ms")
        assert consumer.end(signal.SIGTERM).code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.thorough
def test_a_second_signal_ends_it_at_once(
    number: int, command: tuple[str, ...], urls: dict[str, str], tmp_path: Path
) -> None:
    """Long before the drain timeout, with the exit code of the signal."""
    with running(*command, "--drain-timeout", "10m", folder=tmp_path, environment=urls) as consumer:
        consumer.wait_for("began")
        consumer.process.send_signal(number)
        consumer.wait_for("finishing")
        outcome = consumer.end(number)
    assert outcome.code == 128 + number
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("way", ["run", "embedded"])
def test_a_thread_that_goes_on_keeps_no_program_from_ending(
    way: str, backend: str, topic: str, urls: dict[str, str], tmp_path: Path
) -> None:
    """It ends as it would have without it, with its own exit code and output."""
    (tmp_path / "shop.py").write_text(HANDLER)
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = [sys.executable, "program.py", way, topic, urls["COBALANCE_AMQP_URL"], backend]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, cwd=tmp_path, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout.readline() == "began\n"
            if way == "run":
                process.send_signal(signal.SIGTERM)
            _, err = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    assert process.returncode == (1 if way == "run" else 7)
    assert ("DrainTimedOut: group g: 1 resource" in err) == (way == "run")


STOPPED_AT_EXIT = """
import sys
from cobalance import BlockingGroup

began = threading.Event()

def work(tenure):
    began.set()
    tenure.wait_draining()
    tenure.commit(5)

group = BlockingGroup(sys.argv[2], ["r"], redis_url=sys.argv[1], work=work)
group.start()
began.wait()
for _ in range(int(sys.argv[3])):
    atexit.register(group.stop)
end_as_python_3_12()
"""


@pytest.mark.parametrize("times", ["1", "2"])
def test_an_exit_handler_may_stop_a_group_where_no_thread_can_be_started(
    times: str, redis_url: str, tmp_path: Path
) -> None:
    """As from Python 3.12 on: it finishes and hands over, without a word, also if another one has stopped it before."""
    program, name = tmp_path / "program.py", unique("exit")
    program.write_text(NO_MORE_THREADS + STOPPED_AT_EXIT)
    command = [sys.executable, str(program), redis_url, name, times]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    with closing(open_transport(redis_url)) as transport:
        coordinator = Coordinator(transport, name)
        assert [(it.owner, it.committed) for it in coordinator.resources()] == [(None, 5)]
        coordinator.delete()


@pytest.mark.anyio
async def test_an_embedded_member_installs_no_signal_handlers(redis_url: str) -> None:
    """Signals belong to the surrounding program."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with Group(unique("shutdown"), ["r"], redis_url=redis_url, settings=SETTINGS):
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_run_says_what_was_given_up() -> None:
    """`run` raises it once everything is closed. A program that does not catch it exits with 1."""

    async def work(_: Tenure) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()

    group = Group(
        "g",
        ["r"],
        redis_url=f"memory://{unique('run')}",
        settings=SETTINGS,
        member=MemberSettings(drain_timeout_ms=100),
        work=work,
    )
    with pytest.raises(DrainTimedOut, match=r"100 ms after .*: r; what was not acknowledged") as raised:
        run(group)
    assert group.given_up == ("r",)
    assert "revocation" not in str(raised.value)


def test_a_revocation_timeout_that_is_shorter_is_told_as_that() -> None:
    """A longer drain timeout would not have helped."""

    async def work(_: Tenure) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()

    group = Group(
        "g",
        ["r"],
        redis_url=f"memory://{unique('run')}",
        settings=attrs.evolve(SETTINGS, session_timeout_ms=1_500, revocation_timeout_ms=1_500),
        member=MemberSettings(drain_timeout_ms=600_000),
        work=work,
    )
    with pytest.raises(DrainTimedOut, match=r"timeout had passed.*: r; what was not acknowledged") as raised:
        run(group)
    assert group.given_up == ("r",)
    assert "revocation_timeout_ms" in str(raised.value)
    assert "drain_timeout_ms" not in str(raised.value)


def test_run_returns_after_a_clean_end() -> None:
    """Everything was finished in time."""

    async def work(tenure: Tenure) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await tenure.wait_draining()

    group = Group("g", ["r"], redis_url=f"memory://{unique('run')}", settings=SETTINGS, work=work)
    run(group)
    assert group.given_up == ()
