"""Streams on the command line: created, published to, consumed, described, and their offsets reset; on real servers."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli_process import Outcome, cobalance, running
from tests.names import unique
from tests.streams import new_stream, wait_for_next_second

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.transport import open_transport
from cobalance.journal import Journal
from cobalance.rabbitmq import delete_topic, read_topic

HANDLER = """
def show(delivery):
    print(delivery.queue, delivery.offset, delivery.body.decode(), flush=True)
"""
COUNT = 30


@pytest.fixture
def urls(redis_url: str, amqp_url: str) -> dict[str, str]:
    """The environment that names the servers."""
    return {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}


@pytest.fixture
def group(urls: dict[str, str]) -> str:
    """A group that is known to be new, with short timeouts."""
    name = unique("cli")
    timeouts = ("--session-timeout", "2s", "--heartbeat-interval", "500ms", "--revocation-timeout", "5s")
    assert cobalance("group", "create", name, *timeouts, environment=urls) == Outcome(0, "", "")
    return name


@pytest.fixture
def topic(amqp_url: str, urls: dict[str, str]) -> Iterator[str]:
    """One stream with thirty messages."""
    name = unique("cli")
    created = cobalance("topic", "create", name, "--partitions", "1", "--type", "stream", environment=urls)
    assert created == Outcome(0, "", "")
    lines = "".join(f"{number}\n" for number in range(COUNT))
    assert cobalance("publish", name, "--key", "k", stdin=lines, environment=urls).code == 0
    yield name
    delete_topic(amqp_url, name, force=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the handler is."""
    (tmp_path / "shop.py").write_text(HANDLER)
    return tmp_path


def consume(topic: str, group: str, *options: str) -> tuple[str, ...]:
    """The command line of a consumer."""
    return ("consume", topic, "--group", group, "--handler", "shop:show", *options)


def committed(redis_url: str, group: str) -> dict[str, int | None]:
    """Stream → committed offset."""
    transport = open_transport(redis_url)
    try:
        return {row.name: row.committed for row in Coordinator(transport, group).resources()}
    finally:
        transport.close()


@pytest.fixture
def consumed(topic: str, group: str, urls: dict[str, str], folder: Path) -> str:
    """The topic, after a member of the group has read all of it and left."""
    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for(f"{topic}-0 {COUNT - 1} ")
        assert consumer.end(signal.SIGTERM).code == 0
    return topic


def reset(group: str, *options: str, urls: dict[str, str]) -> Outcome:
    """The command."""
    return cobalance("group", "reset-offsets", group, *options, environment=urls)


def test_a_topic_of_streams(urls: dict[str, str], amqp_url: str) -> None:
    """With how long to keep messages; repeating it is harmless, and other queues have no such thing."""
    name = unique("cli")
    create = (
        "topic",
        "create",
        name,
        "--partitions",
        "2",
        "--type",
        "stream",
        "--max-age",
        "7D",
        "--max-bytes",
        "100000000",
    )
    assert cobalance(*create, environment=urls) == Outcome(0, "", "")
    assert cobalance(*create, environment=urls) == Outcome(0, "", "")
    made = read_topic(amqp_url, name)
    assert (made.queue_type, made.partitions) == ("stream", 2)
    assert (made.retention.max_age, made.retention.max_bytes) == ("7D", 100_000_000)
    assert cobalance("topic", "delete", name, environment=urls).code == 0
    refused = cobalance("topic", "create", name, "--partitions", "2", "--max-age", "7D", environment=urls)
    assert (refused.code, "for streams" in refused.err) == (2, True)


