"""The dashboard for Grafana asks for what is exported, in queries that Prometheus understands."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.examples.exported import check_exported, exported
from tests.examples.manifests import EXAMPLES, documents

FILE = EXAMPLES / "grafana/groups.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS = [it for it in DASHBOARD["panels"] if it["type"] != "row"]
QUERIES = [it["expr"] for panel in PANELS for it in panel["targets"]]
QUERIES += [it["expr"] for it in DASHBOARD["annotations"]["list"]]


def test_it_asks_for_what_is_exported() -> None:
    """Each metric and label exists; and so do those that legends name, and that sums are by."""
    (group,) = [it for it in DASHBOARD["templating"]["list"] if it["type"] == "query"]
    check_exported([*QUERIES, group["definition"]])
    known = exported()
    for panel in PANELS:
        for it in panel["targets"]:
            labels = set.union(*(known[name] for name in re.findall(r"cobalance_\w+", it["expr"]))) | {"instance"}
            named = re.findall(r"\{\{(\w+)\}\}", it["legendFormat"])
            named += [name for names in re.findall(r" by \(([^)]*)\)", it["expr"]) for name in names.split(", ")]
            assert set(named) <= labels, it


def test_it_leaves_out_no_metric() -> None:
    """But for the lag of each partition, which is asked for separately, and the sums and counts of histograms."""
    asked = {name for it in QUERIES for name in re.findall(r"cobalance_\w+", it)}
    kept = {"cobalance_partition_lag_messages", "cobalance_last_rebalance_timestamp_seconds"}
    left = {it for it in exported() if not it.endswith(("_created", "_count", "_sum"))} - asked - kept
    assert left == set()


def test_panels_lie_side_by_side() -> None:
    """Each has a number of its own, and none covers another."""
    panels = DASHBOARD["panels"]
    assert len({it["id"] for it in panels}) == len(panels)
    for a, b in combinations([it["gridPos"] for it in panels], 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (a, b)
    assert all(it["gridPos"]["x"] + it["gridPos"]["w"] <= 24 for it in panels)


def test_compose_brings_it() -> None:
    """Grafana knows the folder that the file is mounted to, and of the data source that it asks for."""
    (compose,) = documents("compose.yaml")
    (mounted,) = [it for it in compose["services"]["grafana"]["volumes"] if it.startswith("./")]
    source, target, _ = mounted.split(":")
    assert (EXAMPLES / "compose.yaml").parent.joinpath(source).resolve() == FILE.parent
    provider = yaml.safe_load(compose["configs"]["grafana_dashboards"]["content"])["providers"][0]
    assert provider["options"]["path"] == target
    assert {it["source"] for it in compose["services"]["grafana"]["configs"]} == set(compose["configs"])
    sources = yaml.safe_load(compose["configs"]["grafana_datasource"]["content"])["datasources"]
    (wanted,) = [it for it in DASHBOARD["templating"]["list"] if it["type"] == "datasource"]
    assert [it["type"] for it in sources] == [wanted["query"]]


@pytest.mark.thorough  # promtool is large to install
def test_prometheus_understands_each_query(promtool: str, tmp_path: Path) -> None:
    """As the expression of a rule, with Grafana's variables filled in."""
    filled = [it.replace("$__rate_interval", "5m").replace("$group", ".+") for it in QUERIES]
    rules = [{"record": f"query_{n}", "expr": it} for n, it in enumerate(filled)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    ended = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
