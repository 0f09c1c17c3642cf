"""Scenarios of rolling deploys with new lists: queues are added, dropped and swapped, with faults besides."""

from __future__ import annotations

import attrs

from cobalance_sims.simulate.habits import SLOW, Habits
from cobalance_sims.simulate.scenario import QUICKENED, At, Every, Scenario
from proof.stories import faults as f
from proof.stories.faults import names

COMMITS = Every(700, f.CommitSome(2), jitter_ms=300)
MESSAGES = Every(100, f.Publish(6), jitter_ms=50)

ORDERS, REFUNDS = names(8), names(6, 8)
BOTH = names(14)
OVERLAPPING = names(8, 4)
"""Half of the orders, and some refunds."""

SCENARIOS = (
    Scenario(
        name="deploy_adds",
        summary="a rolling deploy adds a topic, another one a queue, while processes crash and come back",
        plan=(
            At(8_000, f.Redeploy(every_ms=4_000, wants=names(11)), jitter_ms=2_000),
            At(45_000, f.Redeploy(every_ms=2_000, wants=BOTH), jitter_ms=4_000),
            Every(13_000, f.Restart(1_000), jitter_ms=6_000),
            MESSAGES,
        ),
        wants=ORDERS,
        partitions=True,
    ),
    Scenario(
        name="deploy_drops",
        summary="a rolling deploy drops a topic and is rolled back half-way, then goes through; processes crash, and freeze",
        plan=(
            At(8_000, f.Redeploy(every_ms=5_000, wants=ORDERS), jitter_ms=2_000),
            At(20_000, f.Redeploy(every_ms=3_000, wants=BOTH), jitter_ms=2_000),
            At(55_000, f.Redeploy(every_ms=1_000, wants=ORDERS), jitter_ms=4_000),
            Every(17_000, f.Crash(), jitter_ms=6_000),
            Every(17_000, f.Arrive(), start_ms=3_000, jitter_ms=6_000),
            Every(13_000, f.Pause(8_000), jitter_ms=5_000),
            COMMITS,
        ),
        wants=BOTH,
    ),
    Scenario(
        name="deploy_swaps",
        summary="a rolling deploy swaps one topic for another, and back again; handlers are slow, some are cut off, scripts die",
        plan=(
            At(8_000, f.Redeploy(every_ms=4_000, wants=REFUNDS), jitter_ms=2_000),
            At(40_000, f.Redeploy(every_ms=4_000, wants=OVERLAPPING), jitter_ms=5_000),
            At(65_000, f.Redeploy(every_ms=2_000, wants=ORDERS), jitter_ms=5_000),
            Every(15_000, f.CutOff(10_000), jitter_ms=6_000),
            Every(19_000, f.Restart(500), jitter_ms=6_000),
            Every(11_000, f.Behave(SLOW, ms=6_000), jitter_ms=4_000),
            Every(5_000, f.Die(), jitter_ms=3_000),
            COMMITS,
        ),
        wants=ORDERS,
    ),
    Scenario(
        name="deploy_canary",
        summary="one process tries out another topic, for which there was only a standby, while others come, and crash and come back",
        plan=(
            At(2_000, f.Arrive(wants=REFUNDS, capacity=0)),
            At(8_000, f.Arrive(wants=REFUNDS), jitter_ms=2_000),
            Every(20_000, f.Arrive(), jitter_ms=5_000),
            Every(7_000, f.Restart(1_000), jitter_ms=3_000),
            Every(9_000, f.Depart(), start_ms=4_000, jitter_ms=3_000),
            Every(9_000, f.Arrive(wants=names(5)), jitter_ms=3_000),
            COMMITS,
        ),
        habits=Habits(drain_ms=(500, 7_000)),
        wants=ORDERS,
    ),
    Scenario(
        name="deploy_static",
        summary="members with instance ids restart with another list: they keep what both name; some crash, Redis stands still",
        plan=(
            At(8_000, f.Redeploy(remain=True, every_ms=4_000, wants=OVERLAPPING), jitter_ms=2_000),
            At(45_000, f.Redeploy(remain=True, every_ms=1_000, wants=ORDERS), jitter_ms=5_000),
            Every(14_000, f.Restart(2_000), jitter_ms=6_000),
            Every(21_000, f.Freeze(4_000), jitter_ms=8_000),
            COMMITS,
        ),
        instances=True,
        settings=attrs.evolve(QUICKENED, rejoin_grace_ms=10_000),
        wants=ORDERS,
    ),
    Scenario(
        name="deploy_to_lists",
        summary="code that left the list to the group is replaced by code that names its own, while the group's changes; members are unequal",
        plan=(
            At(15_000, f.Redeploy(every_ms=6_000, wants=ORDERS), jitter_ms=5_000),
            At(60_000, f.Redeploy(every_ms=3_000, wants=BOTH), jitter_ms=5_000),
            At(9_000, f.Declare(14), jitter_ms=4_000),
            At(26_000, f.Declare(6), jitter_ms=6_000),
            At(45_000, f.Declare(9), jitter_ms=6_000),
            Every(16_000, f.Restart(1_000), jitter_ms=6_000),
            Every(23_000, f.Outage(4_000), jitter_ms=9_000),
            COMMITS,
        ),
        habits=Habits(drain_ms=(200, 3_000)),
        capacities=(2, 1, 0, 1),
        members=6,
    ),
    Scenario(
        name="deploy_lost",
        summary="deploys swap and add topics while Redis forgets everything, or comes back older",
        plan=(
            At(6_000, f.Redeploy(every_ms=5_000, wants=OVERLAPPING), jitter_ms=3_000),
            At(45_000, f.Redeploy(every_ms=5_000, wants=BOTH), jitter_ms=5_000),
            Every(29_000, f.Remember(), jitter_ms=2_000),
            Every(29_000, f.Stale(), start_ms=6_000, jitter_ms=4_000),
            Every(47_000, f.Empty(), start_ms=15_000, jitter_ms=15_000),
            Every(19_000, f.Restart(1_000), jitter_ms=8_000),
            COMMITS,
        ),
        wants=ORDERS,
    ),
    Scenario(
        name="deploy_narrow",
        summary="a rolling deploy adds and drops topics where one call moves one resource",
        plan=(
            At(8_000, f.Redeploy(every_ms=3_000, wants=OVERLAPPING), jitter_ms=2_000),
            At(45_000, f.Redeploy(every_ms=2_000, wants=BOTH), jitter_ms=5_000),
            Every(13_000, f.Arrive(), jitter_ms=5_000),
            Every(13_000, f.Depart(), start_ms=6_000, jitter_ms=5_000),
            Every(21_000, f.Crash(), jitter_ms=6_000),
            COMMITS,
        ),
        settings=attrs.evolve(QUICKENED, moves_per_call=1),
        wants=ORDERS,
    ),
    Scenario(
        name="deploy_from_nothing",
        summary="deployments with different lists are stopped together and started together, where one call moves one resource",
        plan=(
            At(1_000, f.Arrive(2, wants=REFUNDS)),
            At(1_000, f.Arrive(wants=OVERLAPPING), jitter_ms=1_000),
            Every(11_000, f.StopAll(), start_ms=8_000, jitter_ms=3_000),
            Every(17_000, f.Restart(50), jitter_ms=6_000),
            COMMITS,
        ),
        settings=attrs.evolve(QUICKENED, moves_per_call=1),
        wants=ORDERS,
    ),
    Scenario(
        name="deploy_torn",
        summary="two deployments stay, others come for a while, each with a list of its own, while scripts die",
        plan=(
            At(1_000, f.Arrive(2, wants=REFUNDS)),
            Every(8_000, f.Arrive(wants=names(3, 20)), jitter_ms=3_000),
            Every(8_000, f.Arrive(wants=names(2, 30)), jitter_ms=3_000),
            Every(4_500, f.Depart(), start_ms=6_000, jitter_ms=2_000),
            Every(1_700, f.Die(30), jitter_ms=900),
            COMMITS,
        ),
        wants=ORDERS,
    ),
    Scenario(
        name="deploy_eager",
        summary="a rolling deploy swaps a topic in eager mode",
        plan=(
            At(8_000, f.Redeploy(every_ms=6_000, wants=OVERLAPPING), jitter_ms=2_000),
            At(50_000, f.Redeploy(every_ms=3_000, wants=REFUNDS), jitter_ms=5_000),
            Every(17_000, f.Restart(1_000), jitter_ms=6_000),
            COMMITS,
        ),
        settings=attrs.evolve(QUICKENED, mode="eager"),
        wants=ORDERS,
    ),
)
