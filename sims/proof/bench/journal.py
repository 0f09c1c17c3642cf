"""Reading a journal for Spark: pages that are split as they come over the wire, against pages that hiredis parses."""

from __future__ import annotations

import os
import time
import uuid
from typing import TYPE_CHECKING

import redis

from cobalance.coordinator.keys import journal_key
from proof.bench.figures import Figure, compare

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRIES = 200_000

_A_CALL = 20_000
_FIRST_MS = 1_790_000_000_000

_WRITE = """
for seq = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local at = string.format('%.0f', ARGV[3] + 3 * seq)
  local who = {'seq', seq, 'kind', '', 'at_ms', at, 'resource', 'orders.' .. seq % 97, 'member', 'billing-7f9c-' .. seq % 12,
    'token', string.format('%.0f', ARGV[3] * 1000 + seq)}
  local kinds = {
    {'revoking', 'handover_id', who[12], 'deadline', at, 'reason', 'rebalance'},
    {'released', 'handover_id', who[12], 'deadline', at, 'drain_ms', 12, 'committed', seq, 'reason', 'rebalance', 'effort', '120/3400/0'},
    {'granted', 'handover_id', who[12]},
  }
  local rest = kinds[seq % 3 + 1]
  who[4] = rest[1]
  for i = 2, #rest do who[#who + 1] = rest[i] end
  redis.call('XADD', KEYS[1], at .. '-0', unpack(who))
end
"""


def figures(redis_url: str, rounds: int, entries: int = ENTRIES) -> Iterator[Figure]:
    """CPU time of the reading process: what a core of Spark's is busy with. Redis's own is the same on both sides."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    with redis.Redis.from_url(redis_url) as admin:
        for first in range(1, entries + 1, _A_CALL):
            admin.eval(_WRITE, 1, journal_key(group), first, min(entries, first + _A_CALL - 1), _FIRST_MS)
        try:
            yield compare(
                "journal into Arrow: split ÷ parsed",
                "rows/s",
                lambda: _rate(redis_url, group, entries, is_raw=True),
                lambda: _rate(redis_url, group, entries, is_raw=False),
                rounds=rounds,
                least=1.0,
                detail=f"{entries:,} entries of three kinds; rows in a second of one process's CPU",
            )
        finally:
            admin.delete(journal_key(group))


def _rate(redis_url: str, group: str, entries: int, *, is_raw: bool) -> float:
    began = time.process_time()
    count = _read(redis_url, group, is_raw=is_raw)
    if count != entries:
        raise AssertionError(f"{count:,} of {entries:,} entries were read")
    return count / (time.process_time() - began)


def _read(redis_url: str, group: str, *, is_raw: bool) -> int:
    from cobalance_sims.spark.journal import uncollected
    from cobalance_sims.spark.journal_options import JournalOptions
    from cobalance_sims.spark.journal_rows import read_slice
    from cobalance_sims.spark.journal_server import JournalServer
    from cobalance_sims.spark.journal_slices import Slice, start_of

    os.environ["COBALANCE_BENCH_URL"] = redis_url
    options = JournalOptions.read({"groups": group, "redisUrlEnv": "COBALANCE_BENCH_URL"})
    with JournalServer(options, is_raw=is_raw) as server, uncollected():
        newest = server.newest(group)
        if newest is None:
            return 0
        piece = Slice(group, start_of(server, group, None), newest)
        pages = server.pages(group, piece.start.id, newest.id)
        return sum(batch.num_rows for batch in read_slice(piece, pages, "fail"))
