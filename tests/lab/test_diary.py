"""What member processes record, and how it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cobalance import Delivery
from cobalance.lab.diary import Diary, DiaryReader, repeats
from cobalance.lab.message import NumberedMessage

FIRST, SECOND = NumberedMessage("key-1", 1), NumberedMessage("key-1", 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the diary is."""
    return tmp_path / "m1.diary"


@pytest.fixture
def diary(path: Path) -> Iterator[Diary]:
    """An empty one."""
    made = Diary(path)
    yield made
    made.close()


@pytest.mark.parametrize("order", ["", "dawdle until told"])
def test_a_message_is_read_as_it_was_published(order: str) -> None:
    """Its key and number say which one it is; the rest is for its handler."""
    message = NumberedMessage("key-1", 7, 12.5, order)
    read = NumberedMessage.read(message.body())
    assert (read, read.handle_ms, read.order) == (message, 12.5, order)


def test_a_diary_is_read_while_it_grows(path: Path, diary: Diary) -> None:
    """A run has ended once its handler has; each end is reported once."""
    reader = DiaryReader(path, "m1")
    diary.begin(0, Delivery.fake(FIRST.body(), token=7), "id-1")
    diary.note("revoked", "fake-0", 7, member="id-1")
    assert reader.look() == []

    (run,), (entry,) = reader.runs, reader.entries
    assert (run.process, run.message, run.partition, run.token, run.member) == ("m1", FIRST, "fake-0", 7, "id-1")
    assert (run.redelivered, run.offset, run.ended_ns) == (False, None, None)
    assert (entry.kind, entry.partition, entry.token, entry.member) == ("revoked", "fake-0", 7, "id-1")

    diary.begin(1, Delivery.fake(SECOND.body(), token=8, redelivered=True), "id-1")
    diary.end(0)
    (ended,) = reader.look()
    assert ended.ended_ns is not None
    assert ended.begun_ns == run.begun_ns <= entry.at_ns <= ended.ended_ns
    assert [(it.message, it.redelivered) for it in reader.runs] == [(FIRST, False), (SECOND, True)]
    assert reader.look() == []


def test_a_half_written_line_waits_for_its_end(tmp_path: Path, path: Path, diary: Diary) -> None:
    """Its writer may be killed in the middle of a line."""
    growing = tmp_path / "growing"
    reader = DiaryReader(growing, "m1")
    assert (reader.look(), reader.runs) == ([], [])

    diary.begin(0, Delivery.fake(FIRST.body()), "id-1")
    diary.end(0)
    lines = path.read_bytes()
    growing.write_bytes(lines[:-3])
    assert reader.look() == []
    growing.write_bytes(lines)
    assert [it.message for it in reader.look()] == [FIRST]


def test_a_repeat_is_paired_with_the_run_before_it(path: Path, diary: Diary) -> None:
    """However often a message comes."""
    reader = DiaryReader(path, "m1")
    for number, message in enumerate((FIRST, SECOND, FIRST, FIRST)):
        diary.begin(number, Delivery.fake(message.body()), "id-1")
    reader.look()
    first, _, second, third = reader.runs
    assert list(repeats(reader.runs)) == [(first, second), (second, third)]
