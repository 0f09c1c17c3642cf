"""The command that a recommendation ends in, as the real command line and a real Redis take it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import attrs
import pytest
from tests.cli_process import cobalance
from tests.names import unique
from tests.redis_user import PASSWORD

from cobalance import GroupAdmin
from cobalance.cli.app import run as main
from cobalance.operate import Tuned
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.written import CHECK, CHURN, KNOWN
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
@pytest.mark.thorough
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
    where = [] if by_variable else ["--redis-url", redis_url, "--store"]
    main(["sims", "tune", *words, "--group", name, *where])
    written = json.loads(out.read_text())
    assert written["today"]["settings"]["revocation_timeout_ms"] == 77_000
    with GroupAdmin(redis_url) as admin:
        found = admin.tuned(name)
        assert attrs.asdict(admin.settings(name)) == written["today"]["settings"]
    if by_variable:
        assert found is None
        return
    assert isinstance(found, Tuned)
    assert (found.decision, found.today.revocation_timeout_ms, found.from_ms) == (written["decision"], 77_000, None)
    assert [*found.sentences] == [*written["trade"], *written["reasons"], *written["collect"]]
    assert found.gain == tuple(written["gain"].values())
    assert {*found.recommended} <= {"gather_ms"}
    assert PASSWORD in redis_url
    assert PASSWORD not in repr(found)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--store needs --group NAME"),
        (["--group", "g", "--today", "gather=1s"], "leave out --today"),
        (["--group", "g"], "--store needs --redis-url, or COBALANCE"),
    ],
)
def test_what_is_to_be_stored_needs_a_group(words: list[str], said: str) -> None:
    """Nothing is run."""
    told = cobalance("sims", "tune", "--churn", "steady", "--in-process", "--store", *words)
    assert (told.code, told.out) == (2, "")
    assert said in told.err


def test_a_churn_that_is_refused_is_stored_as_such(redis_url: str, tmp_path: Path) -> None:
    """With why, and the part of the group's journal that it was calibrated from; an earlier decision is gone."""
    name, environment = unique("tuned"), {"COBALANCE_REDIS_URL": redis_url}
    assert cobalance("group", "create", name, environment=environment).code == 0
    (tmp_path / CHURN).write_text(json.dumps(Churn(members=2, resources=4, length_ms=20_000).table()))
    known = {"runs": [name], "group": {"spans": [{"run": name, "from_ms": 1_000, "to_ms": 9_000, "members": 2}]}}
    (tmp_path / KNOWN).write_text(json.dumps(known))
    (tmp_path / CHECK).write_text(json.dumps({"mismatches": ["moves: 3 a day, not 30."]}))
    words = ["--churn", str(tmp_path), "--group", name, "--in-process", "--out", str(tmp_path / "tune.json"), "--store"]
    assert cobalance("sims", "tune", *words, environment=environment).code == 5
    with GroupAdmin(redis_url) as admin:
        found = admin.tuned(name)
    assert isinstance(found, Tuned)
    assert (found.decision, found.recommended, found.gain) == ("refused", {}, None)
    assert (found.from_ms, found.to_ms, [*found.sentences]) == (1_000, 9_000, ["moves: 3 a day, not 30."])
