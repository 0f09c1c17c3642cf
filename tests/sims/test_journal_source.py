"""What the Spark source reads, without Spark: slices, gaps, foreign entries, and options that hold no secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.names import unique
from tests.redis_user import PASSWORD

from cobalance import GroupAdmin
from cobalance.coordinator.keys import journal_key
from cobalance.coordinator.open import open_transport
from cobalance.errors import CobalanceError, InvalidSettings, ProtocolMismatch, UnknownGroup
from cobalance.journal import Journal
from cobalance_sims.outcomes.event import of_entry
from cobalance_sims.spark import journal_slices
from cobalance_sims.spark.journal import JournalSlice, read_piece
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.journal_position import BEGINNING, Position
from cobalance_sims.spark.journal_rows import JournalIncomplete
from cobalance_sims.spark.journal_server import JournalServer
from cobalance_sims.spark.journal_slices import Slice, cut, cut_all, limited, shares, start_of

START_MS = 1_790_000_000_000


@pytest.fixture
def admin(redis_admin_url: str) -> Iterator[redis.Redis]:
    """The shared Redis without limits."""
    with redis.Redis.from_url(redis_admin_url) as client:
        yield client


@pytest.fixture
def group(admin: redis.Redis) -> Iterator[str]:
    """A name, whose journal is removed afterwards."""
    name = unique("orders")
    yield name
    admin.delete(journal_key(name))


@pytest.fixture
def options(group: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> JournalOptions:
    """Options to read the group as the published user."""
    monkeypatch.setenv("COBALANCE_REDIS_URL", redis_url)
    return JournalOptions.read({"groups": group, "retryS": "0"})


def write(admin: redis.Redis, group: str, id_: str, seq: int, kind: str = "granted", **fields: Any) -> None:
    words: dict[Any, Any] = {"seq": seq, "kind": kind, "at_ms": int(id_.partition("-")[0]), **fields}
    admin.xadd(journal_key(group), words, id=id_)


def burst(admin: redis.Redis, group: str, count: int, *, width: int) -> None:
    """Writes entries with `width` of them in every third millisecond, as calls that move much write them."""
    for at in range(count):
        write(admin, group, f"{START_MS + 3 * (at // width)}-{at % width}", at + 1, resource=f"r{at}")


def rows(options: JournalOptions, piece: Slice) -> list[dict[str, Any]]:
    """What a task returns for a slice."""
    return [row for batch in read_piece(options, JournalSlice(piece)) for row in batch.to_pylist()]


def whole(server: JournalServer, group: str, since_ms: int | None = None) -> Slice:
    """Everything that is there."""
    newest = server.newest(group)
    assert newest is not None
    return Slice(group, start_of(server, group, since_ms), newest)


@pytest.mark.parametrize("width", [1, 7, 100])
def test_slices_hold_every_entry_once(admin: redis.Redis, group: str, options: JournalOptions, width: int) -> None:
    """Slices are of about the size asked for, without gap or overlap, however many entries share a millisecond."""
    burst(admin, group, 100, width=width)
    with JournalServer(options) as server:
        pieces = list(cut(server, whole(server, group), 20))
        assert limited(server, whole(server, group), 33).seq == 33
    assert [piece.end.seq for piece in pieces] == [20, 40, 60, 80, 100]
    found = [row["seq"] for piece in pieces for row in rows(options, piece)]
    assert found == list(range(1, 101))


def test_there_is_a_slice_for_every_core(
    admin: redis.Redis, group: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that all work, if there is enough to read: not fewer entries than a task's start is worth."""
    monkeypatch.setattr(journal_slices, "LEAST", 10)
    monkeypatch.setenv("COBALANCE_REDIS_URL", redis_url)
    burst(admin, group, 100, width=1)

    def sizes(**given: str) -> list[int]:
        known = JournalOptions.read({"groups": group, "retryS": "0", **given})
        with JournalServer(known) as server:
            ends = [0, *(piece.end.seq for piece in cut_all(server, [whole(server, group)], known))]
        return [end - start for start, end in pairwise(ends)]

    assert sizes(minPartitions="4") == [25] * 4
    assert sizes(minPartitions="1") == [100]
    assert sizes(minPartitions="80") == [10] * 10
    assert sizes(minPartitions="1", partitionEntries="50") == [50, 50]


def test_only_columns_that_are_wanted_are_read(admin: redis.Redis, group: str, options: JournalOptions) -> None:
    """In their order, with what shows gaps behind the scenes."""
    burst(admin, group, 5, width=1)
    admin.xdel(journal_key(group), f"{START_MS + 6}-0")
    with JournalServer(options) as server:
        piece = JournalSlice(whole(server, group))
    batches = list(read_piece(options, piece, (("resource", True), ("kind", True), ("handled", True))))
    assert {tuple(batch.schema.names) for batch in batches} == {("resource", "kind", "handled")}
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["kind"], row["resource"]) for row in rows] == [
        ("granted", "r0"),
        ("granted", "r1"),
        ("gap", None),
        ("granted", "r3"),
        ("granted", "r4"),
    ]


