"""The commands on real servers, those that go on for a while as users run them: in a process of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import redis
from tests.cli_process import Outcome, cobalance, cobalance_process, running
from tests.names import unique

from cobalance import servers
from cobalance.cli.exits import OK, USAGE
from cobalance.coordinator.keys import group_keys
from cobalance.rabbitmq import delete_topic

HANDLER = """
def show(delivery):
    print(f"{delivery.queue} {delivery.body.decode()}\\n", end="", flush=True)

def hang(delivery):
    print(f"began {delivery.queue}\\n", end="", flush=True)  # in one piece: there are several threads
    open("gate").read()  # a pipe that nobody writes to

async def fail(delivery):
    raise ValueError("two\\nlines")
"""


@pytest.fixture
def topic(amqp_url: str, urls: dict[str, str]) -> Iterator[str]:
    name = unique("cli")
    assert cobalance("topic", "create", name, "--partitions", "3", environment=urls) == Outcome(0, "", "")
    yield name
    delete_topic(amqp_url, name, force=True)


@pytest.fixture
def group(urls: dict[str, str]) -> str:
    """A new group with short timeouts."""
    name = unique("cli")
    timeouts = ("--session-timeout", "3s", "--heartbeat-interval", "500ms", "--revocation-timeout", "5s")
    assert cobalance("group", "create", name, *timeouts, environment=urls) == Outcome(0, "", "")
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with the handlers."""
    (tmp_path / "shop.py").write_text(HANDLER)
    os.mkfifo(tmp_path / "gate")
    return tmp_path


def consume(topic: str, group: str, function: str = "show") -> tuple[str, ...]:
    """The command line of a consumer."""
    return ("consume", topic, "--group", group, "--handler", f"shop:{function}")


def test_topics_are_created_listed_and_deleted(urls: dict[str, str]) -> None:
    """Creating one again is harmless; a deleted one is gone."""
    name = unique("cli")
    create = ("topic", "create", name, "--partitions", "2", "--type", "quorum")
    assert cobalance_process(*create, environment=urls).code == 0
    assert cobalance(*create, environment=urls).code == 0

    listed = cobalance("topic", "list", "--json", environment=urls)
    assert {"name": name, "partitions": 2} in json.loads(listed.out)
    assert f"{name} 2" in " ".join(cobalance("topic", "list", environment=urls).out.split())

    assert cobalance("topic", "delete", name, environment=urls).code == 0
    assert name not in cobalance("topic", "list", environment=urls).out


def test_a_topic_with_messages_is_deleted_by_force_only(urls: dict[str, str]) -> None:
    """Messages are not lost by a typing error."""
    name = unique("cli")
    cobalance("topic", "create", name, "--partitions", "1", environment=urls)
    assert cobalance("publish", name, "hello", environment=urls).code == 0

    refused = cobalance("topic", "delete", name, environment=urls)
    assert (refused.code, "still has 1 message " in refused.err) == (1, True)
    assert cobalance("topic", "delete", name, "--force", environment=urls).code == 0


def test_what_is_published_is_consumed_until_a_signal_ends_it(
    topic: str, group: str, urls: dict[str, str], folder: Path
) -> None:
    """Messages from the command line and from standard input reach the handler; SIGTERM is a graceful end."""
    assert cobalance("publish", topic, "one", "--key", "a", environment=urls).code == 0
    assert cobalance_process("publish", topic, stdin="a\ttwo\nb\tthree\n", environment=urls).err == "published 2\n"
    assert cobalance("publish", topic, "--key", "c", stdin="four\n", environment=urls).code == 0

    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        for word in ("one", "two", "three", "four"):
            consumer.wait_for(word)
        outcome = consumer.end(signal.SIGTERM)

    assert outcome.code == 0
    assert outcome.out.index("one") < outcome.out.index("two")
    members = cobalance("group", "describe", group, "--members", "--json", environment=urls)
    assert json.loads(members.out) == []


