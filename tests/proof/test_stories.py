"""Every scenario runs with a few seeds; the same seed gives the same run, on every engine."""

from __future__ import annotations

import pytest

from cobalance.coordinator.memory.lua_engine import ENGINES
from cobalance_sims.simulate.run import Run
from proof.stories.campaign import Campaign
from proof.stories.scenarios import SCENARIOS
from proof.stories.speed import steady_churn


@pytest.mark.campaign
def test_a_campaign_keeps_every_promise_and_reaches_every_trouble() -> None:
    """All scenarios with a few seeds: no checker objects, and everything that must happen sometimes does."""
    campaign = Campaign(SCENARIOS, range(1, 5))
    campaign.run()
    assert campaign.passed, campaign.summary()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["everything", "autoscale", "stale_static"])
def test_the_same_seed_tells_the_same_story_on_every_engine(name: str) -> None:
    """LuaJIT, Lua 5.1 and Lua 5.4 agree in every line, and in the state at the end."""
    outcomes = [Run(SCENARIOS[name], 7, lua=engine).tell() for engine in ENGINES]
    assert [outcome.engine for outcome in outcomes] == list(ENGINES)
    assert outcomes[0].lines == outcomes[1].lines == outcomes[2].lines
    assert len({outcome.digest for outcome in outcomes}) == 1


@pytest.mark.thorough
def test_the_same_seed_tells_the_same_story_again() -> None:
    """A replay is only useful if it is identical."""
    first, again = (Run(SCENARIOS["everything"], 3).tell() for _ in range(2))
    assert first.lines == again.lines
    assert first.digest == again.digest


def test_another_seed_tells_another_story() -> None:
    """A seed that changed nothing would prove nothing."""
    assert len({Run(SCENARIOS["autoscale"], seed, verbose=False).tell().digest for seed in range(5)}) == 5


def test_a_killed_process_is_seen_at_once() -> None:
    """Both witnesses hear of it within 9 ms, and four looks take some 20 to 60."""
    outcome = Run(SCENARIOS["crashes_seen"], 1).tell()
    assert not outcome.failure
    words = [line.split() for line in outcome.lines]
    killed = {who: int(at) for at, who, *what in words if what == ["is", "killed"]}
    ended = {what[1].partition(".")[0]: int(at) for at, _, *what in words if what[::2] == ["expired_member", "crashed"]}
    assert len(killed) > 10
    assert max(ended[who] - at for who, at in killed.items()) < 100


@pytest.mark.thorough
def test_many_members_and_resources_converge_too() -> None:
    """A small copy of the world that speed is measured in keeps every promise."""
    outcome = Run(steady_churn(60, 600, 300_000), 1, verbose=False).tell()
    assert not outcome.failure