def test_what_was_trimmed_shows(admin: redis.Redis, group: str, options: JournalOptions) -> None:
    """Entries missing at the beginning, middle and end become rows of kind gap, each with the missing seqs."""
    burst(admin, group, 30, width=1)
    with JournalServer(options) as server:
        piece = whole(server, group)
    for seq in (1, 2, 10, 11, 12, 30):
        admin.xdel(journal_key(group), f"{START_MS + 3 * (seq - 1)}-0")
    found = rows(options, piece)
    assert [(row["seq"], row["reason"]) for row in found if row["kind"] == "gap"] == [
        (2, "1 to 2"),
        (12, "10 to 12"),
        (30, "30 to 30"),
    ]
    assert len(found) == 27
    strict = JournalOptions.read({"groups": group, "onGap": "fail"})
    with pytest.raises(JournalIncomplete, match=r"lacks the entries 1 to 2.*journal_length"):
        rows(strict, piece)


def test_an_incarnation_may_jump_and_a_lost_history_shows(
    admin: redis.Redis, group: str, options: JournalOptions
) -> None:
    """A group that continues above what its members saw has no gap there; one that started again, trimmed, has."""
    write(admin, group, f"{START_MS}-0", 7)
    write(admin, group, f"{START_MS + 1}-0", 5_000, "incarnation", reason="recovering")
    write(admin, group, f"{START_MS + 2}-0", 3)
    with JournalServer(options) as server:
        newest = server.newest(group)
        assert newest is not None
    found = rows(options, Slice(group, Position("0-0", 6), newest))
    assert [(row["seq"], row["kind"], row["reason"]) for row in found] == [
        (7, "granted", None),
        (5_000, "incarnation", "recovering"),
        (2, "gap", "1 to 2"),
        (3, "granted", None),
    ]


def test_since_begins_where_it_says(admin: redis.Redis, group: str, options: JournalOptions) -> None:
    """Nothing before the given time is read or counted missing, unless what is left begins only after it."""
    burst(admin, group, 9, width=3)
    with JournalServer(options) as server:
        assert [row["seq"] for row in rows(options, whole(server, group, START_MS + 3))] == [4, 5, 6, 7, 8, 9]
        admin.xtrim(journal_key(group), maxlen=3, approximate=False)
        late = whole(server, group, START_MS + 1)
        assert late.start == BEGINNING
        assert rows(options, late)[0]["reason"] == "1 to 6"


def test_numbers_and_words_are_read_as_the_journal_reads_them(
    admin: redis.Redis, group: str, options: JournalOptions, redis_url: str
) -> None:
    """Rows are the events that cobalance.journal's entries make, with empty numbers, unknown fields and odd bytes."""
    write(admin, group, f"{START_MS}-0", 1, "joined", member="m.1", reason="-")
    write(
        admin, group, f"{START_MS}-1", 2, "released", resource="r", member="m.1", token=5, handover_id=5, deadline=0, drain_ms=12,
        committed="", reason=b"odd \xff", effort="", colour="red",
    )  # fmt: skip
    write(
        admin,
        group,
        f"{START_MS + 9}-0",
        3,
        "abandoned",
        resource="r",
        token=6,
        deadline=99,
        committed=0,
        effort="1/2/3",
    )
    for number, effort in enumerate(("1//3", "1/2", "x/2/3", "1/2/3/4", "//")):
        write(admin, group, f"{START_MS + 10}-{number}", 4 + number, "released", resource="r", token=7, effort=effort)
    with JournalServer(options) as server, closing(open_transport(redis_url)) as transport:
        found = rows(options, whole(server, group))
        entries = list(Journal(transport, group).entries())
    expected = [of_entry(entry, group)._asdict() for entry in entries]
    assert [{**row, "reason": row["reason"] or ""} for row in found] == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"colour": "red"},
        {"seq": 1, "kind": "granted"},
        {"seq": 1, "at_ms": 1},
        {"seq": 1, "kind": "granted", "at_ms": "noon"},
        {"seq": 1, "kind": "granted", "at_ms": 1, "token": "golden"},
    ],
)
def test_an_entry_of_another_form_is_named(
    admin: redis.Redis, group: str, options: JournalOptions, redis_url: str, fields: dict[Any, Any]
) -> None:
    """By the source and by cobalance.journal alike."""
    admin.xadd(journal_key(group), fields, id=f"{START_MS}-0")
    told = rf"Entry {START_MS}-0 .*is not of the form that this version reads"
    with pytest.raises(ProtocolMismatch, match=told):
        rows(options, Slice(group, BEGINNING, Position(f"{START_MS}-9", 1)))
    with closing(open_transport(redis_url)) as transport, pytest.raises(ProtocolMismatch, match=told):
        list(Journal(transport, group).entries())


