"""Handovers of a partition, recorded of the consumers that ship, in the terms of Handover.tla."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from cobalance.journal import JournalEntry
from cobalance.member.events import Drained
from cobalance.rabbitmq.consume.stream_worker import StreamWorker
from proof.spec.check import followed_all, of_handovers
from proof.spec.corrupt import HANDOVER_CORRUPTIONS, corrupted
from proof.spec.handover_recorder import kind_of
from proof.spec.handover_runs import KINDS, MESSAGES, STORIES, record, recorded
from proof.spec.history import HANDOVER_FIELDS, History, handover_settings, module
from proof.spec.tlc import DOCUMENT, Tlc

pytestmark = pytest.mark.timeout(900)  # for all stories on a busy machine

QUEUE, STREAM, UNLOCKED = KINDS[0], KINDS[3], KINDS[4]

PLANNED = ("ask", "drain", "close", "ended", "release")


def of_tenure(it: History, token: int) -> list[str]:
    return [event["is"] for event in it.events[1:] if event["t"] == token]


def test_a_planned_handover_is_recorded_in_its_order() -> None:
    """Asked for, drained, acknowledged, closed, released; then the next one is granted it, and opens a channel."""
    it = record("memory://recorded", QUEUE, "planned")
    assert it.events[0] == {"is": "partition", "guard": "exclusive", "keys": (0,) * MESSAGES, "prefetch": 3}
    first = of_tenure(it, 1)
    assert [kind for kind in first if kind in PLANNED] == list(PLANNED)
    of_first = [event for event in it.events[1:] if event["t"] == 1]
    acked = [event["some"] for event in of_first[: first.index("close")] if event["is"] == "ack"]
    assert set().union(*acked) == {event["x"] for event in of_first if event["is"] == "finish"}
    released = it.events.index({"is": "release", "t": 1, "offset": 0})
    assert it.events[released + 1] == {"is": "grant", "t": 2}
    assert of_tenure(it, 2)[:3] == ["grant", "open", "subscribed"]
    finished = [event["x"] for event in it.events if event["is"] == "finish"]
    assert finished == list(range(1, MESSAGES + 1))


def test_a_lost_channel_is_recorded_within_its_tenure() -> None:
    """The same holder of a stream opens another, and repeats nothing that a handler has finished."""
    it = record("memory://recorded", STREAM, "lost")
    first = of_tenure(it, 1)
    assert first.count("open") == 2
    assert first.index("cut") < first.index("ended") < len(first) - first[::-1].index("open")
    finished = Counter(event["x"] for event in it.events if event["is"] == "finish")
    assert finished == Counter(range(1, MESSAGES + 1))
    assert it.events[-1]["offset"] == MESSAGES


def test_the_document_follows_every_kind_of_event() -> None:
    """HandoverHistories.tla has an action for each."""
    text = (DOCUMENT / "HandoverHistories.tla").read_text("utf-8")
    assert not [kind for kind in HANDOVER_FIELDS if f'"{kind}"' not in text]


def test_the_settings_give_every_constant_a_value() -> None:
    """Those of the models, too, which a recording has no use for."""
    of_model = (DOCUMENT / "Handover.cfg").read_text("utf-8").splitlines()
    constants = {line.split()[0] for line in of_model if line.startswith("    ")}
    text = handover_settings([])
    assert {line.split()[0] for line in text.splitlines() if line.startswith("    ")} == {*constants, "Recorded"}
    assert [line for line in of_model if line.startswith(("INV", "PROP"))] == text.splitlines()[1:3]


def test_a_partition_is_written_as_tla() -> None:
    """Keys are a sequence, and acknowledged messages a set."""
    partition = {"is": "partition", "guard": "lock", "keys": (0, 1), "prefetch": 3}
    text = module([History("a", (partition, {"is": "ack", "t": 1, "some": {2, 1}}))], "HandoverHistories")
    assert "EXTENDS HandoverHistories" in text
    assert '[is |-> "partition", guard |-> "lock", keys |-> <<0, 1>>, prefetch |-> 3]' in text
    assert '[is |-> "ack", t |-> 1, some |-> {1, 2}]' in text


def test_a_transition_that_the_document_does_not_have_is_an_error() -> None:
    """A recording with a revocation that was called off would be refused for no fault of the code."""
    entry = JournalEntry(id="1-0", seq=1, kind="cancelled", at_ms=0, resource="q")
    with pytest.raises(ValueError, match="has no cancelled"):
        kind_of(entry)
    assert kind_of(attrs.evolve(entry, kind="forced")) == kind_of(attrs.evolve(entry, kind="expired")) == "force"
    assert kind_of(attrs.evolve(entry, kind="added")) == ""


@pytest.fixture(scope="module")
def runs() -> list[History]:
    """Every story with every kind of partition, in memory."""
    return recorded("memory://recorded")


@pytest.mark.thorough
def test_every_kind_of_event_is_recorded_with_its_fields(runs: list[History]) -> None:
    """Otherwise some action would never be compared with what the code does."""
    assert len(runs) == len(KINDS) * len(STORIES)
    assert {event["is"] for it in runs for event in it.events} == set(HANDOVER_FIELDS)
    for it in runs:
        for event in it.events:
            assert set(event) == {"is", *HANDOVER_FIELDS[event["is"]]}


@pytest.mark.thorough
def test_every_corruption_changes_a_run(runs: list[History]) -> None:
    """And only the one it is made of."""
    forged = corrupted(runs, HANDOVER_CORRUPTIONS)
    originals = {it.name: it.events for it in runs}
    for it, name in zip(forged, HANDOVER_CORRUPTIONS, strict=True):
        assert it.events != originals[it.name.removesuffix(f", {name}")]


@pytest.mark.long_campaign
def test_recorded_handovers_are_what_the_document_says(amqp_url: str) -> None:
    """In memory and on a real RabbitMQ; and none of the corrupted ones is. TLC is fetched when it is first needed."""
    it = of_handovers([*recorded("memory://followed"), *recorded(amqp_url)])
    outcomes = list(followed_all(Tlc.obtain(), it))
    assert [outcome for outcome in outcomes if not outcome.passed] == []
    assert len(outcomes) == 1 + len(HANDOVER_CORRUPTIONS)


async def _releases_unclosed(self: StreamWorker) -> Drained:
    return Drained(self.tenure.resource, self.tenure.token, self._finished, self._finished, self._uncommitted())


@pytest.mark.long_campaign
def test_what_a_planted_bug_does_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that does not close its channel is followed up to its release, and no further."""
    monkeypatch.setattr(StreamWorker, "finish", _releases_unclosed)
    it = attrs.evolve(of_handovers([record("memory://planted", UNLOCKED, "planned")]), corruptions={})
    [outcome] = followed_all(Tlc.obtain(), it)
    assert "is refused at event" in outcome.broken
    assert "{'is': 'release', 't': 1" in outcome.broken
