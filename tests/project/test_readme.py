"""The READMEs are true: their programs run, their tables match the code, their commands and files exist."""

from __future__ import annotations

import functools
import json
import re
import runpy
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import anyio
import anyio.lowlevel
import pytest
import redis
from tests import cli_process
from tests.programs import EXAMPLES, create_group, no_topic, programs
from tests.readme_sections import DOCUMENTS, MARKED, README, READMES, ROOT, SECTIONS, code_blocks, read, renewed

import cobalance
from cobalance import Group, GroupAdmin, GroupSettings, Retention, Tenure, Topic
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.replies import Status
from cobalance.coordinator.scripts import VERBS
from cobalance.errors import PermissionMissing
from cobalance.journal import Journal
from cobalance.rabbitmq import create_topic

LINES = {"billing": 20, "revenue": 10, "copies": 3}
"""Group → how many lines its program prints before it has nothing more to do."""

TOPICS = {"billing": "orders", "revenue": "payments", "copies": "orders"}

LONGEST_README = 200

COLUMNS = 120


def group_of(program: str) -> str:
    """The group that a program is a member of."""
    found = re.search(r'Group\("(\w+)"', program)
    assert found is not None
    return found[1]


PROGRAMS = {group_of(program): program for program in code_blocks("python")}

FRAGMENTS = [block for block in code_blocks("py") if "cobalance_group" not in block]
"""But for the test in the README of `cobalance.testing`, which tests/testing runs."""


def test_every_program_is_known() -> None:
    """No block in Python is left out."""
    assert set(PROGRAMS) == set(LINES)
    assert len(PROGRAMS) == len(code_blocks("python"))
    assert len(FRAGMENTS) == len(code_blocks("py")) - 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_run(name: str, redis_url: str, amqp_url: str, tmp_path: Path) -> None:
    """As it stands, in a process of its own, until it is asked to stop."""
    program = tmp_path / f"{name}.py"
    program.write_text(PROGRAMS[name])
    create_group(redis_url, name)
    with no_topic(amqp_url, TOPICS[name]), programs(redis_url, amqp_url) as running:
        process = running.start(program)
        running.read_until(lambda: len(running.lines) == LINES[name])
        running.stop(process)
        assert running.rest() == []


@pytest.fixture
def stage(redis_url: str, amqp_url: str) -> Iterator[dict[str, object]]:
    """What fragments take for granted: all that is public, two servers, and what the text around them speaks of."""
    orders, refunds = Topic("orders", 12), Topic("refunds", 2)
    payments = Topic("payments", 2, queue_type="stream", retention=Retention(max_age="7D"))

    async def handle(delivery: cobalance.Delivery) -> None: ...

    names = {name: getattr(cobalance, name) for name in cobalance.__all__}
    given = {"AMQP_URL": amqp_url, "REDIS_URL": redis_url, "URL": "http://guest:guest@localhost:15672"}
    with no_topic(amqp_url, "orders"), no_topic(amqp_url, "payments"), GroupAdmin(redis_url) as admin:
        for group in {"billing"} & set(admin.list()):
            admin.delete(group)
        create_topic(amqp_url, orders)
        create_topic(amqp_url, payments)
        create_group(redis_url, "revenue")
        yield {**names, **given, "orders": orders, "refunds": refunds, "handle": handle}


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda it: it.splitlines()[0][:40])
def test_each_fragment_is_run(fragment: str, stage: dict[str, object], tmp_path: Path) -> None:
    """As it stands: options are those that there are, and what needs a server has one."""
    file = tmp_path / "fragment.py"
    file.write_text(fragment)
    runpy.run_path(str(file), init_globals=stage)


def test_the_front_page_is_short() -> None:
    """What is about one thing only is in the folder of that thing."""
    assert len(read(README).splitlines()) <= LONGEST_README


def test_the_quickstart_is_short() -> None:
    """At most twenty lines, and the same as the example of that name."""
    quickstart = PROGRAMS["billing"]
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
    found = [it["name"] for path in READMES for it in MARKED.finditer(read(path))]
    assert sorted(found) == sorted(SECTIONS)
    for path in READMES:
        assert renewed(read(path)) == read(path), path


def links(path: Path) -> list[str]:
    """Where a document's links lead within the repository."""
    return re.findall(r"\]\(([^)\s:]+)\)", read(path))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda it: str(it.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """To files of this repository, and to headings that they have."""
    for link in links(path):
        target, _, anchor = link.partition("#")
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link


def anchors(path: Path) -> set[str]:
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ (.+)$", read(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_readme_and_example_can_be_found() -> None:
    """From the front page, by links."""
    found, ahead = {README}, [README]
    for path in ahead:
        for link in links(path):
            there = (path.parent / link.partition("#")[0]).resolve()
            if there not in found and there.is_file():
                found.add(there)
                ahead += [there] if there.suffix == ".md" else []
    assert set(DOCUMENTS) | set(EXAMPLES.glob("*.py")) <= found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda it: str(it.relative_to(ROOT)))
