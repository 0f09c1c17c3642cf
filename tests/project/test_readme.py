"""The README is true: its programs run, its tables match the code, its commands and files exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import redis
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser
from tests.programs import EXAMPLES, create_group, no_topic, programs
from tests.readme_sections import MARKED, README, SECTIONS, renewed

from cobalance import Group, GroupSettings, Tenure
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import PermissionMissing
from cobalance.journal import Journal
from cobalance.settings import STORED_NAMES

TEXT = README.read_text()

LINES = {"billing": 20, "copies": 3}
"""Group → how many lines its program in the README prints before it has nothing more to do."""


def code_blocks(language: str) -> list[str]:
    """The contents of the README's code blocks in that language."""
    found: list[str] = []
    parser = CodeBlockParser(language=language, evaluator=lambda example: found.append(str(example.parsed)))
    for example in Sybil([parser]).parse(README).examples():
        example.evaluate()
    return found


def group_of(program: str) -> str:
    """The group that a program is a member of."""
    found = re.search(r'Group\("(\w+)"', program)
    assert found is not None
    return found[1]


def test_each_program_is_run(redis_url: str, amqp_url: str, tmp_path: Path) -> None:
    """As it stands, in a process of its own, until it is asked to stop."""
    ran = []

    def run(example: Example) -> None:
        name = group_of(example.parsed)
        program = tmp_path / f"{name}.py"
        program.write_text(example.parsed)
        create_group(redis_url, name)
        with no_topic(amqp_url, "orders"), programs(redis_url, amqp_url) as running:
            process = running.start(program)
            running.read_until(lambda: len(running.lines) == LINES[name])
            running.stop(process)
            assert running.rest() == []
        ran.append(name)

    for example in Sybil([CodeBlockParser(language="python", evaluator=run)]).parse(README).examples():
        example.evaluate()
    assert ran == list(LINES)


def test_the_quickstart_is_short() -> None:
    """At most twenty lines, and the same as the example of that name."""
    quickstart = code_blocks("python")[0]
    assert len([line for line in quickstart.splitlines() if line]) <= 20
    assert len(quickstart.rstrip().splitlines()) <= 20
    example = (EXAMPLES / "quickstart.py").read_text()
    assert quickstart.strip() == example.partition("\n\n")[2].strip()


def test_the_drop_in_is_that_of_the_example() -> None:
    """Each line of the README's diff is one of pika_before.py or pika_after.py, and it changes three at most."""
    (diff,) = code_blocks("diff")
    before, after = ((EXAMPLES / name).read_text().splitlines() for name in ("pika_before.py", "pika_after.py"))
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    gone = [line[1:] for line in diff.splitlines() if line.startswith("-")]
    assert len(added) <= 3
    assert set(added) == {line for line in after if line} - set(before)
    assert set(gone) == {line for line in before if line} - set(after)


def test_generated_parts_are_current() -> None:
    """If this fails, run `python -m tests.readme_sections` and look at the difference."""
    assert {found["name"] for found in MARKED.finditer(TEXT)} == set(SECTIONS)
    assert renewed(TEXT) == TEXT


def test_links_lead_somewhere() -> None:
    """To files of this repository; and every example is among them."""
    targets = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert targets
    for target in targets:
        assert (README.parent / target).exists(), target
    for example in EXAMPLES.glob("*.py"):
        assert f"examples/{example.name}" in targets


def commands() -> list[str]:
    """The `cobalance` commands in the README, each once."""
    lines = [line for block in code_blocks("sh") for line in block.splitlines() if line.startswith("cobalance ")]
    return list(dict.fromkeys([*lines, *re.findall(r"`(cobalance [^`]+)`", TEXT)]))


@pytest.mark.parametrize("command", commands())
def test_commands_exist(command: str) -> None:
    """With the named options: asking for help with them succeeds, and lists them."""
    words = shlex.split(command, comments=True)[1:]
    options = [word for word in words if word.startswith("--")]
    verb = [word for word in words[:2] if word in _VERBS]
    ended = subprocess.run(
        [sys.executable, "-m", "cobalance.cli", *verb, "--help"], capture_output=True, text=True, check=True
    )
    for option in options:
        assert option in ended.stdout


_VERBS = {"topic", "publish", "consume", "group", "create", "list", "describe", "history", "configure", "delete"} | {
    *("sims", "journal", "calibrate", "tune", "report"),
}


def acl_rules(user: str, password: str) -> list[str]:
    """The README's ACL line, for a user of our own."""
    (line,) = (block for block in code_blocks("text") if block.startswith("ACL SETUSER"))
    return line.strip().replace("cobalance on", f"{user} on").replace("PASSWORD", password).split()


def test_the_acl_line_suffices(redis_admin_url: str) -> None:
    """A group lives under exactly that user: joins, hints, commits, moves, the journal and the queries of the command
    line.

    Without one of its rules, the message refers to the README.
    """
    user, name = f"u{uuid.uuid4().hex[:8]}", f"acl-{uuid.uuid4().hex[:8]}"
    with redis.Redis.from_url(redis_admin_url) as admin:
        admin.execute_command(*acl_rules(user, "p4ss"))
        admin.acl_log_reset()
        url = redis_admin_url.replace("redis://", f"redis://{user}:p4ss@")
        create_group(url, name, GroupSettings(session_timeout_ms=1_500, heartbeat_interval_ms=100, gather_ms=0))
        anyio.run(_live, url, name)
        _ask(url, name)
        denied = [entry for entry in admin.acl_log() if entry["username"] == user]
        assert denied == []
        admin.execute_command("ACL", "SETUSER", user, "-xadd")
        with pytest.raises(PermissionMissing, match="Redis ACL"):
            create_group(url, f"{name}-2")
        admin.acl_deluser(user)


async def _live(url: str, name: str) -> None:
    """Two members, resources that come and go, commits, roles: everything that makes scripts run."""
    names = [f"r{number}" for number in range(6)]

    async def work(tenure: Tenure) -> None:
        await tenure.commit((tenure.committed or 0) + 1)

    async with Group(name, names, redis_url=url, work=work, resources_version=1) as first:
        await first.wait_held(*names)
        async with Group(name, names, redis_url=url, work=work, resources_version=1) as second:
            while len(second.tenures) < 3:
                await second.wait_held()
                await anyio.lowlevel.checkpoint()
            first.declare(names[:4], 2)
            while len(first.tenures) + len(second.tenures) > 4:
                await anyio.lowlevel.checkpoint()
        await first.wait_held(*names[:4])


def _ask(url: str, name: str) -> None:
    """The queries of the command line."""
    transport = open_transport(url)
    coordinator = Coordinator(transport, name)
    coordinator.configure(gather_ms=10)
    assert coordinator.state()
    assert len(list(coordinator.resources())) == 4
    assert list(coordinator.members()) is not None
    assert list(Journal(transport, name).entries())
    assert name in transport.list_groups()
    transport.close()


def test_every_group_setting_is_stored() -> None:
    """The settings table promises that members share them."""
    documented = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert set(STORED_NAMES) <= documented
