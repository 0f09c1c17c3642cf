"""The agent of a replay, with processes that do nothing: whom it obeys, what it declines, and that nothing stays frozen."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis
from tests.cli_process import Running, running
from tests.names import unique

from cobalance.cli.exits import FAILED, OK
from cobalance.coordinator.client import MemberRow
from cobalance.coordinator.keys import replay_key
from cobalance.coordinator.open import open_transport
from cobalance.journal import Journal
from cobalance.settings import GroupSettings
from cobalance.threads.gate import Gate
from cobalance_sims.replay import agent as agents
from cobalance_sims.replay import posts
from cobalance_sims.replay.agent import Agent, Program
from cobalance_sims.replay.limits import Limits, LimitWatch
from cobalance_sims.replay.performance import Performer
from cobalance_sims.replay.plan import Plan, PlannedDeed
from cobalance_sims.replay.posts import Post, Posts
from cobalance_sims.replay.stage import ReplayStage, Target
from cobalance_sims.simulate.churn import Churn

TIMEOUT_S = 60
SLEEP = ("sleep", "600")
AGENT = "here/1"


class Talk:
    """One end of a group's stream, as a replay has it."""

    def __init__(self, url: str, group: str, sender: str) -> None:
        self.transport = open_transport(url)
        self.posts = Posts(self.transport, group, sender)
        self.posts.write("hello")
        self.orders = 0
        self.unread: deque[Post] = deque()

    def order(self, verb: str, name: str, agent: str = AGENT, **more: Any) -> None:
        self.orders += 1
        self.posts.write("order", agent=agent, order=self.orders, verb=verb, name=name, **more)

    def hear(self, kind: str, is_it: Callable[[Post], bool] = lambda _: True) -> Post:
        """Waits for such a post."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            self.unread += self.posts.read()
            while self.unread:
                post = self.unread.popleft()
                if post.kind == kind and is_it(post):
                    return post
        raise AssertionError(f"nobody said {kind}")

    def declined(self) -> str:
        """Waits until an order of this replay is declined; returns why."""
        return self.hear("declined", lambda it: it.text("replay") == self.posts.sender).text("why")

    def states(self) -> dict[str, str]:
        """The processes of the next beat: name → state."""
        self.posts.write("hello")
        return {it[0]: it[3] for it in self.hear("beat").words["processes"]}

    def until(self, states: dict[str, str]) -> None:
        """Waits until these are the processes."""
        until, found = time.monotonic() + TIMEOUT_S, self.states()
        while found != states:
            assert time.monotonic() < until, found
            found = self.states()


@pytest.fixture
def group() -> str:
    return unique("trial")


@pytest.fixture
def talk(redis_url: str, group: str) -> Iterator[Callable[[str], Talk]]:
    """Begins to talk, under a name."""
    made: list[Talk] = []

    def begin(sender: str) -> Talk:
        made.append(Talk(redis_url, group, sender))
        return made[-1]

    yield begin
    for it in made:
        it.transport.close()


@pytest.fixture
def agent(redis_url: str, group: str) -> Iterator[None]:
    """An agent with two processes, in this process."""
    with agent_of(redis_url, group):
        yield


@contextmanager
def agent_of(
    redis_url: str, group: str, command: Sequence[str] = SLEEP, instances: str = "", leave_s: float = 30.0
) -> Iterator[None]:
    stop, hurry = Gate(), Gate()
    program = Program(command=command, processes=2, at_most=3, instances=instances)
    with closing(open_transport(redis_url)) as transport:
        it = Agent(Posts(transport, group, AGENT), program, lambda _: None, leave_s=leave_s)
        thread = Thread(target=it.run, args=(stop, hurry))
        thread.start()
        try:
            yield
        finally:
            stop.open()
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


@pytest.mark.usefixtures("agent")
def test_it_does_what_its_replay_orders(talk: Callable[[str], Talk]) -> None:
    """And has as many processes as at first when that ends, none of them frozen."""
    replay = talk("r1")
    replay.until({"m1": "running", "m2": "running"})
    replay.posts.write("begin")
    assert replay.hear("obeys").text("replay") == "r1"
    replay.order("kill", "m1")
    replay.order("freeze", "m2", for_ms=600_000)
    replay.order("start", "r1-3", slot=3)
    replay.hear("done", lambda it: it.text("verb") == "start")
    replay.until({"m2": "frozen", "r1-3": "running"})
    replay.posts.write("end")
    resumed = replay.hear("done", lambda it: it.text("verb") == "resume")
    assert resumed.text("name") == "m2"
    replay.until({"m2": "running", "m1.1": "running"})


@pytest.mark.usefixtures("agent")
def test_a_freeze_ends_by_itself(talk: Callable[[str], Talk]) -> None:
    """The agent counts its time, so that it ends whatever becomes of the replay."""
    replay = talk("r1")
    replay.until({"m1": "running", "m2": "running"})
    replay.posts.write("begin")
    replay.order("freeze", "m1", for_ms=1_000)
    begun = replay.hear("done", lambda it: it.text("verb") == "freeze")
    ended = replay.hear("done", lambda it: it.text("verb") == "resume")
    assert ended.at_ms - begun.at_ms >= 500  # a busy machine says late that it has begun


@pytest.mark.usefixtures("agent")
def test_it_declines_what_is_not_for_it(talk: Callable[[str], Talk]) -> None:
    """Orders of no replay or of another, about processes that it has not started, and more than it may run."""
    replay, other = talk("r1"), talk("r2")
    replay.until({"m1": "running", "m2": "running"})
    other.order("kill", "m1")
    assert "obeys no replay" in other.declined()
    replay.posts.write("begin")
    replay.hear("obeys")
    other.posts.write("begin")
    assert other.hear("refuses").text("why") == "it is in replay r1"
    other.order("kill", "m1")
    assert "obeys replay r1" in other.declined()
    other.posts.write("end")
    replay.order("kill", "m1", agent="elsewhere/1")  # not its business, so it says nothing
    refused: tuple[tuple[str, str, dict[str, Any], str], ...] = (
        ("kill", str(os.getpid()), {}, "it has no process"),
        ("start", "m1", {"slot": 1}, "such a process already"),
        ("start", "r1-3", {"slot": 4}, "no such slot"),
        ("freeze", "m1", {"for_ms": 10**9}, "no such order"),
        ("explode", "m1", {}, "no such order"),
    )
    for verb, name, more, says in refused:
        replay.order(verb, name, **more)
        assert says in replay.declined()
    replay.order("start", "r1-3", slot=3)
    replay.order("start", "r1-4", slot=3)
    assert "3 processes at most" in replay.declined()
    replay.until({"m1": "running", "m2": "running", "r1-3": "running"})


def test_a_successor_with_an_instance_id_waits_for_its_predecessor(
    redis_url: str, group: str, talk: Callable[[str], Talk], tmp_path: Path
) -> None:
    """Ordered or at the end of a replay: two processes cannot have one at a time. Each here takes as long to leave as its
    file `stays` is there, as a drain does.
    """
    stays = tmp_path / "stays"
    stays.touch()
    script = f"trap 'while [ -e {stays} ]; do sleep 0.02; done; exit 0' TERM; while :; do sleep 0.02; done"
    replay = talk("r1")
    with agent_of(redis_url, group, ("bash", "-c", script), instances="web"):
        replay.until({"m1": "running", "m2": "running"})
        replay.posts.write("begin")
        replay.hear("obeys")
        replay.order("stop", "m1")
        replay.hear("done")
        replay.order("start", "r1-3", slot=1)
        replay.order("start", "r1-4", slot=3)  # the answer comes after that to the one before
        assert replay.hear("done", lambda it: it.text("verb") == "start").text("name") == "r1-4"
        replay.until({"m1": "leaving", "m2": "running", "r1-4": "running"})
        stays.unlink()
        assert replay.hear("done", lambda it: it.text("verb") == "start").text("name") == "r1-3"
        stays.touch()
        replay.order("stop", "m2")
        replay.order("start", "r1-5", slot=2)
        replay.order("kill", "r1-5")
        assert "had not started yet" in replay.declined()
        replay.order("start", "r1-6", slot=2)
        replay.posts.write("end")
        replay.hear("restored")
        replay.until({"r1-3": "running", "m2": "leaving", "r1-4": "leaving"})
        stays.unlink()
        replay.until({"r1-3": "running", "m2.1": "running"})


@pytest.mark.parametrize("instances", ["", "web"])
def test_a_process_that_does_not_leave_after_a_replay_is_killed(
    redis_url: str, group: str, talk: Callable[[str], Talk], instances: str
) -> None:
    """Or its successor would wait for ever, or there would be more than at first; also if another replay has begun."""
    replay, other = talk("r1"), talk("r2")
    with agent_of(redis_url, group, ("bash", "-c", "trap '' TERM; exec sleep 600"), instances, leave_s=0.5):
        replay.until({"m1": "running", "m2": "running"})
        replay.posts.write("begin")
        replay.hear("obeys")
        replay.order("start", "r1-3", slot=3)
        replay.order("stop", "m1")
        replay.hear("done", lambda it: it.text("verb") == "stop")
        replay.posts.write("end")
        replay.hear("restored")
        other.posts.write("begin")
        other.until({"m2": "running", "m1.1": "running"})


@pytest.mark.usefixtures("agent")
def test_an_order_that_is_posted_twice_is_carried_out_once(talk: Callable[[str], Talk]) -> None:
    """A writer that does not hear that it was posted posts it again; a second SIGTERM would have the member hurry."""
    replay = talk("r1")
    replay.until({"m1": "running", "m2": "running"})
    replay.posts.write("begin")
    replay.hear("obeys")
    for _ in range(2):
        replay.posts.write("order", agent=AGENT, order=7, verb="start", name="r1-3", slot=3)
    replay.posts.write("order", agent=AGENT, order=8, verb="kill", name="m1")
    answers: list[Post] = []
    until = time.monotonic() + TIMEOUT_S
    while not (answers and answers[-1].text("verb") == "kill"):
        assert time.monotonic() < until
        answers += [it for it in replay.posts.read() if it.kind in {"done", "declined"}]
    assert [(it.kind, it.number("order")) for it in answers] == [("done", 7), ("done", 8)]


@pytest.mark.usefixtures("agent")
def test_posts_of_another_form_are_passed_over(redis_admin_url: str, group: str, talk: Callable[[str], Talk]) -> None:
    """Whatever somebody writes there, it ends no agent."""
    odd = (
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"kind": "begin", "sender": {}, "ago_ms": 1e999}',
        b'{"kind": "begin", "sender": "\\ud800"}',
        b'{"kind": "end", "sender": "\\ud800"}',
        b'{"kind": "order", "agent": "here/1", "order": -1, "verb": [], "name": 7}',
    )
    replay = talk("r1")
    replay.until({"m1": "running", "m2": "running"})
    with closing(redis.Redis.from_url(redis_admin_url)) as admin:
        for post in odd:
            admin.xadd(replay_key(group), {"post": post})
        admin.xadd(replay_key(group), {"another": "field"})
    replay.until({"m1": "running", "m2": "running"})


def test_posts_are_read_on_a_server_whose_clock_is_behind(
    redis_admin_url: str, group: str, talk: Callable[[str], Talk]
) -> None:
    """After a loss of all posts, or of the newest ones: none is passed over, and none comes twice."""

    def heard(it: Posts) -> list[str]:
        return [post.kind for post in it.read()]

    key, one, two = replay_key(group), talk("r1").posts, talk("r2").posts
    ahead = int(time.time() * 1_000) + 3_600_000
    with closing(redis.Redis.from_url(redis_admin_url)) as admin:
        for it in (one, two):
            it.write("here")
        heard(one), heard(two)
        for kept in (False, True):
            one.write("older")
            assert heard(two) == ["older"]
            newest: Any = admin.xrevrange(key, count=1)
            admin.xadd(key, {"post": '{"kind": "newest", "sender": "r3"}'}, id=f"{ahead}-{int(kept)}")
            assert heard(one) == heard(two) == ["newest"]
            admin.delete(key)
            if kept:
                admin.xadd(key, newest[0][1], id=newest[0][0])
            one.write("later")
            two.write("last")
            assert (heard(one), heard(two)) == (["last"], ["later"])
            one.write("more")
            assert heard(two) == ["more"]


def test_what_agents_say_is_kept_for_a_time(
    group: str, talk: Callable[[str], Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by number: the beats of a hundred processes for hours would fill the group's Redis."""
    one = talk("r1")
    beat = {"processes": [[f"m{it}", it, it, "running", 1] for it in range(200)]}
    for kept_ms, few in ((60_000, False), (0, True)):
        monkeypatch.setattr(posts, "KEPT_MS", kept_ms)
        for _ in range(50):
            one.posts.write("beat", **beat)
        there = len(one.transport.read_stream(replay_key(group), "0", 1_000))
        assert (there < 30) == few, there