@pytest.mark.thorough
def test_ctrl_c_is_a_graceful_end_too(topic: str, group: str, urls: dict[str, str], folder: Path) -> None:
    """And without a traceback."""
    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for("joined group")
        outcome = consumer.end(signal.SIGINT)

    assert outcome.code == 0
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("option", ["--log-exceptions", "--no-log-exceptions"])
@pytest.mark.thorough
def test_a_handler_that_fails_ends_the_command(
    topic: str, group: str, urls: dict[str, str], folder: Path, option: str
) -> None:
    """If requested: the last line has the handler's error, where the message is, and what can be done. What the error
    says, which may quote the message, is only shown if exceptions are logged.
    """
    cobalance("publish", topic, "poison", environment=urls)

    with running(*consume(topic, group, "fail"), "--on-error", "raise", option, folder=folder, environment=urls) as it:
        outcome = it.wait()

    assert outcome.code == 1
    logs = option == "--log-exceptions"
    error = "ValueError: two lines" if logs else "ValueError"
    last = outcome.err.splitlines()[-1]
    assert last.startswith(f"error: The handler shop:fail failed ({error}); its message stays in its queue.")
    assert ("two" in outcome.err) is ("Traceback" in outcome.err) is logs


def by_heading(table: str) -> list[dict[str, str]]:
    """The rows of a table in which no value has a blank."""
    columns, *rows = [line.split() for line in table.splitlines()]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def described_at_rest(group: str, urls: dict[str, str]) -> list[dict[str, str]]:
    """The rows once everything is acknowledged, which takes a moment."""
    while True:
        rows = by_heading(cobalance("group", "describe", group, "--wide", environment=urls).out)
        if all(row["IN-FLIGHT"] == "0" for row in rows):
            return rows


