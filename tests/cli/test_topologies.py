"""Commands for growing topics, existing queues and halted partitions, run as users run them, on real servers."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli_process import Outcome, cobalance, running
from tests.consumers import channel
from tests.names import unique

from cobalance.rabbitmq import delete_topic

HANDLER = """
def show(delivery):
    print(delivery.queue, delivery.body.decode(), flush=True)

def fail(delivery):
    print("tried", delivery.body.decode(), flush=True)
    raise ValueError("secret")
"""


@pytest.fixture
def topic(amqp_url: str, urls: dict[str, str]) -> Iterator[str]:
    name = unique("cli")
    assert cobalance("topic", "create", name, "--partitions", "2", environment=urls).code == 0
    yield name
    delete_topic(amqp_url, name, force=True)


@pytest.fixture
def group(urls: dict[str, str]) -> str:
    name = unique("cli")
    assert cobalance("group", "create", name, environment=urls).code == 0
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with the handlers."""
    (tmp_path / "shop.py").write_text(HANDLER)
    return tmp_path


def test_a_topic_is_grown_described_and_pruned(topic: str, urls: dict[str, str]) -> None:
    """All layouts are shown; a message in an old queue keeps that queue (the key's is the first of two)."""
    assert cobalance("publish", topic, "hello", "--key", "d", environment=urls).code == 0
    grown = cobalance("topic", "grow", topic, "--partitions", "3", environment=urls)
    assert (grown.code, grown.out) == (0, "")
    assert "3 partitions (layout 2)" in grown.err
    described = json.loads(cobalance("topic", "describe", topic, "--json", environment=urls).out)
    assert (described["layout"], described["type"], described["dead_letters"]) == (2, "classic", 0)
    states = [row["state"] for row in described["queues"]]
    assert sorted(states) == ["old", "old, empty", "present", "present", "present"]
    pruned = cobalance("topic", "prune", topic, environment=urls).out
    assert (pruned.count("deleted"), pruned.count("still in use")) == (1, 1)
    table = cobalance("topic", "describe", topic, environment=urls).out
    assert table.splitlines()[0].split() == ["LAYOUT", "QUEUE", "STATE", "READY", "#CONSUMERS"]
    assert len(table.splitlines()) == 5
    assert cobalance("publish", topic, "again", "--key", "d", environment=urls).code == 0
    fewer = cobalance("topic", "grow", topic, "--partitions", "1", environment=urls)
    assert (fewer.code, "not fewer" in fewer.err) == (1, True)


@pytest.mark.thorough
def test_a_halted_partition_is_shown_and_resumed(topic: str, group: str, urls: dict[str, str], folder: Path) -> None:
    """From the first failure to the second attempt, without quoting the message or the error."""
    arguments = ("consume", topic, "--group", group, "--retries", "0", "--on-error", "halt", "--handler", "shop:fail")
    with running(*arguments, "--no-log-exceptions", environment=urls, folder=folder) as consumer:
        assert cobalance("publish", topic, "bad", "--key", "a", environment=urls).code == 0
        consumer.wait_for("tried bad")
        row, described = _wait_halted(group, urls)
        assert row["state"] == "halted: ValueError"
        assert "cobalance group resume" in described.err
        name = f"{row['topic']}-{row['partition']}"
        resumed = cobalance("group", "resume", group, name, environment=urls)
        assert (resumed.code, resumed.out.split()) == (0, ["PARTITION", "RESULT", name, "resumed"])
        _wait_halted(group, urls)
        assert "".join(consumer.out).count("tried bad") == 2
        assert cobalance("group", "resume", group, "--all", environment=urls).out.split()[2:] == [name, "resumed"]
        assert "secret" not in consumer.end(signal.SIGTERM).err
    assert cobalance("group", "resume", group, "nothing", environment=urls).code == 1
    assert cobalance("group", "resume", group, environment=urls).code == 2


def _wait_halted(group: str, urls: dict[str, str]) -> tuple[dict[str, str], Outcome]:
    for _ in range(100):
        described = cobalance("group", "describe", group, "--json", environment=urls)
        halted = [row for row in json.loads(described.out) if row["state"].startswith("halted")]
        if halted:
            return halted[0], described
    raise AssertionError("nothing was halted")


@pytest.mark.thorough
def test_queues_that_exist_are_consumed(group: str, urls: dict[str, str], folder: Path, amqp_url: str) -> None:
    """By name, and by a pattern; exactly one kind of source must be given."""
    name = unique("cli")
    handler = ("--group", group, "--handler", "shop:show")
    with channel(amqp_url) as it:
        it.queue_declare(f"{name}-a", durable=True)
        it.basic_publish("", f"{name}-a", b"one")
        with running("consume", "--queue", f"{name}-a", *handler, environment=urls, folder=folder) as consumer:
            consumer.wait_for(f"{name}-a one")
            consumer.end(signal.SIGTERM)
        other = unique("cli")
        assert cobalance("group", "create", other, environment=urls).code == 0
        handler = ("--group", other, "--handler", "shop:show")
        it.basic_publish("", f"{name}-a", b"two")
        with running("consume", "--matching", f"{name}-.", *handler, environment=urls, folder=folder) as consumer:
            consumer.wait_for(f"{name}-a two")
            consumer.end(signal.SIGTERM)
        it.queue_delete(f"{name}-a")
    for wrong in ((), ("orders", "--queue", "a"), ("--bound-to", "x", "--matching", "y")):
        refused = cobalance("consume", *wrong, *handler, environment=urls)
        assert (refused.code, "Give one of" in refused.err) == (2, True)
