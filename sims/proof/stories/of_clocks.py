"""Scenarios of silences and odd clocks: nobody calls for a while, repeatedly, or Redis's clock jumps."""

from __future__ import annotations

import attrs

from cobalance.settings import GroupSettings
from cobalance_sims.simulate.habits import SLOW, STUCK, UNSTOPPABLE
from cobalance_sims.simulate.scenario import QUICKENED, Every, Scenario
from proof.stories import faults as f

DEFAULTS = GroupSettings(revocation_timeout_ms=8_000, rejoin_grace_ms=0, gather_ms=200)
"""Sessions and heartbeats as shipped."""

BUSY = attrs.evolve(DEFAULTS, heartbeat_interval_ms=50)
GRACE = attrs.evolve(DEFAULTS, rejoin_grace_ms=10_000)

SCENARIOS = (
    Scenario(
        name="stutter",
        summary="the one that is left after a crash stands still for more than half of the time",
        plan=(
            Every(4_300, f.Pause(2_300)),
            Every(30_000, f.Crash(), start_ms=-19_000, jitter_ms=2_000),
            Every(30_000, f.Arrive(), start_ms=-1_000, jitter_ms=2_000),
            Every(30_000, f.Behave(UNSTOPPABLE, ms=40_000, count=2), start_ms=-5_000),
        ),
        members=2,
        settings=DEFAULTS,
    ),
    Scenario(
        name="closed_lids",
        summary="machines sleep, for less than a session or for long, and wake up before their network does",
        plan=(
            Every(9_000, f.Suspend(3_000, 2_500), jitter_ms=3_000),
            Every(17_000, f.Suspend(), jitter_ms=6_000),
            Every(13_000, f.Arrive(), jitter_ms=5_000),
            Every(14_000, f.Depart(), jitter_ms=5_000),
        ),
        settings=DEFAULTS,
    ),
    Scenario(
        name="busy_machine",
        summary="heartbeats every 50 ms on a machine that lets its processes wait for up to 300 ms, while some crash",
        plan=(
            Every(400, f.Stall(120, 300), jitter_ms=200),
            Every(25_000, f.Crash(), start_ms=-15_000, jitter_ms=2_000),
            Every(25_000, f.Arrive(), start_ms=-1_000, jitter_ms=2_000),
            Every(25_000, f.Behave(STUCK, ms=12_000), start_ms=-3_000),
        ),
        members=3,
        length_ms=60_000,
        settings=BUSY,
    ),
    Scenario(
        name="silent_group",
        summary="all processes stand still together, again and again, some of them with an instance id; one crashes in between",
        plan=(
            Every(5_000, f.Stall(2_600, 4_000), jitter_ms=600),
            Every(23_000, f.Crash(), start_ms=-12_000, jitter_ms=3_000),
            Every(23_000, f.Arrive(), start_ms=-2_000, jitter_ms=3_000),
            Every(17_000, f.Stall(7_000, 7_500), jitter_ms=3_000),
            Every(23_000, f.Behave(UNSTOPPABLE, ms=40_000, count=2), start_ms=-8_000),
        ),
        instances=True,
        settings=GRACE,
    ),
    Scenario(
        name="frozen_redis",
        summary="Redis stands still now and then, and its clock jumps ahead, while drains are slow and processes crash",
        plan=(
            Every(9_000, f.Freeze(2_800), jitter_ms=2_000),
            Every(31_000, f.Freeze(9_000), jitter_ms=4_000),
            Every(19_000, f.StepClock(20_000), jitter_ms=1_000),
            Every(14_000, f.Crash(), jitter_ms=4_000),
            Every(14_000, f.Arrive(), start_ms=3_000, jitter_ms=4_000),
            Every(11_000, f.Behave(STUCK, ms=9_000), jitter_ms=3_000),
        ),
        habits=SLOW,
        settings=attrs.evolve(QUICKENED, revocation_timeout_ms=9_000),
    ),
)
