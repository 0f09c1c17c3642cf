"""Every command can answer a program, and its exit code says how it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from cyclopts import App
from tests.cli_process import cobalance
from tests.names import unique

from cobalance.cli.app import app
from cobalance.errors import TopicMissing
from cobalance.rabbitmq import delete_topic
from cobalance.settings import GroupSettings

SERVE = {"consume", "dashboard", "metrics", "sims agent"}
"""They answer over HTTP, or a replay, while they run; `consume` and `sims agent` end with an exit code."""


def commands(of: App, *path: str) -> Iterator[tuple[str, set[str]]]:
    """Each command, and the names of its options."""
    for name in of:
        if name.startswith("-"):
            continue
        found = of[name]
        if found.default_command is None:
            yield from commands(found, *path, name)
        else:
            arguments = found.assemble_argument_collection()
            yield " ".join([*path, name]), {it for argument in arguments for it in argument.names}


def test_every_command_that_answers_can_answer_a_program() -> None:
    """With --json, or in the files of --out."""
    found = dict(commands(app))
    assert {"doctor", "topic create", "group describe", "sims tune"} <= found.keys()
    assert {name for name, options in found.items() if not options & {"--json", "--out"}} == SERVE


@pytest.fixture
def urls(redis_url: str, amqp_url: str) -> dict[str, str]:
    return {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}


def answer(urls: dict[str, str], *arguments: str, stdin: str = "", code: int = 0) -> Any:
    """What a command says, and nothing beside it."""
    ended = cobalance(*arguments, "--json", environment=urls, stdin=stdin)
    assert (ended.code, ended.err) == (code, "")
    return json.loads(ended.out)


def test_what_commands_did_to_a_topic(urls: dict[str, str], amqp_url: str) -> None:
    """From its creation to its deletion."""
    name = unique("json")
    with suppress(TopicMissing), ExitStack() as at_last:
        at_last.callback(delete_topic, amqp_url, name, force=True)
        made = answer(urls, "topic", "create", name, "--partitions", "2")
        assert (made["name"], made["partitions"], made["queue_type"]) == (name, 2, "classic")
        assert answer(urls, "publish", name, "hello") == {"topic": name, "published": 1}
        assert answer(urls, "publish", name, stdin="a\tb\nc\td\n") == {"topic": name, "published": 2}
        grown = answer(urls, "topic", "grow", name, "--partitions", "3")
        assert (grown["partitions"], grown["layout"]) == (3, made["layout"] + 1)
        pruned = answer(urls, "topic", "prune", name)
        assert {it["queue"] for it in pruned} == {f"{name}-0", f"{name}-1"}
        assert "still in use" in {it["result"] for it in pruned}
        assert answer(urls, "topic", "delete", name, "--force") == {"topic": name, "deleted": True}


def test_what_commands_did_to_a_group(urls: dict[str, str]) -> None:
    """From its creation to its deletion; what was asked for and is not there is a failure."""
    name = unique("json")
    made = answer(urls, "group", "create", name, "--session-timeout", "9s")
    assert made["group"] == name
    assert made["settings"]["session_timeout_ms"] == 9_000
    assert made["settings"].keys() == {it.name for it in GroupSettings.__attrs_attrs__}
    assert answer(urls, "group", "resume", name, "orders-0", code=1) == [{"partition": "orders-0", "result": "unknown"}]
    assert answer(urls, "group", "trust-offsets", name) == {"group": name, "offsets_known": True}
    assert answer(urls, "group", "repair", name) == {"group": name, "torn": False, "changed": []}
    assert answer(urls, "group", "delete", name) == {"group": name, "deleted": True, "members": 0}


def test_an_error_is_no_answer(urls: dict[str, str]) -> None:
    """It is on stderr, so nobody takes it for JSON."""
    ended = cobalance("group", "delete", unique("nobody"), "--json", environment=urls)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: ")


def test_a_simulated_run(urls: dict[str, str]) -> None:
    """Its verdict, and what happened line by line if that is wanted."""
    said = answer(urls, "sims", "run", "steady", "--tail", "2")
    assert said["failure"] is None
    assert len(said["lines"]) == 2
    assert said["verdict"].startswith("hash ")
    assert answer(urls, "sims", "run", "steady", "--quiet")["lines"] == []