def test_a_stream_is_consumed_on_from_where_the_last_member_left(
    consumed: str, group: str, urls: dict[str, str], folder: Path, redis_url: str
) -> None:
    """Nothing comes twice, and describe says how far it is."""
    assert committed(redis_url, group) == {f"{consumed}-0": COUNT - 1}
    cobalance("publish", consumed, "more", "--key", "k", environment=urls)
    described = cobalance("group", "describe", group, "--json", environment=urls)
    (row,) = json.loads(described.out)
    assert (row["current_offset"], row["log_end_offset"], row["lag"]) == (COUNT - 1, COUNT, 1)
    with running(*consume(consumed, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for(f"{consumed}-0 {COUNT} more")
        assert consumer.end(signal.SIGTERM).out.splitlines() == [f"{consumed}-0 {COUNT} more"]


@pytest.mark.parametrize(("start", "first"), [("28", 28), ("next", COUNT), ("2999-01-01T00:00:00", COUNT)])
def test_where_a_new_group_begins(
    topic: str, group: str, urls: dict[str, str], folder: Path, redis_url: str, start: str, first: int
) -> None:
    """The start is in the options of consume."""
    options = ("--start", start, "--commit-every", "1", "--lock")
    with running(*consume(topic, group, *options), folder=folder, environment=urls) as consumer:
        consumer.wait_for("joined group")
        while committed(redis_url, group).get(f"{topic}-0") is None:
            pass
        cobalance("publish", topic, "more", "--key", "k", environment=urls)
        consumer.wait_for("more")
        lines = consumer.end(signal.SIGTERM).out.splitlines()
    assert [int(line.split()[1]) for line in lines] == list(range(first, COUNT + 1))


@pytest.mark.parametrize("start", ["latest", "2026-13-01T00:00:00"])
def test_a_start_that_is_none(topic: str, group: str, urls: dict[str, str], folder: Path, start: str) -> None:
    """Said at once, before anything is joined."""
    with running(*consume(topic, group, "--start", start), folder=folder, environment=urls) as consumer:
        outcome = consumer.wait()
    assert outcome.code == 2
    assert "time" in outcome.err


@pytest.mark.parametrize(
    ("options", "following"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), COUNT),
        (("--to-current",), COUNT),
        (("--to-offset", "7"), 7),
        (("--to-offset", "7000"), COUNT),
        (("--shift-by", "-5"), COUNT - 5),
        (("--shift-by", "-500"), 0),
        (("--shift-by", "5"), COUNT),
        (("--to-datetime", "2020-01-01T00:00:00.000"), 0),
        (("--to-datetime", "2999-01-01T00:00:00+02:00"), COUNT),
        (("--by-duration", "P1D"), 0),
        (("--by-duration", "PT0S"), COUNT),
        (("--by-duration", "2h"), 0),
    ],
    ids=str,
)
def test_kafkas_flags(
    consumed: str, group: str, urls: dict[str, str], redis_url: str, options: tuple[str, ...], following: int
) -> None:
    """Each is worked out and shown; done only with --execute, then in Redis and in the journal."""
    stream = f"{consumed}-0"
    if options == ("--by-duration", "PT0S"):
        wait_for_next_second()
    shown = reset(group, "--topic", consumed, *options, "--json", urls=urls)
    expected = {
        "group": group,
        "topic": consumed,
        "partition": "0",
        "new_offset": following,
        "committed": following - 1,
    }
    assert json.loads(shown.out) == [expected]
    assert "dry run" in shown.err
    clamped = options[-1] in {"7000", "-500", "5"}
    assert ("the nearest is" in shown.err) == clamped
    assert committed(redis_url, group) == {stream: COUNT - 1}
    done = reset(group, "--topic", consumed, *options, "--execute", urls=urls)
    assert done.code == 0
    assert done.out.split()[:5] == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "COMMITTED"]
    assert committed(redis_url, group) == {stream: following - 1}
    transport = open_transport(redis_url)
    (entry,) = [it for it in Journal(transport, group).entries() if it.kind == "reset"]
    transport.close()
    assert (entry.resource, entry.committed, entry.reason) == (stream, following - 1, f"was {COUNT - 1}")


