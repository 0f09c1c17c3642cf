"""Commands that logs, errors and reports advise: they act on the group they are about, whatever its names are."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.consumers import until
from tests.names import unique

from cobalance import Group, GroupSettings, Tenure
from cobalance.admin import GroupAdmin
from cobalance.cli.app import app, run
from cobalance.coordinator.advice import command
from cobalance.dashboard.tuning import commands

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "sims/cobalance_sims").rglob("*.py")]

EVIL = "t1;id>PWNED;."
NAMES = ["orders", EVIL, "$(id)", "a'b", '"', "-t", "--all", "a&b", "`id`"]

WITH_VALUES = re.compile(
    r"cobalance (?:group|topic|sims|doctor|consume|publish|deadletters|metrics|health)\b[^`.,;:]*\0"
)
OF_A_GROUP = re.compile(r"cobalance group [a-z-]+ GROUP")

SLOW = GroupSettings(session_timeout_ms=6_000, heartbeat_interval_ms=100, revocation_timeout_ms=6_000)


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each text with its line; what is put into it is a zero byte."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(it.value) if isinstance(it, ast.Constant) else "\0" for it in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value.replace("%s", "\0")


def test_no_command_is_worded_by_hand() -> None:
    """`command` quotes names for a shell, and does not leave out the key prefix."""
    by_hand = [
        f"{source.relative_to(ROOT)}:{line}"
        for source in SOURCES
        for line, text in texts(ast.parse(source.read_text()))
        if WITH_VALUES.search(text) or OF_A_GROUP.search(text)
    ]
    assert by_hand == []


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_gives_each_name_as_it_is(name: str) -> None:
    """Nothing of it is run, and nothing is taken for an option."""
    words = command("group resume", "g", name, key_prefix=name)
    show = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    pasted = subprocess.run(
        ["sh", "-c", words.replace("cobalance", shlex.join(show), 1)], capture_output=True, text=True, check=True
    )
    program, *given = shlex.split(words)
    assert (program, pasted.stdout) == ("cobalance", f"{given}\n")
    _, bound, _ = app.parse_args(given, print_error=False, exit_on_error=False)
    assert (bound.arguments["name"], bound.arguments["resources"]) == ("g", (name,))
    assert bound.arguments["redis"].key_prefix == name


def test_the_default_prefix_is_left_out() -> None:
    """And there is none for a topic."""
    assert command("group lag", "g", key_prefix="cobalance") == "cobalance group lag g"
    assert command("topic grow", "t", key_prefix=None, partitions="N") == "cobalance topic grow t --partitions N"
    assert command("sims journal", key_prefix="p", group="g") == "cobalance sims journal --group g --key-prefix p"


async def give_up(tenure: Tenure) -> None:
    """So that it is paused."""
    tenure.scope.cancel()


@pytest.mark.anyio
async def test_advice_of_one_environment_does_not_act_on_another(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log, doctor, explain, describe and dashboard, of a group under another key prefix."""
    url, name = f"memory://{unique('prefix')}", unique("billing")
    monkeypatch.setenv("COBALANCE_KEY_PREFIX", "staging")
    with GroupAdmin(url, amqp_url=None, key_prefix="staging") as admin:
        admin.create(name, SLOW)
        settings = GroupSettings(session_timeout_ms=9_000, heartbeat_interval_ms=100)
        async with Group(name, [EVIL], redis_url=url, key_prefix="staging", settings=settings, work=give_up):
            await until(lambda: admin.describe(name).resources[0].tried_in_ms is not None)
            assert run(["group", "describe", name, "--redis-url", url, "--amqp-url", "none"]) == 0
            said = [it.advice or "" for it in admin.examine(name)]
            said += [
                *admin.explain(name, EVIL),
                *admin.explain(name),
                *caplog.messages,
                *capsys.readouterr().err.splitlines(),
                *commands(name, "staging"),
            ]
    advised = [found for it in said for found in re.findall(r"cobalance (?:group|sims) .*", it)]
    others = [it for it in advised if "calibrate" not in it and "--key-prefix staging" not in it]
    assert others == []
    kinds = {" ".join(it.split()[1:3]) for it in advised}
    assert kinds == {"group configure", "group resume", "sims journal", "sims calibrate", "sims tune"}
    assert [it for it in advised if EVIL in it.replace(shlex.quote(EVIL), "")] == []
