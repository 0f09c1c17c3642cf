"""Watching groups at work: one snapshot, verdicts, health, metrics, traces."""

from typing import TYPE_CHECKING

from cobalance import lazy

if TYPE_CHECKING:
    from cobalance.group.health import Health
    from cobalance.operate.desired import Desired, Scaling, ScalingSettings
    from cobalance.operate.doctor import Finding
    from cobalance.operate.group_metrics import GroupMetrics
    from cobalance.operate.group_snapshot import snapshot
    from cobalance.operate.probes import ProbeServer, probe_app
    from cobalance.operate.process_metrics import ProcessMetrics
    from cobalance.operate.telemetry import Telemetry
    from cobalance.operate.tuned import Tuned, UnreadableTuned
    from cobalance.operate.watch import Watch
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "cobalance.group.health": ["Health"],
            "cobalance.operate.desired": ["Desired", "Scaling", "ScalingSettings"],
            "cobalance.operate.doctor": ["Finding"],
            "cobalance.operate.group_metrics": ["GroupMetrics"],
            "cobalance.operate.group_snapshot": ["snapshot"],
            "cobalance.operate.probes": ["ProbeServer", "probe_app"],
            "cobalance.operate.process_metrics": ["ProcessMetrics"],
            "cobalance.operate.telemetry": ["Telemetry"],
            "cobalance.operate.tuned": ["Tuned", "UnreadableTuned"],
            "cobalance.operate.watch": ["Watch"],
        },
    )

__all__ = [
    "Desired",
    "Finding",
    "GroupMetrics",
    "Health",
    "ProbeServer",
    "ProcessMetrics",
    "Scaling",
    "ScalingSettings",
    "Telemetry",
    "Tuned",
    "UnreadableTuned",
    "Watch",
    "probe_app",
    "snapshot",
]