def test_after_a_reset_messages_come_again(consumed: str, group: str, urls: dict[str, str], folder: Path) -> None:
    """From the one that was named on."""
    assert reset(group, "--topic", f"{consumed}:0", "--to-offset", "27", "--execute", urls=urls).code == 0
    with running(*consume(consumed, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for(f"{consumed}-0 {COUNT - 1} ")
        lines = consumer.end(signal.SIGTERM).out.splitlines()
    assert [int(line.split()[1]) for line in lines] == [27, 28, 29]


def test_a_plan_is_exported_and_carried_out(
    consumed: str, group: str, urls: dict[str, str], redis_url: str, tmp_path: Path
) -> None:
    """What --export writes, --from-file reads; streams that belong to no topic have their names in it."""
    with new_stream(urls["COBALANCE_AMQP_URL"], 5) as lone:
        written = reset(group, "--topic", consumed, "--resource", lone.name, "--to-offset", "3", "--export", urls=urls)
        assert written.out == f"{consumed},0,3\n,{lone.name},3\n".replace(f",{lone.name},3", _row(lone.name))
        plan = tmp_path / "plan.csv"
        plan.write_text(written.out)
        assert reset(group, "--from-file", str(plan), "--execute", urls=urls).code == 0
        assert committed(redis_url, group)[f"{consumed}-0"] == 2
        only = reset(group, "--topic", consumed, "--from-file", str(plan), "--json", urls=urls)
        assert [row["topic"] for row in json.loads(only.out)] == [consumed]


def _row(name: str) -> str:
    """A name that ends in a dash and digits reads as a topic's partition."""
    topic, _, number = name.rpartition("-")
    return f"{topic},{number},3" if number.isdecimal() else f",{name},3"


def test_a_group_with_a_member_is_refused(
    topic: str, group: str, urls: dict[str, str], folder: Path, redis_url: str
) -> None:
    """And its offsets stay; once it has crashed, its session is waited for."""
    with running(*consume(topic, group, "--commit-every", "1"), folder=folder, environment=urls) as consumer:
        consumer.wait_for(f"{topic}-0 {COUNT - 1} ")
        while committed(redis_url, group) != {f"{topic}-0": COUNT - 1}:
            pass
        refused = reset(group, "--all-topics", "--to-earliest", "--execute", urls=urls)
        assert (refused.code, "has members" in refused.err) == (1, True)
        assert committed(redis_url, group) == {f"{topic}-0": COUNT - 1}
        consumer.process.kill()
    done = reset(group, "--all-topics", "--to-earliest", "--execute", urls=urls)
    assert done.code == 0
    assert committed(redis_url, group) == {f"{topic}-0": -1}


def test_a_new_group_can_be_told_where_to_begin(topic: str, group: str, urls: dict[str, str], folder: Path) -> None:
    """Before its first member starts."""
    assert reset(group, "--topic", topic, "--to-offset", "28", "--execute", urls=urls).code == 0
    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for(f"{topic}-0 {COUNT - 1} ")
        lines = consumer.end(signal.SIGTERM).out.splitlines()
    assert [int(line.split()[1]) for line in lines] == [28, 29]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Give one of"),
        (("--topic", "TOPIC"), "Give one of"),
        (("--topic", "TOPIC", "--to-earliest", "--to-latest"), "Give one of"),
        (("--to-earliest",), "Say which streams"),
        (("--topic", "TOPIC", "--all-topics", "--to-earliest"), "Say which streams"),
        (("--topic", "TOPIC:0,1", "--to-earliest"), "partitions 0 to 0"),
        (("--topic", "TOPIC", "--to-earliest", "--execute", "--export"), "Give one of --dry-run"),
        (("--topic", "TOPIC", "--shift-by", "1"), "no committed offset"),
        (("--topic", "TOPIC", "--to-datetime", "yesterday"), "no time"),
        (("--topic", "TOPIC", "--by-duration", "P"), "no duration"),
        (("--from-file", "/no/such/file"), "cannot be read"),
        (("--resource", "no-such-stream", "--to-earliest"), "no stream 'no-such-stream'"),
    ],
    ids=str,
)
def test_what_makes_no_sense(
    topic: str, group: str, urls: dict[str, str], options: tuple[str, ...], words: str
) -> None:
    """Is told in one line, and nothing is done."""
    outcome = reset(group, *(it.replace("TOPIC", topic) for it in options), urls=urls)
    assert outcome.code in {1, 2}
    assert words in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_queues_keep_no_offsets(group: str, urls: dict[str, str], amqp_url: str) -> None:
    """What was acknowledged is gone."""
    name = unique("cli")
    cobalance("topic", "create", name, "--partitions", "1", environment=urls)
    outcome = reset(group, "--topic", name, "--to-earliest", urls=urls)
    delete_topic(amqp_url, name, force=True)
    assert (outcome.code, "keeps no offsets" in outcome.err) == (2, True)


@pytest.mark.parametrize("line", ["orders,0", "orders,0,x", "orders,,3", "orders,0,-1"])
def test_a_file_that_is_no_plan(group: str, urls: dict[str, str], tmp_path: Path, line: str) -> None:
    """The line is named."""
    (tmp_path / "plan.csv").write_text(f"{line}\n")
    outcome = reset(group, "--from-file", str(tmp_path / "plan.csv"), urls=urls)
    assert (outcome.code, "line 1" in outcome.err) == (2, True)