def test_what_is_not_ours_is_named(admin: redis.Redis, group: str, options: JournalOptions) -> None:
    """An entry without our fields, a group of another schema, and one that is not there: the message names each."""
    admin.xadd(journal_key(group), {"colour": "red"}, id=f"{START_MS}-0")
    with pytest.raises(ProtocolMismatch, match=rf"Entry {START_MS}-0 .* {group} is not of the form"):
        rows(options, Slice(group, BEGINNING, Position(f"{START_MS}-9", 1)))
    other = unique("later")
    admin.hset(f"cobalance:7:{{{other}}}:state", "version", 1)
    with JournalServer(options) as server:
        with pytest.raises(
            ProtocolMismatch, match=rf"{other} has its journal in schema 7, and this version reads schema 1"
        ):
            server.groups((other,))
        with pytest.raises(ProtocolMismatch, match="schema 7"):
            server.groups((f"{other[:-1]}?",))
        with pytest.raises(UnknownGroup, match="There is no group nobody"):
            server.groups(("nobody",))
    admin.delete(f"cobalance:7:{{{other}}}:state")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, 'needs option\\("groups"'),
        ({"groups": "g", "colour": "red"}, "has no option 'colour'; it has groups"),
        ({"groups": "g", "since": "yesterday"}, "not a point in time"),
        ({"groups": "g", "since": "1h", "until": "2h"}, "nothing to read"),
        ({"groups": "g", "on_gap": "ignore"}, "onGap is 'ignore'"),
        ({"groups": "g", "maxEntriesPerBatch": "0"}, "whole number from 1"),
        ({"groups": "g", "redisUrl": f"redis://u:{PASSWORD}@h"}, "may hold no password"),
        ({"groups": "g", "redis_url": f"redis://h?password={PASSWORD}"}, "may hold no password"),
        ({"groups": "g", "redisUrlFile": f"redis://u:{PASSWORD}@h"}, "redisUrlFile is a URL, not a path"),
        (
            {"groups": "g", "redisUrlEnv": f"redis://u:{PASSWORD}@h"},
            "redisUrlEnv is not the name of an environment variable",
        ),
        ({"groups": "g", "redisUrlEnv": PASSWORD + "="}, "redisUrlEnv is not the name of an environment variable"),
        ({"groups": f"redis://u:{PASSWORD}@h"}, "groups holds a URL"),
        ({"groups": "g", "retryS": "²"}, "whole number from 0"),
        ({"groups": "g", "since": "9" * 30}, "not a point in time"),
        ({"groups": "g", "since": "9" * 400 + "d"}, "not a point in time"),
    ],
)
def test_options_that_cannot_be_meant(given: dict[str, str], words: str) -> None:
    """Each is refused with what to give instead, and without repeating a password."""
    with pytest.raises(InvalidSettings, match=words) as refused:
        JournalOptions.read(given)
    assert PASSWORD not in str(refused.value)


def test_where_the_address_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file takes precedence over the variable; where neither is given, the message says what to do."""
    monkeypatch.delenv("COBALANCE_REDIS_URL", raising=False)
    with pytest.raises(InvalidSettings, match="COBALANCE_REDIS_URL is not set in the process of Spark"):
        JournalOptions.read({"groups": "g"}).redis_url()
    monkeypatch.setenv("OTHER", "redis://other")
    assert JournalOptions.read({"groups": "g", "redisUrlEnv": "OTHER"}).redis_url() == "redis://other"
    (tmp_path / "url").write_text("redis://file\n")
    chosen = JournalOptions.read({"groups": "g", "redisUrlFile": str(tmp_path / "url"), "redisUrlEnv": "OTHER"})
    assert chosen.redis_url() == "redis://file"
    with pytest.raises(CobalanceError, match="No such file"):
        JournalOptions.read({"groups": "g", "redisUrlFile": str(tmp_path / "none")}).redis_url()


def test_a_batch_is_shared_by_what_waits() -> None:
    """Each group gets its part of the limit, and the smallest still makes progress."""
    assert shares({"a": 900, "b": 99, "c": 1}, 100) == {"a": 90, "b": 9, "c": 1}
    assert shares({"a": 3}, 100) == {"a": 3}


def test_a_key_prefix_is_another_place(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two groups with the same name, the intended one is read."""
    monkeypatch.setenv("COBALANCE_REDIS_URL", redis_url)
    name, prefix = unique("orders"), "cobalance:staging"
    with GroupAdmin(redis_url, key_prefix=prefix) as there:
        there.create(name)
        with JournalServer(JournalOptions.read({"groups": name, "keyPrefix": prefix})) as server:
            assert server.groups((name, "orders-*"))
            found = server.newest(name)
        assert found is not None
        assert found.id == [entry.id for entry in there.journal(name).entries()][-1]
        with (
            JournalServer(JournalOptions.read({"groups": name, "retryS": "0"})) as server,
            pytest.raises(UnknownGroup),
        ):
            server.groups((name,))
        there.delete(name)
