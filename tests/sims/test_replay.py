"""A replay against real members on a real Redis: what is ordered happens, is compared, and leaves the group as it was."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from tests.cli_process import Running, cobalance, running
from tests.names import unique
from tests.programs import SETTINGS, create_group, wait_for_members
from tests.readme_sections import ROOT, code_blocks

from cobalance.cli.exits import FAILED, INTERRUPTED, OK, UNFINISHED, UNREACHABLE, USAGE
from cobalance.cli.sims.replay import CODES
from cobalance_sims.replay import prediction
from cobalance_sims.simulate.churn import Churn

MEMBER = """
import sys
import anyio
from cobalance import Group, run

async def work(tenure):
    while tenure.active:
        await anyio.sleep(0.05)

run(Group(sys.argv[1], ["a", "b", "c", "d"], work=work, redis_url=sys.argv[2]))
"""

ROUGH = Churn(
    name="rough",
    crashes_per_member_hour=900,
    restart_ms="constant:1000",
    pauses_per_member_hour=900,
    pause_ms="constant:2500",
)
README = ROOT / "sims/cobalance_sims/README.md"
SHORT, LONG = "0.1", "0.5"


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is predicted is tested in virtual time (test_replay_plan.py)."""
    monkeypatch.setattr(prediction, "LEAST_RUNS", 8)
    monkeypatch.setattr(prediction, "MOST_RUNS", 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A member's program, and a churn."""
    made = tmp_path_factory.mktemp("replay")
    (made / "member.py").write_text(MEMBER)
    (made / "rough.json").write_text(json.dumps(ROUGH.table()))
    return made


@pytest.fixture(scope="module")
def group(redis_url: str) -> str:
    """A group with short timeouts."""
    name = unique("staging")
    create_group(redis_url, name, attrs.evolve(SETTINGS, session_timeout_ms=1_500, revocation_timeout_ms=6_000))
    return name


@pytest.fixture(scope="module")
def urls(redis_url: str) -> dict[str, str]:
    return {"COBALANCE_REDIS_URL": redis_url}


@pytest.fixture(scope="module")
def agent(folder: Path, group: str, urls: dict[str, str], redis_url: str) -> Iterator[Running]:
    """An agent with two members."""
    (words,) = said("agent")
    at = words.index("--")
    options = changed(words[:at], group=group, processes="2")
    program = (sys.executable, "member.py", group, redis_url)
    with running(*options, "--", *program, folder=folder, environment=urls) as it:
        wait_for_members(redis_url, group, 2)
        yield it
        ended = it.end(signal.SIGTERM)
        assert ended.code == OK, ended.err


def said(command: str) -> list[list[str]]:
    """The commands of this name in the README, without the program's own name."""
    lines = [line for block in code_blocks("sh", README) for line in block.splitlines()]
    return [shlex.split(it, comments=True)[1:] for it in lines if it.startswith(f"cobalance sims {command} ")]


def changed(words: list[str], **options: str) -> list[str]:
    """The same command with other values."""
    for name, value in options.items():
        words[words.index(f"--{name}") + 1] = value
    return words


def replay(folder: Path, group: str, *more: str, minutes: str = SHORT) -> list[str]:
    """Three starts, three kills and one freeze in six seconds; with --yes it is carried out."""
    shown, carried_out = said("replay")
    assert carried_out == [*shown, "--yes"]
    return [*changed(shown, churn=str(folder / "rough.json"), group=group, minutes=minutes, seed="6"), *more]


def frozen(words: list[str]) -> set[int]:
    """The processes of an agent that are stopped, of those that it has told of."""
    pids = {
        int(line.partition("(process ")[2].rstrip(")\n"))
        for line in words
        if "(process " in line and line.endswith(")\n")
    }
    return {pid for pid in pids if Path(f"/proc/{pid}").exists() and " T " in Path(f"/proc/{pid}/stat").read_text()}


@pytest.mark.thorough
def test_a_plan_is_shown_and_nothing_is_done(agent: Running, folder: Path, group: str, urls: dict[str, str]) -> None:
    """With what is predicted of it."""
    before = len(agent.err)
    shown = cobalance(*replay(folder, group), environment=urls)
    assert shown.code == OK
    assert "Give --yes" in shown.err
    assert "PLAN: rough for 0.1 minutes, seed 6, with 2 members and 4 resources: freeze 1, kill 3, start 3" in shown.out
    assert "moves, moves/day" in shown.out
    assert agent.err[before:] == []


def test_a_replay_does_what_its_plan_says(agent: Running, folder: Path, group: str, urls: dict[str, str]) -> None:
    """Its exit code says how it compares, and afterwards there are as many members as before."""
    ended = cobalance(*replay(folder, group, "--yes", "--json", "--abort-expiries", "99"), environment=urls)
    told = json.loads(ended.out)
    assert ended.code == CODES[told["outcome"]], ended.err
    assert (told["aborted"], told["unhealed"], told["declined"]) == (None, None, [])
    done = sorted((it["verb"], it["member"]) for it in told["deeds"] if it["verb"] != "resume")
    assert done == sorted((it["verb"], it["member"]) for it in told["plan"])
    begun, ended_at = ([it["at_ms"] for it in told["deeds"] if it["verb"] == verb] for verb in ("freeze", "resume"))
    assert ended_at[0] - begun[0] >= 2_450
    assert {it["name"] for it in told["figures"] if it["observed"] is not None} >= {"moves", "unworked", "draining"}
    assert frozen(agent.err) == set()


def test_a_condition_ends_it_early(agent: Running, folder: Path, group: str, urls: dict[str, str]) -> None:
    """The first kill expires a session, which is more than none; then all is as it was."""
    ended = cobalance(*replay(folder, group, "--yes", "--abort-expiries", "0", minutes=LONG), environment=urls)
    assert ended.code == UNFINISHED, ended.err
    assert "THE REPLAY WAS ENDED EARLY" in ended.out
    assert "1 sessions have expired, more than 0" in ended.out
    assert "The group is as it was before." in ended.out
    assert frozen(agent.err) == set()


@pytest.mark.thorough
def test_ctrl_c_leaves_nothing_frozen(agent: Running, folder: Path, group: str, urls: dict[str, str]) -> None:
    """It ends the replay; what is frozen goes on, and the members are those that were wanted before."""
    with running(*replay(folder, group, "--yes", minutes=LONG), folder=folder, environment=urls) as it:
        it.wait_for("freeze")
        ended = it.end(signal.SIGINT)
    assert ended.code == INTERRUPTED
    assert "the group is as it was before" in ended.err
    assert frozen(agent.err) == set()


def test_a_group_without_an_agent_is_refused(folder: Path, urls: dict[str, str]) -> None:
    """So a production group is not hit by accident: its members were not started for this."""
    name = unique("production")
    assert cobalance("group", "create", name, environment=urls).code == OK
    refused = cobalance(*replay(folder, name, "--yes"), environment=urls)
    assert (refused.code, refused.out) == (FAILED, "")
    assert f"No agent is in group {name}" in refused.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("replay", "--churn", "nowhere", "--group", "g"), "There is no churn 'nowhere'"),
        (("replay", "--churn", "lively", "--group", "g", "--minutes", "0"), "--minutes"),
        (("replay", "--churn", "lively", "--group", "g", "--speed", "0"), "--speed"),
        (("replay", "--churn", "lively", "--group", "g", "--redis-url", "memory://m"), "memory://"),
        (("replay", "--churn", "lively", "--group", "a b"), "a b"),
        (("agent", "--group", "g"), "after --"),
        (("agent", "--group", "g", "--", "no-such-program"), "There is no program no-such-program"),
        (("agent", "--group", "g", "--processes", "3", "--at-most", "2", "--", "true"), "--at-most is 2"),
    ],
)
def test_bad_input_is_refused(words: tuple[str, ...], says: str) -> None:
    """In one line, before anything begins."""
    ended = cobalance("sims", *words)
    assert ended.code == USAGE
    assert says in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("agent", "--group", "g", "--", "true"), ("replay", "--churn", "lively", "--group", "g")]
)
def test_a_redis_that_does_not_answer_is_said(words: tuple[str, ...]) -> None:
    """Before a process is started."""
    ended = cobalance("sims", *words, environment={"COBALANCE_REDIS_URL": "redis://127.0.0.1:1"})
    assert (ended.code, ended.err.count("\n")) == (UNREACHABLE, 1)


@pytest.mark.thorough
def test_a_lag_that_cannot_be_read_is_no_limit(agent: Running, folder: Path, group: str, urls: dict[str, str]) -> None:
    """It is said before anything is done."""
    before = len(agent.err)
    environment = {**urls, "COBALANCE_AMQP_URL": "amqp://127.0.0.1:1"}
    ended = cobalance(*replay(folder, group, "--yes", "--abort-lag", "10"), environment=environment)
    assert (ended.code, ended.out) == (UNREACHABLE, "")
    assert agent.err[before:] == []
