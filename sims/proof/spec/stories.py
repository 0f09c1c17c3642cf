"""The recorded runs: small groups with early faults, and every kind of event that the specification knows."""

from __future__ import annotations

import attrs

from cobalance_sims.simulate.habits import STUCK, UNSTOPPABLE, Habits
from cobalance_sims.simulate.network import DEAF
from cobalance_sims.simulate.scenario import QUICKENED, At, Every, Scenario
from proof.spec.history import History
from proof.spec.recorder import record
from proof.stories import faults as f
from proof.stories.scenarios import SCENARIOS

COMMITS = Every(900, f.CommitSome(), jitter_ms=300)

STORIES: tuple[Scenario, ...] = (
    Scenario(
        name="come_and_go",
        summary="processes join, leave and are killed",
        plan=(
            Every(3_000, f.Arrive(), jitter_ms=800),
            Every(4_000, f.Depart(), start_ms=1_000, jitter_ms=800),
            At(9_000, f.Crash(), jitter_ms=2_000),
            COMMITS,
        ),
    ),
    Scenario(
        name="changes_of_mind",
        summary="processes leave while others have just been asked to let go",
        plan=(Every(2_000, f.Arrive(), jitter_ms=200), Every(2_000, f.Depart(), start_ms=600, jitter_ms=500)),
        habits=Habits(drain_ms=(500, 3_000)),
    ),
    Scenario(
        name="never_draining",
        summary="handlers that never return, aborted at the deadline",
        plan=(At(1_000, f.Behave(STUCK, ms=30_000, count=9)), At(2_000, f.Arrive()), At(12_000, f.Arrive()), COMMITS),
        members=2,
    ),
    Scenario(
        name="unstoppable",
        summary="calls that cannot be cancelled, so their resources are taken by force; a member that hears no hint commits all the same",
        plan=(
            At(1_000, f.Disturb(DEAF, 60_000)),
            At(1_000, f.Behave(UNSTOPPABLE, ms=60_000, count=9)),
            At(2_000, f.Arrive()),
            Every(400, f.CommitSome(), start_ms=8_000),
        ),
        members=2,
    ),
    Scenario(
        name="unheard",
        summary="a frozen process is granted what another leaves, and loses it again to newcomers before it has heard of it",
        plan=(At(2_000, f.Pause(4_000)), At(2_500, f.Depart()), At(3_500, f.Arrive(2)), COMMITS),
        members=2,
    ),
    Scenario(
        name="frozen",
        summary="processes freeze, briefly and past their session, and go on",
        plan=(At(1_000, f.Pause(8_000)), At(4_000, f.Pause(2_500)), At(6_000, f.Arrive()), COMMITS),
    ),
    Scenario(
        name="cut_off",
        summary="processes cannot reach Redis, and stop by their own clocks",
        plan=(At(2_000, f.CutOff(12_000)), At(4_000, f.CutOff(3_000)), At(6_000, f.Arrive()), COMMITS),
    ),
    Scenario(
        name="outage",
        summary="nobody reaches Redis for longer than a lease; nobody is blamed for it",
        plan=(At(3_000, f.Outage(8_000)), At(13_000, f.Arrive()), COMMITS),
    ),
    Scenario(
        name="data_lost",
        summary="Redis forgets everything, and the members claim what they hold; one of them dies",
        plan=(At(8_000, f.Empty()), At(8_500, f.Crash(), jitter_ms=400), At(18_000, f.Empty()), COMMITS),
        created=False,
    ),
    Scenario(
        name="lists",
        summary="the resource list grows and shrinks under slow handlers",
        plan=(
            At(2_000, f.Declare(6)),
            At(4_000, f.Declare(2)),
            At(5_500, f.Declare(5)),
            At(7_500, f.Declare(2)),
            At(9_000, f.Arrive()),
            COMMITS,
        ),
        habits=Habits(drain_ms=(500, 2_000)),
    ),
    Scenario(
        name="deploy_adds_and_drops",
        summary="a rolling deploy adds a resource, the next one drops two others; a process crashes in between",
        plan=(
            At(3_000, f.Redeploy(every_ms=2_000, wants=f.names(4))),
            At(9_000, f.Crash(), jitter_ms=1_000),
            At(11_000, f.Redeploy(every_ms=2_000, wants=f.names(2, 2))),
            COMMITS,
        ),
        wants=f.names(3),
        members=3,
    ),
    Scenario(
        name="deploy_tries",
        summary="one process tries out other resources under slow handlers, one names a few only; they leave again",
        plan=(
            At(2_000, f.Arrive(wants=f.names(2, 2))),
            At(4_000, f.Arrive(wants=f.names(1))),
            Every(4_000, f.Depart(), start_ms=6_000, jitter_ms=1_500),
            At(9_000, f.Arrive(wants=f.names(2, 1))),
            COMMITS,
        ),
        habits=Habits(drain_ms=(500, 2_000)),
        wants=f.names(3),
        members=2,
    ),
    *(
        attrs.evolve(SCENARIOS[name], partitions=False, settings=QUICKENED)
        for name in ("redeploy", "leave_during_drain")
    ),
)
"""Some are those of the campaigns, made small; where a list fits one page, an answer carries all its news."""

SEEDS = (0, 1)
EVENTS = 180
"""Approximate events of one history. TLC takes a few milliseconds for each."""


def recorded(events: int = EVENTS) -> list[History]:
    """Returns all histories, always the same ones."""
    return [
        record(attrs.evolve(story, members=min(story.members, 3), resources=4), seed, events)
        for story in STORIES
        for seed in SEEDS
    ]
