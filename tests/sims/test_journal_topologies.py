"""Journals on a Redis Cluster, and behind Sentinels: what a task and a stream read there, also when a master dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from redis.crc import key_slot
from tests.faults.redis_servers import Cluster, Watched, ask, cluster, wait_for, watched
from tests.redis_user import PASSWORD

from cobalance.coordinator.keys import journal_key
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import Script
from cobalance_sims.spark.journal import JournalReader
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.journal_stream import JournalStreamReader

START_MS = 1_790_000_000_000
WRITE = Script.of(
    "write",
    "for seq = tonumber(ARGV[2]), tonumber(ARGV[3]) do redis.call('XADD', KEYS[1], ARGV[4] + seq .. '-0', 'seq', seq, 'kind', "
    "'granted', 'at_ms', ARGV[4] + seq) end redis.call('HSET', KEYS[2], 'version', ARGV[3])",
)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Three masters, each with a replica."""
    with cluster() as started:
        yield started


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Watched]:
    """A master with a replica and Sentinels."""
    with watched() as started:
        yield started


def write(url: str, group: str, first: int, last: int) -> None:
    """Writes the entries from one seq to another, and the keys that make it a group."""
    with closing(open_transport(url)) as transport:
        transport.call(WRITE, [journal_key(group), f"cobalance:1:{{{group}}}:state"], [first, last, START_MS])


def options(url: str, tmp_path: Path) -> JournalOptions:
    """All orders, in small pieces."""
    (tmp_path / "url").write_text(url)
    return JournalOptions.read({"groups": "orders-*", "redisUrlFile": str(tmp_path / "url"), "partitionEntries": "20"})


def on_every_node(nodes: Cluster) -> list[str]:
    """A group for each master."""
    names = [f"orders-{number}" for number in range(50)]
    slots = {name: key_slot(f"{{{name}}}".encode()) for name in names}
    return [next(name for name in names if first <= slots[name] <= last) for first, last in nodes.SLOTS]


@pytest.mark.thorough
def test_the_groups_of_all_nodes_are_read(nodes: Cluster, tmp_path: Path) -> None:
    """A pattern finds them wherever they are, and each piece is read where it is."""
    groups = on_every_node(nodes)
    for group, count in zip(groups, (50, 30, 7), strict=True):
        write(nodes.url, group, 1, count)
    reader = JournalReader(options(nodes.url, tmp_path))
    pieces = reader.partitions()
    rows = [row for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]
    assert len(pieces) == 2 + 1 + 1
    assert [sum(row["run"] == group for row in rows) for group in groups] == [50, 30, 7]
    assert {row["kind"] for row in rows} == {"granted"}
    assert PASSWORD not in repr([vars(piece) for piece in pieces])


@pytest.mark.thorough
def test_a_stream_goes_on_at_the_replica(sentinels: Watched, tmp_path: Path) -> None:
    """The master dies between two batches: Sentinel names another, and nothing is missing or comes twice."""
    write(sentinels.url, "orders-a", 1, 30)
    wait_for(lambda: ask(sentinels.master.port, "WAIT", 1, 100) == 1)
    stream = JournalStreamReader(options(sentinels.url, tmp_path))
    first = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    sentinels.master.kill()
    rows = [
        row["seq"]
        for it in stream.partitions(stream.initialOffset(), first)
        for b in stream.read(it)
        for row in b.to_pylist()
    ]
    wait_for(lambda: ask(sentinels.replicas[0].port, "ROLE")[0] == "master")
    write(sentinels.url, "orders-a", 31, 40)
    second = stream.latestOffset(first, ReadAllAvailable())
    rows += [row["seq"] for it in stream.partitions(first, second) for b in stream.read(it) for row in b.to_pylist()]
    stream.stop()
    assert rows == [*range(1, 41)]
