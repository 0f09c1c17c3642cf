"""Commands with ``--watch``, in processes of their own until Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli_process import Outcome, cobalance, running
from tests.consumers import new_topic
from tests.names import unique

from cobalance import Topic, servers
from cobalance.servers.ports import free_port


@pytest.fixture
def urls(redis_url: str, rabbitmq_server: servers.RabbitMQServer) -> dict[str, str]:
    return {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": rabbitmq_server.url}


@pytest.fixture
def group(urls: dict[str, str]) -> str:
    name = unique("watched")
    assert cobalance("group", "create", name, environment=urls) == Outcome(0, "", "")
    return name


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, 2) as it:
        yield it


@contextmanager
def consumer(topic: Topic, group: str, urls: dict[str, str], folder: Path) -> Iterator[None]:
    """A member at work."""
    (folder / "shop.py").write_text("def handle(delivery): ...\n")
    command = ("consume", topic.name, "--group", group, "--handler", "shop:handle")
    with running(*command, folder=folder, environment=urls) as it:
        it.wait_for("joined group")
        yield


@pytest.mark.thorough
def test_a_program_reads_a_line_each_time(topic: Topic, group: str, urls: dict[str, str], tmp_path: Path) -> None:
    """Each is the whole, as JSON, and the next one has what changed."""
    command = ("group", "describe", group, "--watch", "--json")
    with running(*command, folder=tmp_path, environment=urls) as watching:
        watching.wait_for("[]")
        with consumer(topic, group, urls, tmp_path):
            watching.wait_for('"verdict": "OK"')
        outcome = watching.end(signal.SIGINT)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert lines[0] == []
    assert {row["resource"] for row in lines[-1]} == set(topic.queue_names)


def test_a_server_that_goes_is_waited_for(group: str, urls: dict[str, str], tmp_path: Path) -> None:
    """It says so once, and goes on."""
    nowhere = f"redis://127.0.0.1:{free_port()}"
    command = ("group", "describe", group, "--state", "--watch")
    with running(*command, folder=tmp_path, environment=urls | {"COBALANCE_REDIS_URL": nowhere}) as watching:
        watching.wait_for("warning: Redis at redis://127.0.0.1")
        outcome = watching.end(signal.SIGINT)
    assert (outcome.code, outcome.err.count("cannot be reached")) == (0, 1)


@pytest.mark.thorough
def test_on_a_terminal_it_is_shown_in_place(topic: Topic, group: str, urls: dict[str, str], tmp_path: Path) -> None:
    """With the time, and remarks below."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "cobalance.cli", "group", "describe", group, "--watch"]
    terminal = {**os.environ, **urls, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    with (
        consumer(topic, group, urls, tmp_path),
        subprocess.Popen(command, stdout=slave, stderr=slave, env=terminal) as watching,
    ):
        seen = b""
        while seen.count(b"VERDICT") < 2:
            seen += os.read(master, 65_536)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
    while b"\x1b[?25h" not in seen:  # the cursor is shown again
        seen += os.read(master, 65_536)
    os.close(master)
    os.close(slave)
    text = seen.decode()
    assert re.search(r"\d\d:\d\d:\d\d", text)
    assert topic.queue_names[0] in text
    assert "\x1b[1A" in text or "\x1b[2K" in text, "the cursor goes back"


@pytest.mark.thorough
def test_lag_by_topic(topic: Topic, group: str, urls: dict[str, str], tmp_path: Path) -> None:
    """A row each, with the sum, the most and the worst verdict; a group that is not there is named."""
    with running("group", "lag", group, "--watch", "--json", folder=tmp_path, environment=urls) as watching:
        watching.wait_for("[]")
        with consumer(topic, group, urls, tmp_path):
            watching.wait_for('"verdict": "OK"')
            outcome = cobalance("group", "lag", group, environment=urls)
            while "are unknown, since no member" in outcome.err:  # on a busy machine it may answer too late
                outcome = cobalance("group", "lag", group, environment=urls)
        watching.end(signal.SIGINT)
    heading, row = (line.split() for line in outcome.out.splitlines())
    assert dict(zip(heading, row, strict=True)).items() >= {
        ("GROUP", group),
        ("TOPIC", topic.name),
        ("#PARTITIONS", "2"),
        ("LAG", "0"),
        ("MAX-LAG", "0"),
        ("VERDICT", "OK"),
    }
    assert cobalance("group", "lag", "nowhere", environment=urls).code == 1
    nowhere = urls | {"COBALANCE_AMQP_URL": f"amqp://127.0.0.1:{free_port()}"}
    (unknown,) = json.loads(cobalance("group", "lag", group, "--json", environment=nowhere).out)
    assert (unknown["lag"], unknown["max_lag"], unknown["in_flight"], unknown["verdict"]) == (None, None, None, None)


def test_history_shows_the_newest(group: str, urls: dict[str, str], tmp_path: Path) -> None:
    """As many as are wanted, again and again, with what is new."""
    command = ("group", "history", group, "--watch", "--last", "2")
    with running(*command, folder=tmp_path, environment=urls) as watching:
        watching.wait_for("incarnation")
        assert cobalance("group", "configure", group, "--gather", "77ms", environment=urls).code == 0
        watching.wait_for("gather_ms 77")
        outcome = watching.end(signal.SIGINT)
    *_, before, last = [line.split() for line in outcome.out.splitlines() if line]
    assert (outcome.code, before[2], last[2]) == (0, "configured", "configured")
    assert cobalance("group", "history", group, "--watch", "--follow", environment=urls).code == 2
