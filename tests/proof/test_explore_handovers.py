"""Every interleaving of handovers of a partition: the production core, RabbitMQ as it decides, and any coordinator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cobalance.rabbitmq.partition import acks, core
from cobalance.rabbitmq.partition.actions import CLOSE_CHANNEL, NOTHING, Actions
from cobalance.rabbitmq.partition.backlog import Backlog
from cobalance.rabbitmq.partition.key_order import KeyOrder
from cobalance.rabbitmq.partition.states import Step
from proof.explore.cli import TIERS, Exploration, main, run
from proof.explore.search import SearchResult
from proof.partitions.exploring import REQUIRED_OF_HANDOVERS, HandoverTransitions
from proof.partitions.scope import HANDOVER_SCOPES, can_happen


def explored(scope: str) -> SearchResult:
    """All of a scope, or as far as the first broken promise."""
    return run(Exploration(scope=scope)).result


def test_a_partition_is_handed_over_in_every_interleaving() -> None:
    """Two messages, one request for it, and a channel or a connection lost, at any moments."""
    result = explored("1q")
    assert result.found is None
    assert result.is_complete
    assert result.closures[""] == result.states > 1_000
    assert {"ask", "lose", "cut", "reset", "cut short", "timer"} <= result.reached.keys()


@pytest.mark.thorough
def test_messages_that_fail_or_are_aborted_come_again_in_order() -> None:
    """By key a failed one holds up its key alone; an abort waits for no handler."""
    for scope, kind in (("1q-fail", "fail"), ("1q-abort", "abort")):
        _holds_in_every_interleaving(scope, kind)


@pytest.mark.thorough
def test_a_partition_is_kept_or_given_up_while_the_program_has_messages() -> None:
    """Kept, it goes on with them, or has them again; given up, nothing waits for ever."""
    for scope, kind in (("1q-kept", "go on"), ("1q-given-up", "time out")):
        _holds_in_every_interleaving(scope, kind)


def _holds_in_every_interleaving(scope: str, kind: str) -> None:
    result = explored(scope)
    assert result.found is None
    assert result.is_complete
    assert result.reached[kind]


def test_a_tier_has_to_reach_what_its_scopes_allow() -> None:
    """The CI tier everything; the larger one only what is moved by force or loses its channel."""
    ci, large = ([HANDOVER_SCOPES[it] for it in TIERS[tier]] for tier in ("handovers", "handovers-large"))
    assert all(can_happen(it, ci) for it in REQUIRED_OF_HANDOVERS)
    without = {it for it in REQUIRED_OF_HANDOVERS if not can_happen(it, large)}
    planned = {"ask", "drain", "cut short", "release", "keep", "go on"}
    assert without == planned | {"give up", "time out", "settle", "abort", "fail", "commit"}


def _closes_without_acks(self: core.PartitionCore) -> Actions:
    if not self._has_channel:
        return self._finish(None)
    self._step(Step.CLOSE)
    return CLOSE_CHANNEL


def _never_drained(_: core.PartitionCore) -> Actions:
    return NOTHING


def _keeps_all(_: Backlog) -> None:
    return


def _acks_over_gaps(self: acks.AckTracker, tag: int) -> None:
    self.settled = self._ackable = tag


def _forgets_what_arrived(self: Backlog) -> None:
    self._holds = False
    self._held.clear()


def _may_always_go_on(self: core.PartitionCore) -> bool:
    return self._is_finishing


def _begins_the_next(self: KeyOrder[Any], key: str) -> None:
    self._lines.pop(key, None)
    self._taken.pop(key, None)


PLANTED = {
    "it closes without its last acks": (core.PartitionCore, "_close", _closes_without_acks, "1q", "is begun again"),
    "it is never drained": (core.PartitionCore, "_report_drained", _never_drained, "1q", "at rest"),
    "it keeps what has arrived": (Backlog, "clear", _keeps_all, "1q", ""),
    "it acknowledges over a gap": (acks.AckTracker, "_settle", _acks_over_gaps, "1q-keys", "no handler has finished"),
    "it forgets what arrived": (Backlog, "go_on", _forgets_what_arrived, "1q-kept", "is begun by a before"),
    "it goes on over a gap": (core.PartitionCore, "may_go_on", property(_may_always_go_on), "1q-kept-keys", ""),
    "a key's messages are lost": (KeyOrder, "finish", _begins_the_next, "1q-keys", ""),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the shortest way there, as a story."""
    owner, name, wrong, scope, words = PLANTED[planted]
    monkeypatch.setattr(owner, name, wrong)
    report = run(Exploration(scope=scope, seconds=60))
    assert report.result.found is not None
    assert words in report.result.found.wrong
    told = report.story.splitlines()
    assert any(line.split()[1:4] == ["p", "a", "begins"] for line in told)
    assert told[-1] == f"WRONG {report.result.found.wrong}"


def test_partitions_that_meet_nowhere_are_explored_once() -> None:
    """With nothing to go wrong two partitions have as many states as the product of each, and steps as their sum."""
    alone = HandoverTransitions(HANDOVER_SCOPES["2q"])
    first, second = alone.partitions
    assert (first.first, second.first) == (0, 0)
    list(alone.successors(alone.beginning))
    assert len(first) == len(second)


@pytest.mark.campaign
@pytest.mark.timeout(1_800)
def test_the_tier_is_complete_and_reaches_everything(tmp_path: Path) -> None:
    """Two members, two partitions, three messages; order by partition and by key; queues of all kinds, and streams."""
    file = tmp_path / "explored.json"
    assert main(["--tier", "handovers", "--json", str(file)]) == 0
    reports = [it["result"] for it in json.loads(file.read_text("utf-8"))]
    assert [it["scope"] for it in reports] == list(TIERS["handovers"])
    assert all(it["is_complete"] and it["found"] is None for it in reports)
    assert [kind for kind in REQUIRED_OF_HANDOVERS if not any(it["reached"].get(kind) for it in reports)] == []