def test_lines_end_in_time(path: Path) -> None:
    """Rows of tables aside, which cannot be broken, and the ACL line, which is pasted as one."""
    long = [
        line for line in read(path).splitlines() if len(line) > COLUMNS and not line.startswith(("|", "ACL SETUSER"))
    ]
    assert long == []


def commands() -> list[str]:
    """The `cobalance` commands in the READMEs, each once."""
    lines = [line for block in code_blocks("sh") for line in block.splitlines() if line.startswith("cobalance ")]
    quoted = [it for path in READMES for it in re.findall(r"`(cobalance [^`]+)`", read(path))]
    return list(dict.fromkeys([*lines, *quoted]))


@pytest.mark.parametrize("command", commands())
def test_commands_exist(command: str) -> None:
    """With the named options: asking for help with them succeeds, and lists them."""
    words = shlex.split(command, comments=True)[1:]
    options = [word for word in words if word.startswith("--")]
    verb = [word for word in words[:2] if word in _VERBS]
    shown = help_of(*verb)
    for option in options:
        assert option in shown


@functools.cache
def help_of(*verb: str) -> str:
    """What a command says of itself."""
    ended = cli_process.cobalance(*verb, "--help")
    assert ended.code == 0, ended.err
    return ended.out


_VERBS = (
    {
        "topic",
        "publish",
        "consume",
        "dashboard",
        "deadletters",
        "demo",
        "group",
        "health",
        "metrics",
        "doctor",
        "lag",
        "create",
        "list",
        "describe",
        "explain",
        "history",
    }
    | {"configure", "delete", "resume", "repair", "trust-offsets", "reset-offsets", "grow", "prune", "desired-members"}
    | {
        "sims",
        "run",
        "day",
        "campaign",
        "sweep",
        "journal",
        "calibrate",
        "tune",
        "verify",
        "agent",
        "replay",
        "report",
        "speed",
        "scenarios",
    }
)


def test_targets_exist() -> None:
    """Every `make` that a document names is one of the Makefile's."""
    named = {
        target for path in DOCUMENTS for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", read(path), re.MULTILINE)
    }
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= targets


def test_the_protocol_names_everything() -> None:
    """Every verb, every status and every kind of journal entry that the code has."""
    protocol = read(ROOT / "src/cobalance/coordinator/README.md")
    scripts = "".join(path.read_text() for path in (ROOT / "src/cobalance/coordinator/lua").rglob("*.lua"))
    ended = re.findall(r"(?:end_tenure|end_member)\(\w+, (?:heir and )?'(\w+)'", scripts)
    kinds = {*re.findall(r"journal\('(\w+)'", scripts), *ended}
    for word in {*VERBS, *get_args(Status), *kinds}:
        assert f"`{word}`" in protocol, word


def acl_rules(user: str, password: str) -> list[str]:
    """The published ACL line, for a user of our own."""
    (line,) = (block for block in code_blocks("text") if block.startswith("ACL SETUSER"))
    return line.strip().replace("cobalance on", f"{user} on").replace("PASSWORD", password).split()


def test_the_acl_line_suffices(redis_admin_url: str) -> None:
    """A group lives under exactly that user: joins, hints, commits, moves, the journal and the queries of the command
    line.

    Without one of its rules, the message refers to the line.
    """
    user, name = f"u{uuid.uuid4().hex[:8]}", f"acl-{uuid.uuid4().hex[:8]}"
    with redis.Redis.from_url(redis_admin_url) as admin:
        admin.execute_command(*acl_rules(user, "p4ss"))
        admin.acl_log_reset()
        url = redis_admin_url.replace("redis://", f"redis://{user}:p4ss@")
        create_group(url, name, GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=100, gather_ms=0))
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


def test_what_pypi_shows_leads_to_the_repository() -> None:
    """PyPI has none of our files: each link of the long description is absolute, and to something that is there."""
    ended = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    metadata = json.loads(ended.stdout)
    shown = re.findall(r"\]\(([^)\s]+)\)", metadata["readme"]["text"])
    assert len(shown) == len(re.findall(r"\]\(([^)\s]+)\)", read(README)))
    for link in shown:
        path = re.fullmatch(re.escape(metadata["urls"]["Repository"]) + r"/(?:blob|raw)/main/([^#]+)(?:#.*)?", link)
        assert path is not None, link
        assert (ROOT / path[1]).exists(), link
