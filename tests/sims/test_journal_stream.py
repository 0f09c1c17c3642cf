"""The stream's offsets while its Redis restarts or loses data: driven as Spark drives them, without a JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from cobalance import servers
from cobalance.coordinator.keys import journal_key
from cobalance.errors import UnknownGroup, Unreachable
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.journal_rows import JournalIncomplete
from cobalance_sims.spark.journal_stream import JournalStreamReader

START_MS = 1_790_000_000_000
ALL = ReadAllAvailable()


class Stream:
    """A query: it remembers how far it is, as a checkpoint does."""

    def __init__(self, **options: str) -> None:
        self._options = JournalOptions.read(options)
        self._reader = JournalStreamReader(self._options)
        self.offset = self._reader.initialOffset()

    def restart(self) -> None:
        """A new process, which knows only the checkpoint."""
        self._reader.stop()
        self._reader = JournalStreamReader(self._options)

    def end(self) -> None:
        self._reader.stop()

    def catch_up(self) -> None:
        """Begins as a query does that reads what is there now."""
        self._reader.prepareForTriggerAvailableNow()

    def batch(self, limit: Any = ALL) -> list[tuple[str, int, str]]:
        """The next micro-batch: (group, seq, kind), in order."""
        end = self._reader.latestOffset(self.offset, limit)
        pieces = self._reader.partitions(self.offset, end)
        rows = [row for piece in pieces for batch in self._reader.read(piece) for row in batch.to_pylist()]
        self.offset = end
        return sorted((row["run"], row["seq"], row["kind"]) for row in rows)


@pytest.fixture(scope="module")
def server() -> Iterator[servers.OwnRedis]:
    """A Redis to empty and to stop."""
    found = servers.private_redis()
    yield found
    found.close()


@pytest.fixture
def admin(server: servers.OwnRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """Connects to an empty one, which is the one that streams read."""
    monkeypatch.setenv("COBALANCE_REDIS_URL", server.url)
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield client


def write(admin: redis.Redis, group: str, *seqs: int, kind: str = "granted", later_ms: int = 0) -> None:
    """Writes entries, a millisecond apart."""
    for seq in seqs:
        fields: dict[Any, Any] = {"seq": seq, "kind": kind, "at_ms": START_MS + seq}
        admin.xadd(journal_key(group), fields, id=f"{START_MS + later_ms + seq}-0")
    admin.hset(f"cobalance:1:{{{group}}}:state", "version", max(seqs))


def seqs(rows: list[tuple[str, int, str]], group: str = "orders") -> list[int]:
    """The seqs of one group."""
    return [seq for name, seq, _ in rows if name == group]


def test_limits_and_restarts_lose_nothing(admin: redis.Redis) -> None:
    """Batches of about the limit, shared by two groups; a restart between any two of them changes nothing."""
    write(admin, "orders-a", *range(1, 91))
    write(admin, "orders-b", *range(1, 11))
    stream, found = Stream(groups="orders-*"), list[tuple[str, int, str]]()
    while batch := stream.batch(ReadMaxRows(20)):
        assert len(batch) <= 20
        found += batch
        stream.restart()
    stream.end()
    assert seqs(sorted(found), "orders-a") == [*range(1, 91)]
    assert seqs(sorted(found), "orders-b") == [*range(1, 11)]


def test_available_now_ends_with_what_was_there(admin: redis.Redis) -> None:
    """Entries that arrive after it began are left to the next run, so that a busy group cannot keep it for ever."""
    write(admin, "orders", *range(1, 11))
    stream = Stream(groups="orders")
    stream.catch_up()
    write(admin, "orders", *range(11, 21))
    assert seqs(stream.batch(ReadMaxRows(6))) == [*range(1, 7)]
    assert seqs(stream.batch(ReadMaxRows(6))) == [*range(7, 11)]
    assert stream.batch(ReadMaxRows(6)) == []
    stream.restart()
    assert seqs(stream.batch()) == [*range(11, 21)]
    stream.end()


def test_since_means_the_same_after_a_restart(admin: redis.Redis) -> None:
    """The time is kept in the offset, and applies to groups that come later; nothing before it is reported missing."""
    write(admin, "orders-a", *range(1, 11))
    stream = Stream(groups="orders-*", since=str(START_MS + 6))
    assert seqs(stream.batch(), "orders-a") == [6, 7, 8, 9, 10]
    stream.restart()
    write(admin, "orders-b", *range(1, 9))
    assert stream.batch() == [("orders-b", seq, "granted") for seq in (6, 7, 8)]
    stream.end()


def test_a_first_batch_that_is_repeated_begins_where_it_began(admin: redis.Redis) -> None:
    """Killed before its commit, it is repeated when "two hours ago" is later; its plan has the original time."""
    write(admin, "orders", *range(1, 11))
    killed = JournalStreamReader(JournalOptions.read({"groups": "orders", "since": str(START_MS + 3)}))
    end = killed.latestOffset(killed.initialOffset(), ALL)
    killed.stop()
    again = JournalStreamReader(JournalOptions.read({"groups": "orders", "since": str(START_MS + 8)}))
    pieces = again.partitions(again.initialOffset(), end)
    assert [row["seq"] for it in pieces for batch in again.read(it) for row in batch.to_pylist()] == [*range(3, 11)]
    again.stop()


def test_a_redis_that_lost_its_data_is_waited_for(admin: redis.Redis) -> None:
    """While it is empty there is nothing to read; the group goes on above its members' seqs, and gaps are reported."""
    write(admin, "orders", *range(1, 11))
    stream = Stream(groups="orders")
    strict = Stream(groups="orders", on_gap="fail")
    assert seqs(stream.batch()) == seqs(strict.batch()) == [*range(1, 11)]
    admin.flushall()
    assert stream.batch() == []
    with pytest.raises(JournalIncomplete, match=r"read up to the entry \d+-0 \(seq 10\), and Redis no longer has that"):
        strict.batch()
    write(admin, "orders", 500, kind="incarnation")
    write(admin, "orders", 501, 504)
    assert stream.batch() == [
        ("orders", 500, "incarnation"),
        ("orders", 501, "granted"),
        ("orders", 503, "gap"),
        ("orders", 504, "granted"),
    ]
    stream.end()
    strict.end()


