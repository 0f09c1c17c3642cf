"""The journal records the effort of a tenure: how often its handler ran, for how long, and how late its heartbeats
were.
"""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from tests.consumers import Place, Seen, new_topic
from tests.names import unique

from cobalance import Group, Tenure
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Effort
from cobalance.group.tenure import Busy
from cobalance.journal import Journal, JournalEntry
from cobalance.member.events import Abandoned, Drained
from cobalance.member.lateness import Lateness
from cobalance.rabbitmq import Delivery

pytestmark = pytest.mark.anyio


def ended(entries: list[JournalEntry]) -> JournalEntry:
    """The first tenure that was released."""
    return next(it for it in entries if it.kind in ("released", "abandoned"))


async def test_a_partition_s_messages_are_counted_and_timed(here: Place) -> None:
    """Each call of the handler counts, including retries, and none of ``on_failure``."""
    seen, failed = Seen(), False

    async def handle(delivery: Delivery) -> None:
        nonlocal failed
        if delivery.body == b"2" and not failed:
            failed = True
            raise ValueError
        await anyio.sleep(0.02)
        seen.note(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        async with here.member(topic, handle, on_failure=lambda *_: None):
            await seen.wait(3)
        it = ended(here.journal())
    assert it.kind == "released"
    assert it.handled == 4
    assert it.busy_ms is not None
    assert it.busy_ms >= 50
    assert it.late_ms is not None
    assert it.late_ms >= 0


async def test_what_a_work_function_marks_is_counted_also_when_it_fails() -> None:
    """The entry of the abandoned tenure has it."""
    url = f"memory://{unique('effort')}"
    transport = open_transport(url)  # in memory, a group lives as long as a transport is open

    async def work(tenure: Tenure) -> None:
        with tenure.processing():
            pass
        raise ValueError

    with suppress(ValueError):
        async with Group("g", ["r"], redis_url=url, work=work):
            await anyio.sleep_forever()
    it = ended(list(Journal(transport, "g").entries()))
    transport.close()
    assert (it.kind, it.reason, it.handled) == ("abandoned", "failed", 1)


def test_pieces_of_work_that_overlap_count_their_time_once() -> None:
    """Two pieces, one of which is still running."""
    now = 0
    busy = Busy(lambda: now)
    busy.begin("first")
    now = 10
    busy.begin("second")
    now = 30
    busy.end("first")
    assert (busy.finished, busy.total_ms, busy.since) == (1, 30, 10)
    now = 35
    busy.end("second")
    assert (busy.finished, busy.total_ms, busy.since) == (2, 35, None)


def test_the_oldest_piece_of_work_counts_however_many_end_beside_it() -> None:
    """It may hang; the others count each from its own beginning."""
    now = 0
    busy = Busy(lambda: now)
    busy.begin("hangs")
    busy.begin(0)
    for now in range(10, 100, 10):
        busy.begin(now)
        busy.end(now - 10)
        assert busy.since == 0
    busy.end("hangs")
    assert (busy.since, busy.total_ms) == (90, 90)


def test_lateness_is_the_longest_silence_beyond_a_heartbeat_and_is_told_once() -> None:
    """Refusals renew nothing, so they end no silence."""
    late, ok = Lateness(), CoordinatorReply(status="OK", heartbeat_interval_ms=100)
    for sent_at, now in ((0, 5), (100, 103), (200, 950), (1_000, 1_001)):
        late.heard(sent_at, now, ok)
    late.heard(5_000, 9_000, CoordinatorReply(status="STALE"))

    done = Drained("r", 1, effort=Effort(2, 30))
    assert late.noted_in(done).effort == Effort(2, 30, 950 - 100 - 100)
    assert late.noted_in(done).effort == Effort(2, 30, 0)
    nobody = Abandoned("r", 1, "fenced")
    assert late.noted_in(nobody) is nobody
