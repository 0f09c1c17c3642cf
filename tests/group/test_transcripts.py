"""Churn stories that a human can read: what every process did, in virtual time, as text.

``COBALANCE_REWRITE=1 pytest tests/group/test_transcripts.py`` rewrites them; review the difference before committing
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from tests.harness import SETTINGS, World, names, steady

from cobalance.settings import MemberSettings

FOLDER = Path(__file__).parents[1] / "transcripts"
QUIET = attrs.evolve(SETTINGS, gather_ms=0)


def handover() -> World:
    """Two processes become three, and two again: only the surplus moves, after it was drained and committed."""
    world = World(QUIET)
    for name in "AB":
        world.start(name, names(6))
        world.settle()
    world.processes["A"].commit("r0", 10)
    world.run(500)
    c = world.start("C", names(6))
    world.run(50)
    world.settle()
    c.stop()
    world.run_until(lambda: c.left)
    world.settle()
    return world


def cancelled() -> World:
    """The joiner leaves while its share is still being drained: the drain is called off, and the tenures go on."""
    world = World(QUIET)
    a = world.start("A", names(2))
    a.habits = steady(drain_ms=2_000)
    world.settle()
    b = world.start("B", names(2))
    world.run(500)
    b.stop()
    world.run_until(lambda: b.left)
    world.run(100)
    return world


def forced() -> World:
    """A handler neither finishes nor stops: the resource is moved at the deadline, its holder hears that it is lost."""
    world = World(QUIET)
    a = world.start("A", names(2))
    a.habits = steady(drain_ms=None, stop_ms=None)
    world.settle()
    world.start("B", names(2))
    world.run(7_000)
    return world


def crash() -> World:
    """One of three is killed: the others take over what it held when its session is over, and keep their own."""
    world = World(QUIET)
    for name in "ABC":
        world.start(name, names(6))
        world.settle()
    world.run(1_000)
    world.processes["C"].kill()
    world.run(100)
    world.settle()
    return world


def data_loss() -> World:
    """Redis is emptied: nobody stops, everybody claims what it holds, and what nobody claims becomes free afterwards."""
    world = World(QUIET)
    for name in "ABC":
        world.start(name, names(6))
        world.settle()
    world.processes["A"].commit("r0", 10)
    world.run(1_000)
    world.processes["C"].kill()
    world.empty_redis()
    world.run(6_000)
    world.settle()
    return world


def static_restart() -> World:
    """With an instance id: a restart moves nothing, scaling in for good gives everything away."""
    world = World(QUIET)
    member = MemberSettings(instance_id="pod-1", drain_timeout_ms=4_000)
    world.start("A", names(4))
    world.settle()
    b = world.start("B", names(4), member=member)
    world.run(50)
    world.settle()
    b.stop(remain=True)
    world.run(2_000)
    c = world.start("C", names(4), member=member)
    world.run(50)
    world.settle()
    c.stop(remain=False)
    world.run_until(lambda: c.left)
    world.settle()
    return world


def lost_replies() -> World:
    """Replies vanish after their requests have run: the same requests are sent again, and nothing happens twice."""
    world = World(QUIET)
    a = world.start("A", names(2))
    world.settle()
    a.fates.extend(["no_reply", "lost", "ok"])
    a.commit("r0", 7)
    world.run(2_000)
    a.fates.extend(["ok", "no_reply", "no_reply"])
    world.start("B", names(2))
    world.run(3_000)
    return world


def cut_off() -> World:
    """Redis is unreachable for two sessions: what no broker guards stops in time, and comes back under new tokens."""
    world = World(QUIET)
    a = world.start("A", names(3))
    world.settle()
    a.work.guard("r0")
    world.redis.up = False
    world.log(None, "Redis cannot be reached; r0 is guarded by its broker")
    world.run(6_000)
    world.redis.up = True
    world.log(None, "Redis is back")
    world.run(100)
    world.settle()
    return world


STORIES = (handover, cancelled, forced, crash, data_loss, static_restart, lost_replies, cut_off)


@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_the_story_is_as_it_was_written_down(tell: Callable[[], World]) -> None:
    """The same story, line by line."""
    assert tell.__doc__ is not None
    text = "\n".join([f"# {tell.__doc__}", "", *tell().trace.lines, ""])
    path = FOLDER / f"{tell.__name__}.txt"
    if os.environ.get("COBALANCE_REWRITE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