def test_a_loss_fails_a_strict_query_of_what_is_there_now(admin: redis.Redis) -> None:
    """It fails if Redis has less than was read, or nothing of the group, for an hourly export and when following."""
    write(admin, "orders-a", *range(1, 11))
    write(admin, "orders-b", *range(1, 11))
    write(admin, "billing", *range(1, 11))
    strict = Stream(groups="orders-*,billing", on_gap="fail")
    assert len(strict.batch()) == 30
    admin.delete(journal_key("orders-a"))
    admin.delete("cobalance:1:{orders-a}:state")
    strict.restart()
    strict.catch_up()
    with pytest.raises(
        JournalIncomplete, match=r"group orders-a was read up to .* \(seq 10\), and Redis no longer has that"
    ):
        strict.batch()
    write(admin, "orders-a", 1, 2)
    strict.restart()
    strict.catch_up()
    with pytest.raises(JournalIncomplete, match="group orders-a was read up to"):
        strict.batch()
    strict.end()


def test_a_strict_query_asks_only_for_its_groups(admin: redis.Redis) -> None:
    """The checkpoint may know others, which an earlier query has read."""
    write(admin, "orders", *range(1, 11))
    write(admin, "billing", *range(1, 11))
    both, one = Stream(groups="orders,billing"), Stream(groups="orders", on_gap="fail")
    both.batch()
    one.offset = both.offset
    admin.delete(journal_key("billing"))
    one.catch_up()
    assert one.batch() == []
    both.end()
    one.end()


def test_a_group_that_began_anew_is_reported(admin: redis.Redis) -> None:
    """A history under the same name starts again at seq 1, its first entries gone: they are reported."""
    write(admin, "orders", *range(1, 11))
    stream = Stream(groups="orders")
    stream.batch()
    admin.flushall()
    write(admin, "orders", 3, 4, later_ms=1_000)
    assert stream.batch() == [("orders", 2, "gap"), ("orders", 3, "granted"), ("orders", 4, "granted")]
    stream.end()


def test_an_unreachable_redis_is_asked_again(admin: redis.Redis, server: servers.OwnRedis) -> None:
    """A restart of Redis only costs time; when it stays away for longer than retryS, the query fails and says so."""
    write(admin, "orders", *range(1, 11))
    patient, hasty = Stream(groups="orders", retryS="30"), Stream(groups="orders", retryS="0")
    assert len(patient.batch()) == len(hasty.batch()) == 10
    write(admin, "orders", 11)
    server.save()
    server.stop()
    try:
        with pytest.raises(Unreachable, match="cannot be reached"):
            hasty.batch()
    finally:
        starter = threading.Thread(target=server.start)
        starter.start()
    assert seqs(patient.batch()) == [11]
    starter.join()
    patient.end()
    hasty.end()


def test_a_group_that_does_not_exist_is_an_error_at_the_beginning(admin: redis.Redis) -> None:
    """Names and patterns without a match are reported at once; a stream would wait for them in silence."""
    write(admin, "billing", 1)
    for groups in ("orders", "orders-*"):
        stream = Stream(groups=groups)
        with pytest.raises(UnknownGroup, match=r"There is no group orders.*it has billing"):
            stream.batch()
        stream.end()