@pytest.mark.thorough
def test_describe_has_kafkas_columns(topic: str, group: str, urls: dict[str, str], folder: Path) -> None:
    """Partitions, members and state, for people and for programs."""
    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for("joined group")
        cobalance("publish", topic, "x", environment=urls)
        consumer.wait_for("x")

        rows = described_at_rest(group, urls)
        assert list(rows[0]) == [
            *(
                "GROUP",
                "TOPIC",
                "PARTITION",
                "CURRENT-OFFSET",
                "LOG-END-OFFSET",
                "LAG",
                "IN-FLIGHT",
                "OLDEST",
                "CONSUMER-ID",
                "HOST",
                "CLIENT-ID",
            ),
            *("STATE", "AGE", "TOKEN", "DEADLINE-IN", "VERDICT", "RESOURCE"),
        ]
        assert [row["PARTITION"] for row in rows] == ["0", "1", "2"]
        quiet = {"CURRENT-OFFSET": "-", "LOG-END-OFFSET": "-", "LAG": "0", "IN-FLIGHT": "0", "OLDEST": "-"}
        each = {"GROUP": group, "TOPIC": topic, "STATE": "held", "VERDICT": "OK", **quiet}
        assert all(row.items() >= each.items() for row in rows)

        members = cobalance("group", "describe", group, "--members", "--wide", environment=urls)
        (row,) = by_heading(members.out)
        assert list(row) == [
            *("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "STATE", "SUBSCRIPTION")
        ]
        assert (row["GROUP"], row["GROUP-INSTANCE-ID"], row["#PARTITIONS"]) == (group, "-", "3")

        state = cobalance("group", "describe", group, "--state", environment=urls)
        assert state.out.splitlines()[0].split() == [
            "GROUP",
            "COORDINATOR",
            "(ID)",
            "ASSIGNMENT-STRATEGY",
            "STATE",
            "#MEMBERS",
        ]
        assert state.out.splitlines()[1].split()[-3:] == ["cooperative", "Stable", "1"]

        verbose = cobalance("group", "describe", group, "--members", "--verbose", "--json", environment=urls)
        assert json.loads(verbose.out)[0]["current_assignment"] == [f"{topic}:0,1,2"]
        (told,) = json.loads(verbose.out)
        assert (told["quota"], told["library_version"]) == ("3", version("cobalance"))
        assert told["last_ack_ago_ms"] >= 0


@pytest.mark.thorough
def test_a_pending_partition_shows_its_age_and_deadline(topic: str, urls: dict[str, str], folder: Path) -> None:
    """It is asked back from a handler that does not end, and the group shows that it is rebalancing."""
    group = unique("cli")
    patient = (
        "--session-timeout",
        "60s",
        "--revocation-timeout",
        "10m",
        "--gather",
        "0ms",
    )  # however busy the machine is
    assert cobalance("group", "create", group, *patient, environment=urls) == Outcome(0, "", "")
    messages = "".join(f"key-{n}\tx\n" for n in range(30))
    assert cobalance("publish", topic, stdin=messages, environment=urls).code == 0

    with running(*consume(topic, group, "hang"), folder=folder, environment=urls) as first:
        for n in range(3):
            first.wait_for(f"began {topic}-{n}")
        with running(*consume(topic, group), folder=folder, environment=urls) as second:
            second.wait_for("joined group")
            shown = cobalance("group", "describe", group, "--json", environment=urls)

    assert shown.err == f"warning: group {group!r} is rebalancing (Reconciling).\n"
    rows = json.loads(shown.out)
    assert sorted(row["state"] for row in rows) == ["held", "held", "pending"]
    (pending,) = (row for row in rows if row["state"] == "pending")
    asked_after_ms = (
        pending["age_ms"] + pending["deadline_in_ms"] - 600_000
    )  # the clock runs from when its holder hears of it
    assert 0 <= asked_after_ms < 60_000
    assert 0 <= pending["age_ms"] < 600_000
    assert [row["deadline_in_ms"] for row in rows if row["state"] == "held"] == [None, None]


def test_unknown_lag_is_a_dash(topic: str, group: str, urls: dict[str, str], folder: Path) -> None:
    """Without RabbitMQ the lag is unknown: it is not shown as 0, and stderr says why."""
    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for("joined group")
        elsewhere = urls | {"COBALANCE_AMQP_URL": "amqp://127.0.0.1:1"}
        shown = cobalance("group", "describe", group, "--json", environment=elsewhere)

    assert shown.code == 0
    assert {row["lag"] for row in json.loads(shown.out)} == {None}
    assert "LAG is unknown" in shown.err


def test_an_empty_group_is_said_to_be_empty(group: str, urls: dict[str, str]) -> None:
    """Kafka's word, with the warning on stderr."""
    shown = cobalance("group", "describe", group, "--state", "--json", environment=urls)

    assert json.loads(shown.out)[0]["state"] == "Empty"
    assert "has no members" in shown.err


@pytest.mark.thorough
def test_members_that_died_unnoticed_are_not_taken_for_alive(
    topic: str, group: str, urls: dict[str, str], folder: Path
) -> None:
    """When the last process is killed nothing is left to expire it; the group is empty all the same."""
    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for("joined group")
        consumer.end(signal.SIGKILL)

    def state() -> Outcome:
        return cobalance("group", "describe", group, "--state", "--json", environment=urls)

    while json.loads(state().out)[0]["state"] != "Empty":
        pass  # its session lasts three seconds; the timeout of the test is the limit
    members = cobalance("group", "describe", group, "--members", "--verbose", "--json", environment=urls)
    assert [it["state"] for it in json.loads(members.out)] in (["silent"], [])


def test_groups_are_listed_and_configured(group: str, urls: dict[str, str]) -> None:
    """Durations may have a unit; the settings in force are printed."""
    assert group in cobalance("group", "list", environment=urls).out.split()
    listed = json.loads(cobalance("group", "list", "--state", "--json", environment=urls).out)
    assert {"group": group, "state": "Empty"} in listed

    changed = cobalance(
        "group", "configure", group, "--revocation-timeout", "2m", "--gather", "0", "--json", environment=urls
    )
    values = json.loads(changed.out)
    assert (values["revocation_timeout_ms"], values["gather_ms"], values["session_timeout_ms"]) == (120_000, 0, 3_000)


def test_a_group_that_cannot_be_read_hides_no_other(private_redis: servers.OwnRedis) -> None:
    """Anybody can write a key that looks like a group's, or over one. What is named has to be readable."""
    urls, foreign = {"COBALANCE_REDIS_URL": private_redis.url}, ("two words", "damaged")
    with redis.Redis.from_url(private_redis.url) as client:
        client.hset(group_keys(foreign[0])[0], "x", "x")
        client.set(group_keys(foreign[1])[0], "x")
    cobalance("group", "create", "sound", environment=urls)
    listed = cobalance("group", "list", "--state", "--json", environment=urls)
    states = {it["group"]: it["state"] for it in json.loads(listed.out)}
    assert states == {"sound": "Empty", **dict.fromkeys(foreign)}
    lag = cobalance("group", "lag", environment=urls)
    for outcome in (listed, lag):
        assert outcome.code == OK
        assert "not allowed in names" in outcome.err
        assert group_keys("damaged")[0] in outcome.err
    assert cobalance("group", "lag", *foreign, environment=urls).code == USAGE


def test_a_terminal_that_lacks_a_letter_fails_no_command(urls: dict[str, str]) -> None:
    """What it cannot show is escaped."""
    assert cobalance("group", "create", unique("größe"), environment=urls).code == OK
    found = cobalance_process("group", "list", environment=urls | {"PYTHONIOENCODING": "ascii"})
    assert found.code == OK
    assert r"gr\xf6\xdfe" in found.out


@pytest.mark.thorough
def test_history_is_the_journal(topic: str, group: str, urls: dict[str, str], folder: Path) -> None:
    """In order; only the newest entries, if requested."""
    with running(*consume(topic, group), folder=folder, environment=urls) as consumer:
        consumer.wait_for("joined group")
        consumer.end(signal.SIGTERM)

    everything = json.loads(cobalance("group", "history", group, "--json", environment=urls).out)
    assert [it["seq"] for it in everything] == list(range(1, len(everything) + 1))
    assert {"joined", "granted", "leaving", "released", "left"} <= {it["kind"] for it in everything}
    (joined,) = [it for it in everything if it["kind"] == "joined"]
    assert joined["label"].partition("/")[2].isdecimal()
    assert joined["capacity"] == 1
    table = cobalance("group", "history", group, environment=urls).out
    assert f"{joined['label']}, capacity 1" in table
    last = json.loads(cobalance("group", "history", group, "--last", "2", "--json", environment=urls).out)
    assert last == everything[-2:]
    assert cobalance("group", "history", group, environment=urls).out.splitlines()[0].split()[:3] == [
        "SEQ",
        "TIME",
        "KIND",
    ]


def test_history_is_followed_until_ctrl_c(group: str, urls: dict[str, str], tmp_path: Path) -> None:
    """New entries appear as they come, one JSON object per line."""
    with running("group", "history", group, "--follow", "--json", folder=tmp_path, environment=urls) as command:
        command.wait_for('"kind": "configured"')
        cobalance("group", "configure", group, "--gather", "77", environment=urls)
        command.wait_for("gather_ms 77")
        outcome = command.end(signal.SIGINT)

    assert outcome.code == 0
    assert all(json.loads(line) for line in outcome.out.splitlines())
    assert "Traceback" not in outcome.err


def test_output_into_a_closed_pipe_is_no_drama(group: str, urls: dict[str, str]) -> None:
    """`cobalance … | head -0` ends without a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        ended = subprocess.run(
            [sys.executable, "-m", "cobalance.cli", "group", "history", group],
            stdout=pipe,
            stderr=subprocess.PIPE,
            env=os.environ | urls,
            check=False,
        )

    assert b"Traceback" not in ended.stderr
    assert b"BrokenPipe" not in ended.stderr


@pytest.mark.parametrize(
    ("package", "extra", "code", "words"),
    [
        ("lupa", "embedded", 2, ["run", "steady"]),
        ("numpy", "spark", 1, ["tune", "--churn", "steady"]),
        ("pyspark", "spark", 1, ["sweep", "--out", "nowhere"]),
        ("matplotlib", "spark", 1, ["report", "nowhere", "--out", "report.html"]),
    ],
)
def test_without_an_extra_the_simulators_commands_say_what_to_install(
    package: str, extra: str, code: int, words: list[str], tmp_path: Path
) -> None:
    """One line and an exit code, rather than an ImportError. The list of commands does not need the extra."""
    hidden = f"import sys; sys.modules[{package!r}] = None; from cobalance.cli import main; main()"
    command = [sys.executable, "-c", hidden, "sims"]
    ended = subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    listed = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ended.returncode == code
    assert package in ended.stderr
    assert f"pip install 'cobalance[{extra}]'" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert all(word in listed.stdout for word in ("run", "sweep", "journal", "calibrate", "tune", "report"))


def test_help_and_version() -> None:
    """Both are on stdout, with exit code 0."""
    help_ = cobalance_process("--help")
    assert (help_.code, help_.err) == (0, "")
    for command in ("demo", "topic", "publish", "consume", "group", "sims"):
        assert command in help_.out
    assert cobalance_process("--version").out.strip()[0].isdigit()