def test_what_an_agent_has_done_counts_once(redis_url: str, group: str, talk: Callable[[str], Talk]) -> None:
    """However often it says so: an answer that came late makes it say it again."""
    agent = talk(AGENT)

    def answer() -> None:
        agent.hear("begin")
        agent.posts.write("obeys", replay="r1")
        order = agent.hear("order").number("order")
        for _ in range(2):
            agent.posts.write("done", replay="r1", order=order, verb="kill", name="m1", pid=7)
            agent.posts.write("declined", replay="r1", order=order + 1, why="no")
        agent.hear("end")
        agent.posts.write("restored", replay="r1")

    row = MemberRow("x1.1", "active", 1, None, "here/7", 700, 1, 9_000, 3, 0, 3, 3, subscription="s")
    stage = ReplayStage(targets=[Target(AGENT, "m1", "here/7")], members=[row], resources=1, at_most={AGENT: 1})
    steps = [PlannedDeed(at_ms=0, verb="kill", member=1)]
    plan = Plan(churn=Churn(length_ms=2_000), seed=1, steps=steps, left_out=[])
    watch = LimitWatch(Limits(unworked_ms=60_000, expiries=9), GroupSettings())
    with closing(open_transport(redis_url)) as transport:
        theirs, journal = Posts(transport, group, "r1"), Journal(transport, group)
        performer = Performer(theirs, journal, stage=stage, plan=plan, watch=watch, say=lambda _: None)
        thread = Thread(target=answer)
        thread.start()
        done = performer.perform(Gate())
        thread.join(TIMEOUT_S)
    assert [(it.verb, it.member) for it in done.deeds] == [("kill", 1)]
    assert (done.declined, done.aborted) == (["no"], "")


