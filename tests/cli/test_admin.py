"""``cobalance group delete``, ``describe`` within 80 columns, and key prefixes, run as users run them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.cli_process import Outcome, cobalance
from tests.names import unique

from cobalance import BlockingGroup, GroupAdmin, GroupSettings, MemberSettings

SETTINGS = GroupSettings(session_timeout_ms=60_000, revocation_timeout_ms=60_000, gather_ms=0)
LONG = "a-topic-with-a-rather-long-name-such-as-people-generate-from-their-services"
NAMES = [f"{LONG}-{number}" for number in range(3)]

Run = Callable[..., Outcome]


@pytest.fixture
def group(redis_url: str) -> str:
    name = unique("cli-admin")
    with GroupAdmin(redis_url) as admin:
        admin.create(name, SETTINGS)
    return name


@pytest.fixture
def run(redis_url: str, amqp_url: str) -> Run:
    urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}

    def run(*arguments: str, **environment: str) -> Outcome:
        return cobalance("group", *arguments, environment=urls | environment)

    return run


@pytest.fixture
def member(group: str, redis_url: str) -> Iterator[BlockingGroup]:
    """A member that holds everything."""
    with BlockingGroup(
        group, NAMES, redis_url=redis_url, member=MemberSettings(instance_id=f"pod-of-{LONG}-0")
    ) as member:
        member.wait_held(*NAMES)
        member.commit(NAMES[0], 123_456_789)
        yield member
        member.leave(remain=False)


def one_line(outcome: Outcome, *words: str) -> None:
    """An error, in one line."""
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert outcome.code == 1
    for word in words:
        assert word in line


def test_a_group_is_deleted_when_nobody_is_there(group: str, run: Run) -> None:
    """The second time there is no such group."""
    assert run("delete", group) == Outcome(0, "", "")
    assert group not in run("list").out.split()
    one_line(run("delete", group), "does not exist")
    one_line(run("describe", group), "does not exist")


@pytest.mark.usefixtures("member")
def test_a_group_with_members_is_deleted_by_force_only(group: str, run: Run) -> None:
    """It prints the consequence: the members recreate it."""
    one_line(run("delete", group), "has members")
    forced = run("delete", group, "--force")
    assert (forced.code, forced.out) == (0, "")
    assert "had 1 member." in forced.err
    assert "create it again" in forced.err
    while group not in run("list").out.split():
        pass  # it was called at once; the test's timeout is the limit


@pytest.mark.usefixtures("member")
@pytest.mark.parametrize("view", [(), ("--members",), ("--members", "--verbose"), ("--state",)], ids=" ".join)
def test_describe_fits_a_terminal(group: str, run: Run, view: tuple[str, ...]) -> None:
    """Names are cut, but not numbers and headings; --wide and JSON show everything."""
    narrow = run("describe", group, *view)
    assert max(map(len, narrow.out.splitlines())) <= 80
    wide = run("describe", group, *view, "--wide")
    assert max(map(len, wide.out.splitlines())) > 80
    assert "…" not in wide.out
    assert json.loads(run("describe", group, *view, "--json").out)


@pytest.mark.usefixtures("member")
def test_describe_begins_with_what_is_asked_for_most(group: str, run: Run) -> None:
    """The name, state, progress and owner of each partition."""
    heading, first, *_ = [line.split() for line in run("describe", group).out.splitlines()]
    assert heading == ["RESOURCE", "STATE", "AGE", "CURRENT-OFFSET", "LAG", "IN-FLIGHT", "OLDEST", "CLIENT-ID"]
    row = dict(zip(heading, first, strict=True))
    assert (row["STATE"], row["CURRENT-OFFSET"], row["LAG"]) == ("held", "123456789", "-")


def test_describe_shows_what_members_name_where_that_differs(group: str, run: Run, redis_url: str) -> None:
    """And resources that were let go of, with their offsets."""
    with BlockingGroup(group, ["orders-0", "orders-1", "films"], redis_url=redis_url) as old:
        old.wait_held("films", "orders-0", "orders-1")
        old.commit("films", 41)
        alike = run("describe", group, "--members")
        assert alike.out.split()[:4] == ["CLIENT-ID", "STATE", "#PARTITIONS", old.describe().members[0].label]
        with BlockingGroup(group, ["orders-0", "orders-1"], redis_url=redis_url) as new:
            new.wait_held()
            told = {row["consumer_id"]: row["subscription"] for row in json.loads(members_of(run, group))}
            assert told == {old.member: ["films", "orders:0,1"], new.member: ["orders:0,1"]}
            assert "films;orders:0,1" in run("describe", group, "--members").out
            old.leave()
            while not (let_go := [row for row in rows_of(run, group) if row["state"].startswith("let go")]):
                pass  # the list is processed by the next call
    (row,) = let_go
    assert (row["resource"], row["current_offset"]) == ("films", 41)
    assert row["state"] in {"let go, offset kept for 7.0 days", "let go, offset kept for 6.9 days"}


def test_describe_does_not_show_members_that_are_gone_like_others(group: str, run: Run, redis_url: str) -> None:
    """Every view says so, in a table and as JSON."""
    settings = MemberSettings(instance_id="pod-0")
    with BlockingGroup(group, ["films"], redis_url=redis_url, member=settings) as it:
        it.wait_held("films")
    assert [row["state"] for row in json.loads(members_of(run, group))] == ["graced"]
    for view in ((), ("--members",), ("--members", "--wide"), ("--state",)):
        shown = run("describe", group, *view)
        assert f"warning: group {group!r} keeps the places of 1 member that is gone." in shown.err
        assert view == ("--state",) or "graced" in shown.out


def members_of(run: Run, group: str) -> str:
    """As JSON."""
    return run("describe", group, "--members", "--json").out


def rows_of(run: Run, group: str) -> list[dict[str, Any]]:
    """The rows of its partitions as JSON."""
    rows: list[dict[str, Any]] = json.loads(run("describe", group, "--json").out)
    return rows


def test_a_key_prefix_is_another_place(group: str, run: Run, redis_url: str) -> None:
    """By flag or by environment; every command accepts it."""
    prefix = "cobalance:staging"
    assert run("create", group, "--key-prefix", prefix, "--idle-expiry", "1h").code == 0
    one_line(run("create", group, "--key-prefix", prefix), "exists already")
    with GroupAdmin(redis_url, key_prefix=prefix) as admin:
        assert admin.settings(group).idle_expiry_ms == 3_600_000
    assert group in run("list", "--key-prefix", prefix).out.split()
    assert run("list", COBALANCE_KEY_PREFIX=prefix).out == run("list", "--key-prefix", prefix).out
    for command in ("describe", "history", "configure", "repair", "trust-offsets", "delete"):
        assert run(command, group, COBALANCE_KEY_PREFIX=prefix).code == 0
    one_line(run("describe", group, "--key-prefix", prefix), "does not exist")
    assert run("describe", group).code == 0
    wrong = run("list", "--key-prefix", "{x}")
    assert (wrong.code, wrong.err.count("\n"), "key prefix" in wrong.err) == (2, 1, True)
