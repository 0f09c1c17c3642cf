"""Groups that administrators delete under their members."""

from __future__ import annotations

import attrs
import pytest

from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.scenario import At, Scenario
from cobalance_sims.simulate.server import RedisServer
from proof.stories import faults as f
from proof.stories.of_admins import DeleteGroup
from proof.stories.scenarios import SCENARIOS

STORY = Scenario(
    name="deleted",
    summary="a group with members is deleted, once",
    plan=(At(5_000, f.CommitSome(9)), At(10_000, DeleteGroup())),
    length_ms=30_000,
)


def test_a_group_that_is_deleted_by_force_keeps_its_promises() -> None:
    """Its members claim what they hold and continue: no resource is worked by two, and held offsets are kept."""
    run = Run(SCENARIOS["group_deleted"], 1)
    outcome = run.tell()
    assert not outcome.failure
    assert run.world.redis.lost_data >= 3


def test_holders_keep_what_they_have_over_a_deletion() -> None:
    """Each resource is claimed by its holder, under its token and with its offset, and none is granted again."""
    run = Run(STORY, 1)
    outcome = run.tell()
    assert not outcome.failure
    after = "\n".join(outcome.lines).partition("deleted by force")[2]
    assert after.count(" claimed ") == STORY.resources
    assert " granted " not in after


def test_members_keep_their_group_from_being_deleted_gently() -> None:
    """It goes on as if nobody had asked."""
    gently = Scenario(name="kept", summary="", plan=(At(10_000, DeleteGroup(by_force=False)),), length_ms=20_000)
    run = Run(gently, 1)
    assert any("the group is not deleted" in line for line in run.tell().lines)
    assert run.world.redis.lost_data == 0


def test_a_gentle_deletion_that_is_not_refused_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where members claim everything that there was."""
    delete = RedisServer.delete
    monkeypatch.setattr(RedisServer, "delete", lambda self, *, by_force: delete(self, by_force=not by_force))
    plan = (*STORY.plan[:1], At(10_000, DeleteGroup(by_force=False)))
    assert "S4: a group that has members is deleted" in Run(attrs.evolve(STORY, plan=plan), 1).tell().failure
