"""A forked process cannot use the membership of its parent, and never waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.names import unique
from tests.programs import create_group

from cobalance import BlockingGroup, Group
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0
)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture
def group() -> Iterator[BlockingGroup]:
    """A member that runs in this process."""
    name = unique("forked")
    it = BlockingGroup(name, ["r"], redis_url=f"memory://{name}", settings=SETTINGS, resources_version=1)
    it.start()
    it.wait_held("r", timeout=60)
    yield it
    it.stop()


def in_child(call: Callable[[], object]) -> str:
    """What the call returns in a fork of this process, or "hangs"."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        said = "nothing"
        try:
            call()
        except BaseException as error:  # noqa: BLE001 -- reported to the parent
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        return pipe.read() or "hangs"


def lead(group: BlockingGroup) -> None:
    with group.leadership("r"):
        pass


CALLS: dict[str, Callable[[BlockingGroup], Any]] = {
    "stop": BlockingGroup.stop,
    "declare": lambda it: it.declare(["r", "s"], 2),
    "leave": BlockingGroup.leave,
    "pause": lambda it: it.pause("r"),
    "resume": lambda it: it.resume("r"),
    "commit": lambda it: it.commit("r", 1),
    "describe": BlockingGroup.describe,
    "wait_left": BlockingGroup.wait_left,
    "wait_held": lambda it: it.wait_held("r"),
    "leadership": lead,
    "tenure.commit": lambda it: it.tenures["r"].commit(1),
    "tenure.wait_draining": lambda it: it.tenures["r"].wait_draining(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_fork_is_told_at_once_that_the_membership_is_not_its_own(group: BlockingGroup, call: str) -> None:
    """The parent's membership goes on."""
    said = in_child(lambda: CALLS[call](group))
    assert "UsageError: " in said
    assert "before the process was forked" in said
    group.commit("r", 1)


async def lead_here(group: Group) -> None:
    async with group.leadership("r"):
        pass


AWAITED: dict[str, Callable[[Group], Awaitable[object]]] = {
    "stop": Group.stop,
    "leave": Group.leave,
    "commit": lambda it: it.commit("r", 1),
    "describe": Group.describe,
    "wait_joined": Group.wait_joined,
    "wait_left": Group.wait_left,
    "wait_held": lambda it: it.wait_held("r"),
    "wait_held any": Group.wait_held,
    "leadership": lead_here,
    "tenure.commit": lambda it: it.tenures["r"].commit(1),
    "tenure.wait_draining": lambda it: it.tenures["r"].wait_draining(),
}
DONE: dict[str, Callable[[Group], object]] = {
    "declare": lambda it: it.declare(["r", "s"], 2),
    "pause": lambda it: it.pause("r"),
    "resume": Group.resume,
}


@pytest.mark.anyio
async def test_a_fork_of_an_event_loop_is_told_so_too() -> None:
    """It waits for nothing, and is not answered as if it held or had joined anything."""
    name = unique("forked")
    group = Group(name, ["r"], redis_url=f"memory://{name}", settings=SETTINGS, resources_version=1)
    await group.start()
    await group.wait_held("r")
    said = {call: in_child(lambda do=do: do(group).__await__().send(None)) for call, do in AWAITED.items()}  # type: ignore[misc]
    said |= {call: in_child(lambda do=do: do(group)) for call, do in DONE.items()}  # type: ignore[misc]
    wrong = {
        call: it for call, it in said.items() if not ("UsageError" in it and "before the process was forked" in it)
    }
    assert wrong == {}
    await group.commit("r", 1)
    await group.stop()


def test_a_tenure_is_not_active_in_a_fork(group: BlockingGroup) -> None:
    """The parent goes on with it."""

    def work() -> None:
        assert group.tenures["r"].active

    assert "AssertionError" in in_child(work)
    work()


@pytest.mark.parametrize("look", ["tenures", "health", "pause", "commit"])
def test_a_fork_never_waits_for_a_thread_that_only_the_parent_has(group: BlockingGroup, look: str) -> None:
    """It was about to change what is held when the process was forked."""
    with group._group.membership.roster._lock:
        said = in_child(lambda: CALLS[look](group) if look in CALLS else getattr(group, look))
    assert said == "nothing" if look not in CALLS else "before the process was forked" in said


def test_the_end_of_the_with_leaves_a_fork_alone(group: BlockingGroup) -> None:
    """The block ends there, without any effect."""
    assert in_child(lambda: group.__exit__(None, None, None)) == "nothing"
    group.commit("r", 1)


FORKING = """
import os, signal, sys
import anyio
from cobalance import Group, GroupSettings

SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0)

def fork():
    child = os.fork()
    if not child:
        signal.alarm(10)
        {end}
    return os.waitpid(child, 0)[1]

async def main():
    async with Group("g", ["r"], redis_url=sys.argv[1], settings=SETTINGS) as group:
        (tenure,) = await group.wait_held("r")
        print("child:", fork(), flush=True)
        await tenure.commit(1)
        await group.describe()
        print("parent:", group.failed, tenure.active, flush=True)

anyio.run(main, backend="{backend}")
"""


FALLING_OUT = """
import os, signal, sys
import anyio
from cobalance import Group, GroupSettings

SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0)

async def main():
    async with Group("g", ["r"], redis_url=sys.argv[1], settings=SETTINGS) as group:
        (tenure,) = await group.wait_held("r")
        child = os.fork()
        if child:
            print("child:", await anyio.to_thread.run_sync(os.waitpid, child, 0), file=sys.stderr)
            await tenure.commit(1)
            await group.describe()
            print("parent:", group.failed, tenure.active, flush=True)
        else:
            signal.alarm(10)
    print("after the block", child != 0, flush=True)

anyio.run(main, backend="{backend}")
"""


def place(kind: str, redis_url: str) -> str:
    """The URL of a coordinator whose group exists: its first member need not wait for claims."""
    if kind == "memory":
        return "memory://forked"
    create_group(redis_url, "g", SETTINGS)
    return redis_url


@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_fork_that_falls_out_of_the_async_with_ends(backend: str, kind: str, redis_url: str, tmp_path: Path) -> None:
    """Its event loop is its parent's, so nothing can run after the block; the message says what to do."""
    (tmp_path / "program.py").write_text(FALLING_OUT.format(backend=backend))
    command = [sys.executable, "program.py", place(kind, redis_url)]
    ended = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False)
    assert ended.stdout == "parent: None True\nafter the block True\n", ended.stderr
    assert "end the fork with os._exit()" in ended.stderr
    assert f", {1 << 8})" in ended.stderr  # the child's status
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("end", ["sys.exit(0)", "sys.exit(7)", "raise KeyError"])
@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_fork_may_leave_through_the_async_with(
    backend: str, end: str, kind: str, redis_url: str, tmp_path: Path
) -> None:
    """At once, and the membership goes on without it."""
    (tmp_path / "program.py").write_text(FORKING.format(end=end, backend=backend))
    command = [sys.executable, "program.py", place(kind, redis_url)]
    ended = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False)
    status = {"sys.exit(0)": 0, "sys.exit(7)": 7 << 8, "raise KeyError": 1 << 8}[end]
    assert ended.stdout == f"child: {status}\nparent: None True\n", ended.stderr
    assert ended.returncode == 0, ended.stderr
