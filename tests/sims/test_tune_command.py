"""The command that a recommendation ends in, as the real command line and a real Redis take it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import attrs
import pytest
from tests.cli_process import cobalance
from tests.names import unique

from cobalance.cli.app import run as main
from cobalance.settings import GroupSettings
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.tune.written import command


def test_the_recommended_command_is_what_the_command_line_takes(redis_url: str) -> None:
    """Every searched setting is changed at once: afterwards the group has them all."""
    name, environment = unique("tuned"), {"COBALANCE_REDIS_URL": redis_url}
    today = GroupSettings()
    chosen = GroupSettings(
        session_timeout_ms=7_100,
        heartbeat_interval_ms=1_500,
        revocation_timeout_ms=45_000,
        rejoin_grace_ms=0,
        gather_ms=1_400,
    )
    assert cobalance("group", "create", name, environment=environment).code == 0
    words = shlex.split(command(name, today, chosen))
    assert words[0] == "cobalance"
    told = cobalance(*words[1:], "--json", environment=environment)
    assert (told.code, told.err) == (0, "")
    assert json.loads(told.out) == attrs.asdict(chosen)


@pytest.mark.parametrize("by_variable", [False, True])
def test_todays_settings_are_read_from_the_group_itself(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    """With --redis-url, or the variable that all commands heed, the comparison is with what the group runs."""
    name, environment = unique("tuned"), {"COBALANCE_REDIS_URL": redis_url}
    assert cobalance("group", "create", name, "--revocation-timeout", "77s", environment=environment).code == 0
    churn = Churn(members=2, resources=4, length_ms=20_000, deploy="rolling", deploy_every_ms=10_000)
    (tmp_path / "churn.json").write_text(json.dumps(churn.table()))
    out = tmp_path / "tune.json"
    words = [
        "--churn",
        str(tmp_path / "churn.json"),
        "--out",
        str(out),
        "--in-process",
        "--seeds",
        "4",
        "--search",
        "gather",
    ]
    if by_variable:
        monkeypatch.setenv("COBALANCE_REDIS_URL", redis_url)
    main(["sims", "tune", *words, "--group", name, *([] if by_variable else ["--redis-url", redis_url])])
    assert json.loads(out.read_text())["today"]["settings"]["revocation_timeout_ms"] == 77_000
