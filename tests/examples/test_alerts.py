"""Each alert in examples/prometheus fires when it should, and not before: Prometheus's own promtool evaluates them."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from tests.examples.exported import check_exported
from tests.examples.manifests import EXAMPLES, documents, parsed

ALERTS = EXAMPLES / "prometheus/alerts.yaml"
RULES = {rule["alert"]: rule for group in documents("prometheus/alerts.yaml")[0]["groups"] for rule in group["rules"]}


@attrs.frozen
class Case:
    """Series, a sample a minute, under which an alert does not fire at first, and then does."""

    series: Mapping[str, str]
    quiet: str
    fires: str
    labels: Mapping[str, str] = {"group": "g"}


CASES = {
    "CobalanceExporterAway": Case({"cobalance_up": "1x4 stale"}, "7m", "9m", {}),
    "CobalanceRedisAway": Case({"cobalance_up": "1x4 0x9"}, "5m", "6m", {}),
    "CobalanceGroupUnreadable": Case({'cobalance_group_readable{group="g"}': "1x4 0x9"}, "6m", "7m"),
    "CobalanceGroupStopped": Case(
        {'cobalance_group_verdict_partitions{group="g",verdict="STOP"}': "0x4 3x9"},
        "6m",
        "7m",
        {"group": "g", "verdict": "STOP"},
    ),
    "CobalanceGroupStalled": Case(
        {'cobalance_group_verdict_partitions{group="g",verdict="STALL"}': "0x4 3x9"},
        "6m",
        "7m",
        {"group": "g", "verdict": "STALL"},
    ),
    "CobalanceGroupFallsBehind": Case(
        {'cobalance_group_verdict_partitions{group="g",verdict="WARN"}': "0x4 1x20"},
        "19m",
        "20m",
        {"group": "g", "verdict": "WARN"},
    ),
    "CobalancePartitionHalted": Case(
        {'cobalance_group_partitions{group="g",status="halted"}': "_x5 1x9"},
        "9m",
        "10m",
        {"group": "g", "status": "halted"},
    ),
    "CobalanceLagUnknown": Case(
        {
            'cobalance_group_unknown_lag_partitions{group="g",topic="t"}': "0x4 2x20",
            'cobalance_group_lag_messages{group="g",topic="t"}': "7x4 stale",
            'cobalance_group_unknown_lag_partitions{group="g",topic="folder"}': "3x25",
        },
        "14m",
        "15m",
        {"group": "g", "topic": "t"},
    ),
    "CobalanceMessageOld": Case(
        {'cobalance_group_oldest_message_age_seconds{group="g",topic="t"}': "0+60x20"},
        "6m",
        "7m",
        {"group": "g", "topic": "t"},
    ),
    "CobalanceMembersGone": Case(
        {
            'cobalance_group_state{group="g",state="Empty"}': "0x4 1x70",
            'cobalance_group_state{group="never",state="Empty"}': "1x80",
        },
        "9m",
        "10m",
        {"group": "g", "state": "Empty"},
    ),
    "CobalanceGroupUnsettled": Case(
        {
            'cobalance_group_state{group="g",state="Assigning"}': "0x4 1 0 1 0 1 0 1 0 1 0 1 0 1",
            'cobalance_group_state{group="g",state="Reconciling"}': "0x4 0 1 0 1 0 1 0 1 0 1 0 1 0",
        },
        "14m",
        "15m",
    ),
    "CobalanceForcedMoves": Case(
        {
            'cobalance_handovers_total{group="g",outcome="forced"}': "0x4 1x9",
            'cobalance_handovers_total{group="g",outcome="planned"}': "0+5x20",
        },
        "4m",
        "6m",
        {"group": "g", "outcome": "forced"},
    ),
    "CobalanceOverlap": Case(
        {'cobalance_fenced_total{group="g",verb="commit"}': "0x4 1x9"}, "4m", "6m", {"group": "g", "verb": "commit"}
    ),
    "CobalanceCrashes": Case(
        {'cobalance_rebalances_total{group="g",reason="crash"}': "0x3 1x3 4x9"},
        "6m",
        "9m",
        {"group": "g", "reason": "crash"},
    ),
    "CobalanceDataLoss": Case(
        {'cobalance_rebalances_total{group="g",reason="data_loss"}': "0x4 1x9"},
        "4m",
        "6m",
        {"group": "g", "reason": "data_loss"},
    ),
    "CobalanceHandoversSlow": Case(
        {
            'cobalance_handover_duration_seconds_bucket{group="g",le="10.0"}': "0+9x5 45x9",
            'cobalance_handover_duration_seconds_bucket{group="g",le="30.0"}': "0+9x5 45+9x9",
            'cobalance_handover_duration_seconds_bucket{group="g",le="+Inf"}': "0+9x5 45+9x9",
        },
        "5m",
        "8m",
    ),
    "CobalanceMemberSilent": Case(
        {'cobalance_last_heartbeat_timestamp_seconds{group="g",instance="i"}': "0 60 120 120 120"},
        "2m",
        "3m",
        {"group": "g", "instance": "i"},
    ),
    "CobalanceDeadLetters": Case(
        {
            'cobalance_received_processed_messages_total{group="g",topic="t",status="rejected",instance="i"}': "0x4 1x9",
            'cobalance_received_processed_messages_total{group="g",topic="t",status="error",instance="i"}': "0+4x20",
        },
        "4m",
        "6m",
        {"group": "g", "topic": "t"},
    ),
    "CobalanceHandlersFail": Case(
        {
            'cobalance_received_processed_messages_total{group="g",topic="t",status="error",instance="i"}': "0x4 5+5x20",
            'cobalance_received_processed_messages_total{group="g",topic="t",status="acked",instance="i"}': "0+20x25",
        },
        "8m",
        "15m",
        {"group": "g", "topic": "t"},
    ),
}


def run(*command: str | Path) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def filled(template: str, labels: Mapping[str, str]) -> str:
    """A template as Prometheus fills it. Refuses a label that the alert does not have."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda it: labels[it[1]], template)


