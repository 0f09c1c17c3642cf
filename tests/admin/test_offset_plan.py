"""Plans of ``reset-offsets``: each of Kafka's flags, for a real stream."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.names import unique
from tests.rabbitmq.wire.test_containment import publish_unreadable
from tests.streams import TINY, Stream, new_stream

from cobalance.admin.offset_plan import Shift, Target, plan
from cobalance.admin.offset_target import OffsetTarget, read_plan
from cobalance.errors import UsageError
from cobalance.rabbitmq.streams.extent import Extent, read_ends
from cobalance.rabbitmq.streams.reading_mark import remember

COUNT, COMMITTED = 30, 19


@pytest.fixture(scope="module")
def stream(amqp_url: str) -> Iterator[Stream]:
    """Thirty messages, twenty of which are processed."""
    with new_stream(amqp_url, COUNT) as it:
        yield it


@pytest.mark.parametrize(
    ("flags", "following", "asked"),
    [
        ({"to_earliest": True}, 0, 0),
        ({"to_latest": True}, COUNT, COUNT),
        ({"to_current": True}, 20, 20),
        ({"to_offset": 7}, 7, 7),
        ({"to_offset": 7_000}, COUNT, 7_000),
        ({"shift_by": -5}, 15, 15),
        ({"shift_by": -500}, 0, -480),
        ({"shift_by": 500}, COUNT, 520),
        ({"shift_by": 0}, 20, 20),
        ({"to_datetime": "2020-01-01T00:00:00.000"}, 0, 0),
        ({"to_datetime": "2999-01-01T00:00:00+02:00"}, COUNT, COUNT),
        ({"by_duration": "P1DT1H1M1.5S"}, 0, 0),
        ({"by_duration": "2h"}, 0, 0),
        ({"to_datetime": "1066-10-14"}, 0, 0),
    ],
    ids=str,
)
def test_each_flag(stream: Stream, amqp_url: str, flags: dict[str, Any], following: int, asked: int) -> None:
    """The next message to be read, limited to what the stream has; one below is committed."""
    (step,) = plan(OffsetTarget(**flags).target, [stream.name], {stream.name: COMMITTED}, amqp_url, "scope")
    assert (step.stream, step.next, step.asked, step.committed) == (stream.name, following, asked, following - 1)


@pytest.mark.parametrize(("committed", "read", "warned"), [(9, False, True), (9, True, False), (None, False, False)])
def test_a_stream_that_the_group_has_not_read_is_told(
    amqp_url: str, committed: int | None, *, read: bool, warned: bool
) -> None:
    """Its offset is that of another one, which this one has replaced."""
    scope = unique("scope")
    with new_stream(amqp_url, COUNT) as stream:
        if read:
            remember(amqp_url, scope, [stream.name])
        (step,) = plan(7, [stream.name], {stream.name: committed}, amqp_url, scope)
        assert step.is_read is read
        assert ("not know that this group has read it" in (step.remark or "")) is warned


@pytest.mark.parametrize(
    "target",
    [
        *("erliest", "2020-01-01", None, True, 1.5, ["earliest"]),
        *map(datetime.fromisoformat, ("2020-01-01", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00")),
    ],
    ids=str,
)
def test_a_target_that_is_none_is_refused(stream: Stream, amqp_url: str, target: Any) -> None:
    """A misspelt one led to the end of each stream, past all that was not processed yet."""
    with pytest.raises(UsageError, match=r"^the target is .*: give "):
        plan(target, [stream.name], {stream.name: COMMITTED}, amqp_url, "scope")


def test_out_of_range_is_brought_to_the_oldest_message_that_is_left(amqp_url: str) -> None:
    """Retention has removed the earlier ones."""
    with new_stream(amqp_url, 5, TINY) as stream:
        first = stream.append_until_gone(5)
        for flags in ({"to_offset": 2}, {"to_earliest": True}):
            (step,) = plan(OffsetTarget(**flags).target, [stream.name], {}, amqp_url, "scope")
            assert step.next >= first


def test_an_empty_stream(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begins and ends at 0. As nothing can come late, nothing is waited for."""
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.SILENCE_MS", 100.0)
    with new_stream(amqp_url) as stream:
        (step,) = plan("latest", [stream.name], {}, amqp_url, "scope")
        assert (step.next, step.committed) == (0, -1)


@pytest.mark.parametrize("readable", [0, 5])
def test_around_a_message_that_cannot_be_read(amqp_url: str, readable: int) -> None:
    """A reset is what leads a halted stream behind it, be it the first message or the last."""
    with new_stream(amqp_url, readable) as stream:
        publish_unreadable(amqp_url, stream.name)
        targets: dict[Target, int] = {"earliest": 0, "latest": readable + 1, readable: readable, Shift(1): readable + 1}
        for target, following in targets.items():
            (step,) = plan(target, [stream.name], {stream.name: readable - 1}, amqp_url, "scope")
            assert step.next == following
        assert read_ends(amqp_url, [stream.name]) == {stream.name: readable}


def test_extents() -> None:
    """The arithmetic of ranges."""
    assert [Extent(5, 9).nearest(it) for it in (0, 5, 9, 10, 99)] == [5, 5, 9, 10, 10]
    assert [Extent(None, None).nearest(it) for it in (0, 9)] == [0, 0]


@pytest.mark.parametrize("flags", [{}, {"to_earliest": True, "to_offset": 0}, {"shift_by": 0, "to_current": True}])
def test_exactly_one_flag(flags: dict[str, Any]) -> None:
    """Zero is a valid number."""
    with pytest.raises(UsageError, match="Give one of --to-earliest, --to-latest"):
        OffsetTarget(**flags)


@pytest.mark.parametrize("flags", [{"to_current": True}, {"shift_by": 1}])
def test_nothing_to_go_by(stream: Stream, amqp_url: str, flags: dict[str, Any]) -> None:
    """A stream without a committed offset has no current offset."""
    with pytest.raises(UsageError, match="no committed offset"):
        plan(OffsetTarget(**flags).target, [stream.name], {}, amqp_url, "scope")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"to_datetime": "yesterday"}, "is no time"),
        ({"by_duration": "P"}, "no duration"),
        ({"by_duration": "x"}, "90s"),
        ({"by_duration": "P999999D"}, "--to-earliest"),
        ({"by_duration": "P9999999999D"}, "--to-earliest"),
    ],
    ids=str,
)
def test_times_that_are_none(flags: dict[str, Any], words: str) -> None:
    """The message shows how to write one."""
    with pytest.raises(UsageError, match=words):
        _ = OffsetTarget(**flags).target


def test_a_file(tmp_path: Path) -> None:
    """Topic, partition and offset per line; a stream outside of topics has an empty topic."""
    path = tmp_path / "plan.csv"
    path.write_text('orders,0,7\n"orders",1,8\n,audit,9\n')
    assert read_plan(path) == {"orders-0": 7, "orders-1": 8, "audit": 9}


@pytest.mark.parametrize("line", ["orders,0", "orders,0,x", "orders,,3", "orders,0,-1"])
def test_a_file_that_is_no_plan(tmp_path: Path, line: str) -> None:
    """The line is named."""
    path = tmp_path / "plan.csv"
    path.write_text(f"orders,0,7\n{line}\n")
    with pytest.raises(UsageError, match="line 2"):
        read_plan(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path / "none")
