"""Replies that are split as they come over the wire give what a parser of the protocol makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.names import unique

from cobalance.coordinator.keys import journal_key
from cobalance.errors import ProtocolMismatch
from cobalance_sims.spark import journal_server
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.journal_reply import MARGIN, ReplyFields, Unclear
from cobalance_sims.spark.journal_rows import ListFields, decode
from cobalance_sims.spark.journal_server import JournalServer

NAMES = (
    b"seq", b"kind", b"at_ms", b"resource", b"member", b"token", b"handover_id", b"deadline", b"drain_ms", b"committed",
    b"reason", b"effort", b"capacity", b"label", b"by", b"handover_ic", b"handover__d", b"kine", b"see", b"", b"s",
)  # fmt: skip
"""Those of journals, and some that resemble them."""

PROTOCOL = (
    b"\r\n",
    b"\r",
    b"\n",
    b"*2",
    b"$3",
    b"$0",
    b"*4",
    b"$15",
    b"seq",
    b"1",
    b"",
    b"1790000000000-0",
    b"*1",
    b"$",
)

names = st.sampled_from(NAMES) | st.binary(max_size=20)
values = (
    st.sampled_from(
        [b"", b"0", b"7", b"-1", b"granted", b"1/2/3", b"//", b"\xff", b"x" * 99, b"x" * 100, b"x" * 70_000]
    )
    | st.integers(-(2**63), 2**63 - 1).map(lambda number: b"%d" % number)
    | st.binary(max_size=30)
)
treacherous = st.lists(st.sampled_from(PROTOCOL), max_size=12).map(b"".join)
ids = st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)).map(lambda it: b"%d-%d" % it)


def entries(name: st.SearchStrategy[bytes], value: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Any]]:
    fields = st.lists(st.tuples(name, value), min_size=1, max_size=14)
    entry = st.tuples(ids, fields).map(lambda it: [it[0], [word for pair in it[1] for word in pair]])
    return st.lists(entry, min_size=1, max_size=6)


def ours(value: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Any]]:
    """Entries with what every entry has, so that most of them can be decoded."""
    number = st.integers(0, 2**62).map(lambda it: b"%d" % it)
    head = st.tuples(number, number).map(lambda it: [b"seq", it[0], b"kind", b"granted", b"at_ms", it[1]])
    optional = st.sampled_from([b"token", b"committed", b"drain_ms", b"deadline"])
    more = st.lists(
        st.tuples(optional, number | st.just(b"")) | st.tuples(st.sampled_from(NAMES[10:]), value), max_size=9
    )
    entry = st.tuples(ids, head, more).map(lambda it: [it[0], it[1] + [word for pair in it[2] for word in pair]])
    return st.lists(entry, min_size=1, max_size=6)


def word(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def reply(entries: list[Any]) -> bytes:
    """As Redis sends it."""
    found = [b"*%d\r\n" % len(entries)]
    for id_, words in entries:
        found += [b"*2\r\n", word(id_), b"*%d\r\n" % len(words), *map(word, words)]
    return b"".join(found)


def parsed(sent: bytes) -> list[Any]:
    reader = hiredis.Reader()
    reader.feed(sent)
    found: list[Any] = reader.gets()
    return found


def split(sent: bytes) -> ReplyFields:
    return ReplyFields(bytearray(sent + b"$16\r\nabc"[:MARGIN]), len(sent))


def rows(fields: ReplyFields | ListFields) -> Any:
    try:
        return decode("orders", fields).to_pylist()
    except ProtocolMismatch as error:
        return str(error)


def check_alike(sent: bytes) -> None:
    """Compares ids, each column of any name, and the rows, with those of the parsed reply."""
    found, plain = split(sent), ListFields(parsed(sent))
    assert len(found) == len(plain)
    assert found.ids().equals(plain.ids())
    assert found.entries() == plain.entries()
    for name in {it for _, words in plain.entries() for it in words[::2]} | set(NAMES):
        if name.isascii():
            assert found.column(name.decode()).equals(plain.column(name.decode())), name
    assert rows(found) == rows(plain)


@settings(max_examples=60, deadline=None)
@given(entries(names, values))
@pytest.mark.thorough
def test_every_entry_is_split_as_it_is_parsed(found: list[Any]) -> None:
    """Unknown, empty, doubled and long fields, and numbers of every length: only a carriage return needs the parser."""
    sent = reply(found)
    if any(b"\r" in it for _, words in found for it in words):
        with pytest.raises(Unclear):
            split(sent)
    else:
        check_alike(sent)


@settings(max_examples=60, deadline=None)
@given(ours(values.filter(lambda it: b"\r" not in it)))
@pytest.mark.thorough
def test_every_row_is_decoded_alike(found: list[Any]) -> None:
    """Entries of our form, with all that may be in them."""
    check_alike(reply(found))


@settings(max_examples=60, deadline=None)
@given(entries(treacherous, treacherous))
@pytest.mark.thorough
def test_values_that_look_like_the_protocol_deceive_nobody(found: list[Any]) -> None:
    """A reply with such values is split rightly or not at all."""
    sent = reply(found)
    try:
        split(sent)
    except Unclear:
        return
    check_alike(sent)


@pytest.mark.parametrize(
    "sent",
    [
        b"*0\r\n",
        b"-ERR no such thing\r\n",
        b"-MOVED 3999 127.0.0.1:6381\r\n",
        b"$-1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$3\r\nseq\r\n$-1\r\n",
        b"*2\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$3\r\nseq\r\n$1\r\n1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$3\r\nseq\r\n$3\r\n1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*3\r\n$3\r\nseq\r\n$1\r\n1\r\n$1\r\n1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$3\r\nseq\r\n:1\r\n",
        reply([[b"1-1", [b"a", b"1"] * 50]]),
        b"",
    ],
)
def test_what_is_no_list_of_entries_is_left_to_the_parser(sent: bytes) -> None:
    """Errors, nothing, missing words, lengths that are not those of the words, and entries of a hundred words."""
    with pytest.raises(Unclear):
        split(sent)


@pytest.fixture
def group(redis_admin_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, redis.Redis]]:
    """A name, and a connection to write its journal with, which is removed afterwards."""
    monkeypatch.setenv("COBALANCE_REDIS_URL", redis_url)
    name = unique("orders")
    with redis.Redis.from_url(redis_admin_url) as admin:
        yield name, admin
        admin.delete(journal_key(name))


def test_a_real_redis_is_read_whatever_it_holds(
    group: tuple[str, redis.Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages with and without a line end or a megabyte in a value, on one connection, and a last page that is empty."""
    name, admin = group
    odd = {2: b"two\r\nlines", 3: b"x" * 1_000_000, 5: b"\r\n$3\r\nabc\r\n", 6: b"\xff"}
    for seq in range(1, 8):
        fields: dict[Any, Any] = {"seq": seq, "kind": "halted", "at_ms": seq, "reason": odd.get(seq, b"")}
        admin.xadd(journal_key(name), fields, id=f"{seq}-0")
    monkeypatch.setattr(journal_server, "PAGE", 2)
    with JournalServer(JournalOptions.read({"groups": name, "retryS": "0"})) as server:
        pages = list(server.pages(name, "0-0", "+"))
    assert [len(page) for page in pages] == [2, 2, 2, 1]
    assert [type(page) for page in pages] == [ListFields, ReplyFields, ListFields, ReplyFields]
    found = [row for page in pages for row in decode(name, page).to_pylist()]
    assert [row["seq"] for row in found] == list(range(1, 8))
    assert [row["reason"] for row in found] == [odd.get(seq, b"").decode(errors="replace") for seq in range(1, 8)]


def test_a_user_who_may_not_ping_reads_what_is_parsed(
    group: tuple[str, redis.Redis], redis_admin_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PING shows where a reply ends. Without that permission, the parser reads the journal."""
    name, admin = group
    user = unique("reader")
    admin.xadd(journal_key(name), {"seq": 1, "kind": "joined", "at_ms": 1})
    admin.acl_setuser(user, enabled=True, passwords=["+secret"], keys=["*"], commands=["+xrange", "+info", "+select"])
    host = redis_admin_url.rpartition("@")[2].removeprefix("redis://")
    monkeypatch.setenv("COBALANCE_REDIS_URL", f"redis://{user}:secret@{host}")
    try:
        with JournalServer(JournalOptions.read({"groups": name, "retryS": "0"})) as server:
            pages = list(server.pages(name, "0-0", "+"))
    finally:
        admin.acl_deluser(user)
    assert [type(page) for page in pages] == [ListFields]
    assert [row["seq"] for row in decode(name, pages[0]).to_pylist()] == [1]