@pytest.mark.usefixtures("agent")
def test_a_silent_replay_is_over(talk: Callable[[str], Talk], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has frozen goes on, and what it has killed is started again."""
    monkeypatch.setattr(agents, "SILENT_S", 1.0)
    replay = talk("r1")
    replay.until({"m1": "running", "m2": "running"})
    replay.posts.write("begin")
    replay.order("kill", "m1")
    replay.order("freeze", "m2", for_ms=600_000)
    assert replay.hear("restored").text("replay") == "r1"
    replay.until({"m2": "running", "m1.1": "running"})


@pytest.mark.usefixtures("agent")
def test_a_process_that_ends_by_itself_is_reported(talk: Callable[[str], Talk]) -> None:
    """So that a replay does not go on with a program that does not work."""
    replay = talk("r1")
    replay.until({"m1": "running", "m2": "running"})
    replay.posts.write("hello")
    pid = replay.hear("beat").words["processes"][0][2]
    os.kill(pid, signal.SIGUSR1)
    ended = replay.hear("ended")
    assert (ended.text("name"), ended.words["code"]) == ("m1", -signal.SIGUSR1)


@contextmanager
def frozen_process(
    redis_url: str, group: str, talk: Callable[[str], Talk], folder: Path
) -> Iterator[tuple[Running, int]]:
    """An agent in a process of its own, and a process of it that is frozen."""
    environment = {"COBALANCE_REDIS_URL": redis_url}
    with running("sims", "agent", "--group", group, "--", *SLEEP, folder=folder, environment=environment) as it:
        it.wait_for("starts 1 x sleep")
        replay = talk("r1")
        name, _, pid, *_ = replay.hear("beat", lambda post: bool(post.words["processes"])).words["processes"][0]
        process = os.pidfd_open(pid)
        with os.fdopen(process):
            replay.posts.write("begin")
            sender = replay.hear("obeys").sender
            replay.order("freeze", name, agent=sender, for_ms=600_000)
            replay.hear("done")
            yield it, process


def has_ended(process: int) -> bool:
    return bool(select.select([process], [], [], TIMEOUT_S)[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_stays_frozen_when_it_is_asked_to_end(
    redis_url: str, group: str, talk: Callable[[str], Talk], tmp_path: Path, number: int
) -> None:
    """Ctrl-C, a service manager, a closed terminal: its processes go on, are asked to leave, and have ended before it."""
    with frozen_process(redis_url, group, talk, tmp_path) as (it, process):
        ended = it.end(number)
        assert has_ended(process)
    assert ended.code == OK
    assert "resume m1" in ended.err


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """As the init of a container does, in the session of its children: so the kernel does not hang up on an orphan that is stopped."""
    prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
    prctl(set_child_subreaper, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(set_child_subreaper, 0, 0, 0, 0)


@pytest.mark.parametrize("adopting", [nullcontext, adopting_orphans])
def test_nothing_stays_frozen_when_it_is_killed(
    redis_url: str,
    group: str,
    talk: Callable[[str], Talk],
    tmp_path: Path,
    adopting: Callable[[], AbstractContextManager[None]],
) -> None:
    """It cannot do anything about it; another process does."""
    with adopting(), frozen_process(redis_url, group, talk, tmp_path) as (it, process):
        it.process.kill()
        try:
            assert has_ended(process)
        finally:
            with suppress(ProcessLookupError, ChildProcessError):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                os.waitid(os.P_PIDFD, process, os.WEXITED)


def test_it_ends_with_its_processes(redis_url: str, group: str, tmp_path: Path) -> None:
    """A program that fails at once is said to have failed."""
    with running(
        "sims",
        "agent",
        "--group",
        group,
        "--",
        "false",
        folder=tmp_path,
        environment={"COBALANCE_REDIS_URL": redis_url},
    ) as it:
        ended = it.wait()
    assert ended.code == FAILED
    assert "has ended by itself with 1" in ended.err
