"""The scenarios, as data: what happens to a group while every promise is checked."""

from __future__ import annotations

import attrs

from cobalance_sims.simulate.habits import SLOW, STUBBORN, STUCK, UNSTOPPABLE, Habits
from cobalance_sims.simulate.network import BAD, DEAF
from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.scenario import QUICKENED, At, Every, Scenario
from proof.stories import faults as f
from proof.stories import of_admins, of_clocks, of_crashes, of_lists

GRACE = attrs.evolve(QUICKENED, rejoin_grace_ms=10_000)
EAGER = attrs.evolve(QUICKENED, mode="eager")
SLOW_TO_CALL = attrs.evolve(
    QUICKENED, session_timeout_ms=30_000, heartbeat_interval_ms=9_000, revocation_timeout_ms=30_000
)
CAUTIOUS = attrs.evolve(QUICKENED, moves_per_call=1)
COMMITS = Every(700, f.CommitSome(2), jitter_ms=300)
MESSAGES = Every(100, f.Publish(6), jitter_ms=50)

_ALL = (
    Scenario(
        name="redeploy",
        summary="every process leaves gracefully and is replaced, one after the other",
        plan=(At(5_000, f.Redeploy(every_ms=3_000)), At(50_000, f.Redeploy(every_ms=500)), MESSAGES),
        partitions=True,
    ),
    Scenario(
        name="redeploy_static",
        summary="the same with instance ids: what a process held waits for it; some crash, some come twice",
        plan=(
            At(5_000, f.Redeploy(remain=True, every_ms=4_000)),
            Every(9_000, f.Restart(1_000), start_ms=30_000, jitter_ms=2_000),
            At(60_000, f.Arrive(1, instances=("i1",))),
            Every(11_000, f.Pause(9_000), start_ms=35_000, jitter_ms=4_000),
            COMMITS,
        ),
        instances=True,
        settings=GRACE,
    ),
    Scenario(
        name="autoscale",
        summary="processes come by twos and threes and go again",
        plan=(
            Every(12_000, f.Arrive(3), jitter_ms=3_000),
            Every(12_000, f.Depart(3), start_ms=6_000, jitter_ms=3_000),
            MESSAGES,
        ),
        partitions=True,
    ),
    Scenario(
        name="flapping_member",
        summary="one process comes and goes faster than the others can let go",
        plan=(Every(900, f.Arrive(), jitter_ms=300), Every(900, f.Depart(), start_ms=400, jitter_ms=400), COMMITS),
        habits=Habits(drain_ms=(200, 2_000)),
        length_ms=40_000,
    ),
    Scenario(
        name="flapping_crasher",
        summary="one process joins and crashes, over and over",
        plan=(
            Every(2_500, f.Arrive(), jitter_ms=800),
            Every(2_500, f.Crash(), start_ms=1_200, jitter_ms=1_200),
            COMMITS,
        ),
        length_ms=60_000,
    ),
    Scenario(
        name="mass_crash",
        summary="most processes die in the same moment, and later come back",
        plan=(
            At(10_000, f.Crash(6)),
            At(30_000, f.Arrive(6)),
            At(45_000, f.Crash(4), jitter_ms=3_000),
            At(46_000, f.Arrive(4), jitter_ms=3_000),
            MESSAGES,
        ),
        members=8,
        partitions=True,
    ),
    Scenario(
        name="slow_consumer",
        summary="handlers take long, so drains do, while processes come and go",
        plan=(
            Every(6_000, f.Arrive(), jitter_ms=2_000),
            Every(6_000, f.Depart(), start_ms=3_000, jitter_ms=2_000),
            Every(4_000, f.Behave(SLOW, ms=9_000)),
            COMMITS,
        ),
        habits=SLOW,
    ),
    Scenario(
        name="poison",
        summary="resources that nobody can work: given up soon after each grant, or after a while",
        plan=(At(70_000, f.Crash()), At(72_000, f.Arrive())),
        habits=Habits(fails_ms_of={"r3": (80, 120), "r7": (15_000, 40_000)}),
        length_ms=180_000,
    ),
    Scenario(
        name="givers_trouble",
        summary="resources that are given up again and again, in whatever words, or are never drained",
        plan=(At(70_000, f.Crash()), At(72_000, f.Arrive())),
        habits=Habits(
            fails_ms_of={"r1": (80, 120), "r3": (80, 120), "r5": (200, 3_000), "r7": (15_000, 40_000)},
            fails_as={"r1": "cancelled", "r3": "hung", "r5": "deadline", "r7": "deadline"},
            drain_ms_of={"r9": None},
        ),
        length_ms=180_000,
    ),
    Scenario(
        name="never_draining",
        summary="handlers that never return: cancelled at the deadline, or not even that",
        plan=(
            Every(6_000, f.Behave(STUCK, ms=15_000), jitter_ms=2_000),
            Every(13_000, f.Behave(UNSTOPPABLE, ms=20_000), jitter_ms=2_000),
            Every(5_000, f.Arrive(), start_ms=2_000, jitter_ms=2_000),
            Every(5_000, f.Depart(), start_ms=4_500, jitter_ms=2_000),
            Every(9_000, f.Pause(7_000), jitter_ms=4_000),
            Every(200, f.CommitSome(2), jitter_ms=100),
        ),
    ),
    Scenario(
        name="stubborn_handlers",
        summary="handlers that take their time even when they are aborted, at members that hear no hints",
        plan=(
            At(1, f.Disturb(DEAF, 89_000)),
            Every(4_000, f.Behave(STUBBORN, ms=20_000, count=2), jitter_ms=1_000),
            Every(6_000, f.Arrive(), start_ms=2_000, jitter_ms=2_000),
            Every(6_000, f.Depart(), start_ms=4_500, jitter_ms=2_000),
            Every(200, f.CommitSome(2), jitter_ms=100),
        ),
    ),
    Scenario(
        name="rival_claims",
        summary="guarded members that are cut off keep consuming; Redis forgets, and they claim what others have been granted",
        plan=(
            Every(28_000, f.CutOff(15_000, 2), start_ms=-20_000, jitter_ms=1_000),
            Every(28_000, f.Empty(), start_ms=-6_000, jitter_ms=2_000),
            Every(31_000, f.Pause(16_000), start_ms=-15_000, jitter_ms=3_000),
            MESSAGES,
        ),
        partitions=True,
        members=5,
    ),
    Scenario(
        name="stuck_partition",
        summary="a message whose handler hangs: it costs its partition's holder, then goes on elsewhere",
        plan=(
            Every(15_000, f.Behave(STUCK, ms=5_000), jitter_ms=5_000),
            Every(11_000, f.Arrive(), jitter_ms=3_000),
            Every(11_000, f.Depart(), start_ms=5_000, jitter_ms=3_000),
            MESSAGES,
        ),
        partitions=True,
    ),
    Scenario(
        name="hot_partition",
        summary="nearly all messages go to one partition, while processes come, go and crash",
        plan=(
            Every(60, f.Publish(2, hot=True), jitter_ms=20),
            Every(9_000, f.Restart(2_000), jitter_ms=3_000),
            Every(8_000, f.Arrive(), jitter_ms=3_000),
            Every(8_000, f.Depart(), start_ms=4_000, jitter_ms=3_000),
        ),
        partitions=True,
        resources=6,
    ),
    Scenario(
        name="frozen_consumer",
        summary="processes freeze past their session and their broker's patience, and go on as if nothing had happened",
        plan=(Every(9_000, f.Pause(12_000), jitter_ms=4_000), Every(14_000, f.Pause(3_000), jitter_ms=4_000), MESSAGES),
        partitions=True,
    ),
    Scenario(
        name="freezes",
        summary="short and long freezes, without a broker to help",
        plan=(
            Every(3_000, f.Pause(2_500), jitter_ms=2_000),
            Every(8_000, f.Pause(9_000), jitter_ms=4_000),
            Every(9_000, f.Arrive(), jitter_ms=4_000),
            Every(9_000, f.Depart(), start_ms=4_000, jitter_ms=4_000),
            COMMITS,
        ),
    ),
    Scenario(
        name="resource_growth",
        summary="the list grows and shrinks, while processes come and go",
        plan=(
            At(8_000, f.Declare(40)),
            At(20_000, f.Declare(25)),
            At(24_000, f.Declare(60)),
            At(26_000, f.Declare(30)),
            At(27_000, f.Declare(50), jitter_ms=2_000),
            At(50_000, f.Declare(3)),
            At(65_000, f.Declare(20)),
            Every(7_000, f.Arrive(), jitter_ms=3_000),
            Every(7_000, f.Depart(), start_ms=3_500, jitter_ms=3_000),
            COMMITS,
        ),
        habits=Habits(drain_ms=(100, 3_000)),
    ),
    Scenario(
        name="redis_outage",
        summary="nobody reaches Redis, for shorter and for longer than a session; some partitions are guarded",
        plan=(
            At(10_000, f.Outage(3_000)),
            At(25_000, f.Outage(15_000)),
            At(27_000, f.Crash()),
            Every(9_000, f.Arrive(), jitter_ms=3_000),
            At(60_000, f.CutOff(12_000, 2)),
            MESSAGES,
        ),
        partitions=True,
    ),
    Scenario(
        name="cut_off",
        summary="some processes are cut off from Redis while the others are not, and nothing guards their resources",
        plan=(
            Every(8_000, f.CutOff(9_000), jitter_ms=4_000),
            Every(15_000, f.Outage(8_000), start_ms=7_000, jitter_ms=4_000),
            Every(9_000, f.Arrive(), jitter_ms=3_000),
            Every(9_000, f.Depart(), start_ms=4_000, jitter_ms=3_000),
            COMMITS,
        ),
    ),
    Scenario(
        name="slow_lines",
        summary="a process's line to Redis becomes slow before it breaks, or before the process freezes with an answer on its way",
        plan=(
            Every(7_000, f.Fade(), jitter_ms=3_000),
            Every(7_000, f.Fade(freezes=True), start_ms=2_000, jitter_ms=3_000),
            Every(5_000, f.Arrive(), jitter_ms=2_000),
            Every(5_000, f.Depart(), start_ms=2_500, jitter_ms=2_000),
            COMMITS,
        ),
        members=6,
    ),
    Scenario(
        name="redis_emptied",
        summary="Redis forgets everything, and everybody claims what it holds",
        plan=(
            At(15_000, f.Empty(), jitter_ms=2_000),
            At(16_500, f.Crash(), jitter_ms=1_000),
            At(45_000, f.Empty(restarted=False), jitter_ms=5_000),
            At(47_000, f.Empty(), jitter_ms=5_000),
            Every(11_000, f.Arrive(), jitter_ms=5_000),
            Every(11_000, f.Depart(), start_ms=5_000, jitter_ms=5_000),
            COMMITS,
        ),
        created=False,
    ),
    Scenario(
        name="forgotten_pages",
        summary="Redis forgets everything while processes leave that need many calls to tell what they hold; handlers are slow",
        plan=(
            Every(12_000, f.Depart(), start_ms=-4_000, jitter_ms=1_000),
            Every(12_000, f.Empty(), start_ms=-3_000, jitter_ms=1_500),
            Every(12_000, f.Arrive(), jitter_ms=1_000),
            *(At(ms, f.Redeploy(remain=True, every_ms=1_500), jitter_ms=4_000) for ms in (29_000, 58_000)),
            Every(31_000, f.CutOff(4_000), jitter_ms=9_000),
            COMMITS,
        ),
        habits=Habits(drain_ms=(500, 5_000)),
        instances=True,
        settings=attrs.evolve(GRACE, moves_per_call=2),
        page=2,
        members=3,
        resources=20,
    ),
    Scenario(
        name="hasty_newcomer",
        summary="Redis forgets a group that is slow to call; the first to come knows neither it nor how long its sessions are",
        plan=(
            Every(9_500, f.CommitSome(1), jitter_ms=5_000),
            At(29_000, f.Empty(restarted=False), jitter_ms=800),
            At(30_000, f.Arrive(2, settings=QUICKENED), jitter_ms=200),
            At(34_000, f.CutOff(4_000), jitter_ms=2_000),
            At(109_000, f.Empty(), jitter_ms=800),
            At(110_000, f.Arrive(1, settings=QUICKENED), jitter_ms=200),
        ),
        settings=SLOW_TO_CALL,
        length_ms=170_000,
    ),
    Scenario(
        name="amnesia",
        summary="Redis forgets everything while its clock is behind: only the members know which tokens there were",
        plan=(
            At(5_000, f.StepClock(-60_000)),
            At(7_000, f.Arrive(2)),
            At(14_000, f.Outage(9_000)),
            At(18_000, f.Empty()),
            At(40_000, f.Arrive(2)),
            At(50_000, f.Empty(restarted=False), jitter_ms=2_000),
            At(65_000, f.Arrive()),
            COMMITS,
        ),
        length_ms=80_000,
    ),
    Scenario(
        name="stale_replica",
        summary="Redis comes back as it was a while ago, while processes come and go",
        plan=(
            Every(17_000, f.Remember(), start_ms=5_000),
            Every(17_000, f.Stale(), start_ms=11_000, jitter_ms=4_000),
            At(70_000, f.Stale(), jitter_ms=4_000),
            Every(6_000, f.Arrive(), jitter_ms=3_000),
            Every(7_000, f.Depart(), start_ms=4_000, jitter_ms=3_000),
            Every(16_000, f.Crash(), jitter_ms=5_000),
            COMMITS,
        ),
    ),
    Scenario(
        name="rolled_back",
        summary="a snapshot is put back in place, which no identity shows, while processes come, go and are cut off",
        plan=(
            Every(15_000, f.Remember(), start_ms=5_000),
            Every(15_000, f.Stale(restarted=False), start_ms=9_000, jitter_ms=4_000),
            Every(5_000, f.Arrive(), jitter_ms=3_000),
            Every(6_000, f.Depart(), start_ms=3_000, jitter_ms=3_000),
            Every(19_000, f.Crash(), jitter_ms=5_000),
            Every(23_000, f.CutOff(7_000), start_ms=8_000, jitter_ms=5_000),
            COMMITS,
        ),
    ),
    Scenario(
        name="stale_static",
        summary="the same with instance ids and their grace",
        plan=(
            Every(15_000, f.Remember(), start_ms=5_000),
            Every(15_000, f.Stale(), start_ms=9_000, jitter_ms=4_000),
            Every(7_000, f.Restart(800), jitter_ms=3_000),
            Every(13_000, f.Depart(remain=True), jitter_ms=3_000),
            Every(13_000, f.Arrive(1, instances=("i0", "i1", "i2", "i3")), start_ms=2_000, jitter_ms=3_000),
            COMMITS,
        ),
        instances=True,
        settings=GRACE,
    ),
    Scenario(
        name="late_witness",
        summary="the only one who knows how much was lost is frozen until those who came since have recovered",
        plan=(
            *(At(ms, f.Arrive(4), jitter_ms=1_000) for ms in (4_000, 14_000, 24_000)),
            *(At(ms, f.Depart(4), jitter_ms=1_000) for ms in (9_000, 19_000, 29_000)),
            At(36_000, f.Pause(50_000)),
            At(37_000, f.Empty(restarted=False), jitter_ms=500),
            At(38_000, f.Arrive(2)),
            COMMITS,
        ),
        members=1,
        length_ms=110_000,
    ),
    Scenario(
        name="dying_scripts",
        summary="scripts die between their writes, while processes come, go and crash",
        plan=(
            Every(1_500, f.Die(), jitter_ms=700),
            Every(9_000, f.Arrive(), jitter_ms=2_000),
            Every(9_000, f.Depart(), start_ms=4_500, jitter_ms=2_000),
            Every(15_000, f.Crash(), start_ms=7_000, jitter_ms=5_000),
            Every(17_000, f.Behave(STUCK, ms=9_000), jitter_ms=6_000),
            COMMITS,
        ),
    ),
    Scenario(
        name="clock_steps",
        summary="the clock of Redis's machine is set forwards and backwards",
        plan=(
            At(10_000, f.StepClock(30_000)),
            At(25_000, f.StepClock(-60_000)),
            At(45_000, f.StepClock(3_600_000)),
            At(60_000, f.StepClock(-5_000)),
            Every(7_000, f.Arrive(), jitter_ms=3_000),
            Every(7_000, f.Depart(), start_ms=3_000, jitter_ms=3_000),
            Every(20_000, f.Restart(), jitter_ms=8_000),
            COMMITS,
        ),
        habits=Habits(drain_ms=(100, 3_000)),
    ),
    *of_clocks.SCENARIOS,
    *of_crashes.SCENARIOS,
    *of_lists.SCENARIOS,
    *of_admins.SCENARIOS,
    Scenario(
        name="join_storm",
        summary="forty processes join within seconds, and half of them go again",
        plan=(
            At(5_000, f.Arrive(20)),
            At(6_000, f.Arrive(20), jitter_ms=1_000),
            At(7_500, f.Depart(10), jitter_ms=1_000),
            At(20_000, f.Depart(10), jitter_ms=1_000),
            At(22_000, f.Crash(8), jitter_ms=2_000),
            COMMITS,
        ),
        resources=120,
        length_ms=50_000,
        habits=Habits(drain_ms=(10, 1_500)),
    ),
    Scenario(
        name="leave_during_drain",
        summary="processes leave, crash or lose their line while they drain",
        plan=(
            Every(4_000, f.Arrive(2), jitter_ms=1_000),
            Every(4_000, f.Depart(1), start_ms=500, jitter_ms=400),
            Every(8_000, f.Crash(1), start_ms=1_500, jitter_ms=1_400),
            Every(9_000, f.CutOff(8_000), start_ms=1_200, jitter_ms=900),
            Every(4_000, f.Depart(1), start_ms=2_000, jitter_ms=1_900),
            COMMITS,
        ),
        habits=Habits(drain_ms=(1_000, 7_000)),
        settings=CAUTIOUS,
    ),
    Scenario(
        name="bad_network",
        summary="requests, replies and hints are lost, late or slow, while processes come and go",
        plan=(
            Every(10_000, f.Disturb(BAD, 8_000)),
            Every(10_000, f.DEAFEN, start_ms=9_000),
            Every(5_000, f.Arrive(), jitter_ms=2_000),
            Every(5_000, f.Depart(), start_ms=2_500, jitter_ms=2_000),
            Every(21_000, f.Restart(), jitter_ms=8_000),
            COMMITS,
        ),
    ),
    Scenario(
        name="standby",
        summary="members of unequal capacity, and one that only stands by",
        plan=(
            Every(12_000, f.Arrive(capacity=3), jitter_ms=3_000),
            Every(12_000, f.Depart(), start_ms=6_000, jitter_ms=3_000),
            Every(25_000, f.Crash(), jitter_ms=9_000),
            COMMITS,
        ),
        capacities=(2, 1, 0, 4),
        resources=30,
    ),
    Scenario(
        name="eager",
        summary="the honest baseline: every change stops everything",
        plan=(
            Every(11_000, f.Arrive(), jitter_ms=4_000),
            Every(11_000, f.Depart(), start_ms=5_000, jitter_ms=4_000),
            Every(17_000, f.Restart(), jitter_ms=6_000),
            Every(19_000, f.Behave(STUCK, ms=9_000), jitter_ms=6_000),
            COMMITS,
        ),
        settings=EAGER,
    ),
    Scenario(
        name="eager_static",
        summary="in eager mode with instance ids: what was kept for a process is dealt with the rest",
        plan=(
            At(5_000, f.Redeploy(remain=True, every_ms=4_000)),
            Every(9_000, f.Restart(1_000), start_ms=30_000, jitter_ms=2_000),
            Every(11_000, f.Pause(9_000), start_ms=35_000, jitter_ms=4_000),
            Every(6_000, f.Behave(SLOW, ms=9_000)),
            COMMITS,
        ),
        instances=True,
        settings=attrs.evolve(GRACE, mode="eager"),
    ),
    Scenario(
        name="eager_poison",
        summary="in eager mode, a resource that nobody can work: nobody stops for its pauses",
        plan=(COMMITS,),
        habits=Habits(fails_ms_of={"r3": (80, 120)}),
        settings=EAGER,
    ),
    Scenario(
        name="everything",
        summary="all of it at once",
        plan=(
            Every(5_000, f.Arrive(), jitter_ms=3_000),
            Every(6_000, f.Depart(), jitter_ms=3_000),
            Every(13_000, f.Restart(), jitter_ms=6_000),
            Every(11_000, f.Pause(8_000), jitter_ms=6_000),
            Every(14_000, f.Disturb(BAD, 6_000), jitter_ms=6_000),
            Every(16_000, f.Behave(STUCK, ms=9_000), jitter_ms=6_000),
            Every(23_000, f.Outage(7_000), jitter_ms=9_000),
            Every(29_000, f.CutOff(10_000), jitter_ms=9_000),
            Every(31_000, f.Remember(), jitter_ms=2_000),
            Every(37_000, f.Stale(), start_ms=31_000, jitter_ms=9_000),
            Every(61_000, f.Empty(), start_ms=20_000, jitter_ms=19_000),
            At(40_000, f.Declare(20), jitter_ms=20_000),
            COMMITS,
        ),
        created=False,
    ),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""All scenarios by name."""


def story(name: str, seed: int, *, lua: str | None = None, verbose: bool = True) -> Run:
    """Prepares one of them with one seed."""
    replay = f'make stories ARGS="run {name} --seed {seed}{f" --lua {lua}" if lua else ""}"'
    return Run(SCENARIOS[name], seed, lua=lua, verbose=verbose, replay=replay)
