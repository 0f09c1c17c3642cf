"""How fast the simulator is: member-hours a CPU-second of a large group under steady churn."""

from __future__ import annotations

import time

from cobalance.settings import GroupSettings
from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.scenario import Every, Scenario
from proof.stories import faults as f

SETTLING_MS = 120_000
"""Time for all members of a large group to join before speed is measured."""


def measure(run: Run) -> str:
    """Measures the speed under the plan, once all members have joined."""
    world = run.world
    run.begin()
    world.clock.run(SETTLING_MS)
    begun, steps, at = time.process_time(), world.clock.steps, world.now
    world.clock.run(run.scenario.length_ms)
    cpu_s = time.process_time() - begun
    hours = len(world.living) * (world.now - at) / 3_600_000
    return (
        f"{len(world.living)} members, {len(world.resources)} resources, {(world.now - at) / 1000:.0f} virtual s in {cpu_s:.2f} s "
        f"of CPU on {world.redis.store.engine}: {hours / cpu_s:.1f} member-hours a CPU-second, "
        f"{(world.clock.steps - steps) / cpu_s:,.0f} steps a second"
    )


def steady_churn(members: int, resources: int, length_ms: int) -> Scenario:
    """The benchmark: heartbeats every 3 s; each process is replaced about once an hour, half of them by a crash."""
    gap_ms = 2 * 3_600_000 // members
    return Scenario(
        name="steady_churn",
        summary="a large group whose processes live for about an hour",
        plan=(
            Every(gap_ms, f.Restart(1_000), jitter_ms=gap_ms // 8),
            Every(gap_ms, f.Depart(), start_ms=gap_ms // 2),
            Every(gap_ms, f.Arrive(), start_ms=gap_ms // 2 + 500),
        ),
        members=members,
        resources=resources,
        length_ms=length_ms,
        settings=GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=3_000),
    )