def rule_test(alert: str) -> dict[str, Any]:
    """As `promtool test rules` reads it."""
    rule, case = RULES[alert], CASES[alert]
    annotations = {name: filled(it, case.labels) for name, it in rule["annotations"].items()}
    fired = {"exp_labels": {**case.labels, **rule["labels"]}, "exp_annotations": annotations}
    return {
        "name": alert,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": case.quiet, "alertname": alert, "exp_alerts": []},
            {"eval_time": case.fires, "alertname": alert, "exp_alerts": [fired]},
        ],
    }


@pytest.mark.thorough  # promtool is large to install
@pytest.mark.parametrize("alert", RULES)
def test_each_alert_fires_when_it_should(promtool: str, alert: str, tmp_path: Path) -> None:
    """With these labels and words; not before, and not for what is beside it."""
    tests = tmp_path / "test.yaml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": [rule_test(alert)]}))
    run(promtool, "test", "rules", tests)


GAUGES = [
    it for it, rule in RULES.items() if "for" in rule and not it.startswith(("CobalanceExporter", "CobalanceHand"))
]
"""Alerts about how things are at this moment, for a while."""
SCRAPES = 4
"""A minute."""


def minutes_of(values: str) -> list[str]:
    """Each value of a series in promtool's notation, in which ``1+2x3`` is 1 3 5 7."""
    found: list[str] = []
    for word in values.split():
        parts = re.fullmatch(r"(_|stale|\d+)(?:\+(\d+))?(?:x(\d+))?", word)
        assert parts is not None, word
        first, step, times = parts[1], int(parts[2] or 0), int(parts[3] or 0)
        if first.isdecimal():
            found += [str(int(first) + n * step) for n in range(times + 1)]
        else:
            found += [first] * max(1, times)
    return found


def scrapes_of(minutes: list[str], *, unanswered: int) -> str:
    """A minute's value is that of each scrape in it, but for one."""
    found = [it for it in minutes for _ in range(SCRAPES)]
    found[unanswered] = "stale"
    return " ".join(found)


@pytest.mark.thorough
@pytest.mark.parametrize("alert", GAUGES)
def test_one_unanswered_look_delays_no_alert(promtool: str, alert: str, tmp_path: Path) -> None:
    """Of which the series are missing at one scrape, since a server or a member was late; and what has recovered is over, a
    minute later at the latest.
    """
    test, fires = rule_test(alert), int(CASES[alert].fires.removesuffix("m"))
    quiet, fired = test["alert_rule_test"]
    over = fired | {"eval_time": f"{fires + 2}m30s", "exp_alerts": []}
    lasts = fired | {"eval_time": f"{fires}m45s"}
    test |= {"interval": "15s", "alert_rule_test": [quiet, fired, lasts, over]}
    for series in test["input_series"]:
        minutes = minutes_of(series["values"])
        minutes += ["_"] * (fires + 1 - len(minutes))
        calm = "stale" if minutes[0] == "_" else minutes[0]
        minutes[fires + 1 :] = [calm] * 5
        series["values"] = scrapes_of(minutes, unanswered=SCRAPES * fires - 2)
    tests = tmp_path / "test.yaml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "15s", "tests": [test]}))
    run(promtool, "test", "rules", tests)


@pytest.mark.thorough
def test_prometheus_accepts_its_files(promtool: str) -> None:
    """The configuration, with the alerts that it names."""
    run(promtool, "check", "config", EXAMPLES / "prometheus/prometheus.yaml")
    (config,) = documents("prometheus/prometheus.yaml")
    assert config["rule_files"] == [ALERTS.name]


def test_alerts_are_about_what_is_exported() -> None:
    """Each metric in a rule or a test of it, with labels that it has and values that these take."""
    texts = [rule["expr"] for rule in RULES.values()] + [name for case in CASES.values() for name in case.series]
    check_exported(texts)


def test_commands_in_alerts_exist() -> None:
    """As they are shown, read by the real parser."""
    words = " ".join(it for rule in RULES.values() for it in rule["annotations"].values())
    commands = [shlex.split(filled(it, {"group": "g", "topic": "t"})) for it in re.findall(r"`([^`]+)`", words)]
    assert len(commands) > 5
    for program, *arguments in commands:
        assert program == "cobalance"
        if arguments != ["consume", "--metrics"]:
            parsed(arguments)
