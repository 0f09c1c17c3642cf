"""Every metric that is exported, with its labels and the values that these take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

from prometheus_client import CollectorRegistry

from cobalance import Delivery, Topic
from cobalance.description import GroupState, Verdict
from cobalance.operate import GroupMetrics, ProcessMetrics
from cobalance.operate.process_metrics import Settled
from cobalance.operate.tally import FENCED_VERBS, OUTCOMES, REASONS

VALUES = {
    "verdict": set(get_args(Verdict)),
    "state": set(get_args(GroupState)),
    "status": {"halted", *get_args(Settled)},
    "outcome": set(OUTCOMES),
    "reason": set(REASONS),
    "verb": set(FENCED_VERBS),
}


def check_exported(texts: Iterable[str]) -> None:
    """Each metric in these expressions exists, with labels that it has and values that these take."""
    known = exported()
    for text in texts:
        found = re.findall(r"(cobalance_\w+)(?:\{([^}]*)\})?", text)
        assert found, text
        for name, inside in found:
            assert name in known, name
            for label, given in re.findall(r'(\w+)=~?"([^"]*)"', inside):
                assert label in known[name] | {"instance"}, (name, label)
                assert label not in VALUES or set(given.split("|")) <= VALUES[label], (label, given)


def exported() -> dict[str, set[str]]:
    """Every metric → its labels, as the exporter and a member's process have them."""
    registry, found = CollectorRegistry(), dict[str, set[str]]()
    process = ProcessMetrics(registry)
    process.settled("g", Delivery.fake(topic=Topic("t", 1)), "acked")
    for metric in registry.collect():
        for it in metric.samples:
            found[it.name] = set(it.labels)
    for name in ("cobalance_assigned_partitions", "cobalance_last_heartbeat_timestamp_seconds"):
        found[name] = {"group"}  # has a value once a group has joined
    nobody: Any = None
    for metric in GroupMetrics(list, nobody, nobody).collect():
        names = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(metric.type, [""])
        labels = set(getattr(metric, "_labelnames", ()))
        found |= {metric.name + it: labels | ({"le"} if it == "_bucket" else set()) for it in names}
    return found
