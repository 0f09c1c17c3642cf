"""The story on Cobalance and its peers: the judge, the results, what is fetched, and a short run on real servers."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

import proof
from cobalance.servers.find import find_redis
from proof.bench import run
from proof.bench.peers import external, measure, results
from proof.bench.peers.external import External
from proof.bench.peers.judge import Handled, MembershipChange, Story, minimum_moves
from proof.bench.peers.kafka import fetch
from proof.bench.peers.load import Load
from proof.bench.peers.peer import Publisher
from proof.bench.peers.story import play
from proof.bench.peers.team import MemberFailed, Team

A, B, C = 101, 102, 103


class Line:
    """Writes observations: a message of each partition every 25 ms, whose handler takes 2 ms."""

    def __init__(self) -> None:
        self.handled: list[Handled] = []

    def works(self, process: int, partition: int, numbers: Sequence[int], *, last_ends: bool = True) -> None:
        """Message n is begun at n times 25 ms."""
        for number in numbers:
            ends = last_ends or number != numbers[-1]
            self.at(process, partition, number, number * 0.025, ends=ends)

    def at(self, process: int, partition: int, number: int, begun: float, *, ends: bool = True) -> None:
        self.handled.append(Handled(process, partition, number, begun, begun + 0.002 if ends else None))

    def story(self, partitions: int, *changes: MembershipChange, published: int = 0) -> Story:
        sent = {(part, number): number * 0.025 for part in range(partitions) for number in range(published)}
        return Story(partitions=partitions, handled=tuple(self.handled), changes=changes, published=sent)


def change(
    kind: str, process: int, members: tuple[int, ...], *, at: float = 0.99, until: float = 3.0
) -> MembershipChange:
    return MembershipChange(kind=kind, process=process, at=at, until=until, members=members)


def test_a_join_that_moves_what_it_must() -> None:
    """Two of four partitions are A's and stay, one of B's moves; what stays pauses no longer than the load does."""
    line = Line()
    for partition, process in ((0, A), (1, A), (2, B)):
        line.works(process, partition, range(120))
    line.works(B, 3, range(45))
    line.works(C, 3, range(47, 120))
    (outcome,) = line.story(4, change("joins", C, (A, B, C))).outcomes()
    assert (outcome.moves, outcome.minimum, outcome.shares, outcome.stalled) == (1, 1, (2, 1, 1), 0)
    assert outcome.gaps_ms == pytest.approx([73])  # three intervals less the handler
    assert outcome.even_s == pytest.approx(47 * 0.025 - 0.99)
    assert outcome.pause_ms == pytest.approx(23)


def test_a_kill_is_judged_from_the_last_message_that_ended() -> None:
    """What the victim had begun is begun again: a duplicate, and no end of a gap."""
    line = Line()
    line.works(A, 0, range(120))
    line.works(B, 1, range(41), last_ends=False)
    line.at(A, 1, 40, 1.05)
    line.works(A, 1, range(43, 120))
    (outcome,) = line.story(2, change("killed", B, (A,), at=1.001), published=41).outcomes()
    assert outcome.gaps_ms == pytest.approx([(1.05 - 39 * 0.025 - 0.002) * 1000])
    assert outcome.resumed_ms == pytest.approx([49])
    assert (outcome.moves, outcome.minimum, outcome.duplicates, outcome.lost, outcome.reordered) == (1, 1, 1, 0, 0)


def test_what_is_not_balanced_is_never_even() -> None:
    """As RabbitMQ's single active consumer: the first has everything, and nothing moves."""
    line = Line()
    for partition in range(4):
        line.works(A, partition, range(120))
    (outcome,) = line.story(4, change("joins", C, (A, B, C))).outcomes()
    assert (outcome.moves, outcome.minimum, outcome.even_s, outcome.shares) == (0, 2, None, (4, 0, 0))
    assert outcome.waited_s == pytest.approx(2.01)


def test_a_partition_that_moves_twice_counts_twice() -> None:
    """Once through a process that had to give it on."""
    line = Line()
    line.works(A, 0, range(41))
    line.works(B, 0, range(41, 50))
    line.works(C, 0, range(50, 120))
    (outcome,) = line.story(1, change("killed", A, (B, C), at=1.01)).outcomes()
    assert (outcome.moves, outcome.minimum) == (2, 1)
    assert outcome.gaps_ms == pytest.approx([23, 23])
    assert outcome.pause_ms is None


def test_a_partition_that_nobody_works_is_told() -> None:
    """It counts as neither moved nor even, and what was published to it is lost."""
    line = Line()
    line.works(A, 0, range(120))
    line.works(B, 1, range(40))
    (outcome,) = line.story(2, change("killed", B, (A,)), published=120).outcomes()
    assert (outcome.stalled, outcome.moves, outcome.even_s, outcome.lost) == (1, 0, None, 80)


def test_a_pause_that_still_goes_on_counts() -> None:
    """A partition that stays and falls silent is paused until the end."""
    line = Line()
    line.works(A, 0, range(60))
    line.works(B, 1, range(120))
    (outcome,) = line.story(2, change("joins", C, (A, B, C))).outcomes()
    assert outcome.pause_ms == pytest.approx((3.0 - 59 * 0.025 - 0.002) * 1000)


def test_losses_and_disorder_belong_to_the_change_they_follow() -> None:
    """What a crash loses was published just before it, so a loss counts from the end of the change before."""
    line = Line()
    line.works(A, 0, [*range(79), *range(81, 150), 80])  # 79 is never handled
    line.at(A, 0, 150, 4.0)
    line.at(A, 0, 149, 4.1)
    join = change("joins", B, (A, B), at=0.5, until=1.0)
    kill = change("killed", B, (A,), at=2.0, until=3.0)
    line.handled[-1] = Handled(A, 0, 149, 4.1, 4.102)
    first, second = line.story(1, join, kill, published=151).outcomes()
    assert (first.lost, second.lost) == (0, 1)
    assert (first.duplicates, second.duplicates) == (0, 1)
    assert (first.reordered, second.reordered) == (0, 0)
    late = Line()
    late.works(A, 0, [0, 1, 2, 4])
    late.at(A, 0, 3, 0.6)
    assert [it.reordered for it in late.story(1, join, kill).outcomes()] == [1, 0]


def test_two_at_once_are_seen() -> None:
    """The old owner's last handler ends after the new owner's first one began: a gap below zero, too."""
    line = Line()
    line.works(A, 0, range(41))
    line.at(B, 0, 41, 40 * 0.025 + 0.001)
    (outcome,) = line.story(1, change("joins", B, (A, B), at=0.98)).outcomes()
    assert outcome.overlapping == 1
    assert outcome.gaps_ms == pytest.approx([-1])
    apart = Line()
    apart.works(A, 0, range(41))
    apart.works(B, 0, range(41, 60))
    assert apart.story(1, change("joins", B, (A, B))).outcomes()[0].overlapping == 0


@pytest.mark.parametrize(
    ("shares", "members", "least"),
    [([12, 0, 0], 4, 9), ([4, 4, 4], 4, 3), ([4, 4, 4], 3, 0), ([6, 3, 3], 3, 2), ([5, 4, 3], 3, 1), ([7, 5], 5, 6)],
)
def test_the_least_that_has_to_move(shares: list[int], members: int, least: int) -> None:
    """Shares of processes that all stay, and how many there are."""
    owners = [process for process, share in enumerate(shares) for _ in range(share)]
    assert minimum_moves(len(owners), owners, range(members)) == least


def test_what_the_gone_held_has_to_move() -> None:
    """Three partitions of a member that is gone, to two that have three and six."""
    owners = [9, 9, 9, 1, 1, 1, *[2] * 6]
    assert minimum_moves(12, owners, (1, 2)) == 3


@pytest.mark.parametrize(("percent", "value"), [(50, 2.0), (99, 4.0), (25, 1.0), (26, 2.0), (100, 4.0)])
def test_percentiles_are_values_that_were_seen(percent: float, value: float) -> None:
    """The nearest rank."""
    assert results.percentile([1.0, 2.0, 3.0, 4.0], percent) == value


def test_a_table_has_every_peer_under_every_change() -> None:
    """Moves are added up over the rounds, and one uneven round shows."""
    line = Line()
    for partition in range(4):
        line.works(A, partition, range(160))
    changes = [
        change(kind, C, (A, B, C), at=at, until=at + 0.9) for kind, at in zip(results.KINDS, (0, 1, 2), strict=True)
    ]
    outcomes = line.story(4, *changes).outcomes()
    played = [
        results.Played(name, name.title(), 0, [1.0], 9.0, 640, outcomes) for name in ("cobalance-classic", "other")
    ]
    text = results.markdown(played)
    assert len(text.splitlines()) == 2 + 2 * len(results.KINDS)
    assert text.count("| Other | 0 / 2 | none | none | 23 | never | 0 | 0 | 0 |") == len(results.KINDS)
    report = {"peers": {"played": [attrs.asdict(it) for it in played]}}
    assert results.markdown(results.read(json.loads(json.dumps(report)))) == text
    named = {it.name for it in results.figures(played)}
    assert "peers, classic queues, one of 3 is killed: lost" in named
    assert not any("quorum" in it for it in named)


# -- member processes -----------------------------------------------------------------------------------------------------


def test_a_member_that_ends_by_itself_ends_the_story() -> None:
    """With what it wrote to standard error: a missing module, say, is not a slow product."""
    team = Team(["sh", "-c", "echo no such module >&2; exit 3"], {})
    try:
        team.processes[team.start()].wait()
        with pytest.raises(MemberFailed, match=r"(?s)exit code 3.*no such module"):
            team.check()
    finally:
        team.close()


def test_what_members_report_is_read_to_the_end() -> None:
    """A handler that was killed has begun only."""
    said = "$$ started -1 -1 1.0\n$$ begun 7 0 2.0\n$$ ended 7 0 2.5\n$$ begun 7 1 3.0\n"
    team = Team(["sh", "-c", f'printf "{said}"'], {})
    pid = team.start()
    team.processes[pid].wait()
    team.close()
    assert team.handled() == (Handled(pid, 7, 0, 2.0, 2.5), Handled(pid, 7, 1, 3.0, None))
    assert (team.started, team.owners, team.finished()) == ({pid: 1.0}, {7: pid}, 1)


def test_a_load_that_cannot_publish_says_so() -> None:
    """Where it is closed, rather than as lost messages."""

    class Nowhere:
        command: Sequence[str] = ()
        environment: Mapping[str, str] = {}

        def publisher(self) -> Publisher:
            raise ConnectionError("no broker")

        def close(self) -> None:
            """There is nothing."""

    load = Load(Nowhere(), 1)
    with pytest.raises(ConnectionError, match="no broker"):
        load.close()
    assert not load.is_running


# -- arguments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [["--peers", "pulsar"], ["--compare"], ["--compare", "/no/such/file"]])
def test_wrong_arguments_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is started."""
    with pytest.raises(SystemExit) as refusal:
        run.main(wrong)
    assert refusal.value.code == 2
    assert "usage: make bench" in capsys.readouterr().err


def test_iggy_takes_part_only_where_a_program_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is fetched for it; the run says why it is not there."""
    monkeypatch.delenv(external.VARIABLE, raising=False)
    assert run.main(["--peers", "iggy", "--rounds", "1"]) == 0
    assert f"{external.VARIABLE} names no program" in capsys.readouterr().out
    assert set(measure.NAMES) >= {"cobalance-quorum", "rabbitmq-quorum", "kafka", "kafka-classic-tuned", "iggy"}


# -- what is fetched --------------------------------------------------------------------------------------------------------


@pytest.fixture
def central(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one file, of which the list names the hash."""
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "a.jar").write_bytes(b"a jar")
    listed = "df4a3e40c5bcd05a6d8ce82f45bb9c5a3a5a9bd94a5f0b0d4de0d6de2d3d0a2f"
    monkeypatch.setattr(fetch, "CENTRAL", tmp_path.as_uri() + "/")
    monkeypatch.setattr(fetch, "HERE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "broker.sha256").write_text(f"{listed}  org/a.jar\n")
    return tmp_path


def test_a_jar_with_another_hash_is_not_kept(central: Path) -> None:
    """So it can never be run."""
    with pytest.raises(fetch.KafkaUnavailable, match="SHA-256"):
        fetch.fetch_broker()
    assert not list((central / "cache").rglob("*.jar"))


def test_a_jar_with_the_known_hash_is_fetched_once(central: Path) -> None:
    """A second time needs no repository; a damaged file is fetched again."""
    sha256 = hashlib.sha256(b"a jar").hexdigest()
    (central / "broker.sha256").write_text(f"{sha256}  org/a.jar\n")
    jar = fetch.fetch_broker() / "a.jar"
    jar.write_bytes(b"damaged")
    assert fetch.fetch_broker() / "a.jar" == jar
    assert jar.read_bytes() == b"a jar"
    (central / "org" / "a.jar").unlink()
    fetch.fetch_broker()
    jar.unlink()
    with pytest.raises(fetch.KafkaUnavailable, match="cannot be fetched"):
        fetch.fetch_broker()


# -- real runs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_run_that_is_interrupted_shows_what_it_has_and_leaves_nothing(tmp_path: Path) -> None:
    """On a real Redis and RabbitMQ: a story of each peer, then Ctrl-C in the middle of the next."""
    mark, written = uuid.uuid4().hex, tmp_path / "figures.json"
    arguments = ["--peers", "cobalance-quorum", "rabbitmq-quorum", "--rounds", "9", "--json", str(written)]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "proof.bench", *arguments],
        cwd=Path(proof.__file__).parents[1],
        env={**os.environ, "COBALANCE_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        told = list(_first_stories(process, 2))
        _wait_for_a_member(mark)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "never" in output  # in the table: RabbitMQ alone balances nothing
    assert len(told) == 2
    report = json.loads(written.read_text())
    ours, raw = (it["outcomes"] for it in report["peers"]["played"])
    assert [(it["moves"], it["lost"], it["reordered"]) for it in ours] == [(3, 0, 0), (3, 0, 0), (4, 0, 0)]
    assert not any(it["overlapping"] for it in ours)
    assert all(it["even_s"] is not None and it["minimum"] == it["moves"] for it in ours)
    assert (raw[0]["moves"], raw[0]["even_s"]) == (0, None)
    assert all(it["moves"] == len(it["gaps_ms"]) > 0 for it in raw[1:])
    assert not any(it["lost"] for it in raw)
    assert report["peers"]["left_out"].keys() == {"RabbitMQ's super streams"}
    assert not _members(mark)


def _first_stories(process: subprocess.Popen[str], count: int) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round "):
            yield line
            count -= 1
            if not count:
                return


def _wait_for_a_member(mark: str) -> None:
    while not _members(mark):
        time.sleep(0.02)


def _members(mark: str) -> list[str]:
    """Member processes of a run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if b"proof.bench.peers.members" in command and mark.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


PROGRAM = """\
#!{python}
import os, signal, sys, threading, time
import redis
verb, port, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
if verb == "serve":
    os.execv("{redis}", ["redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", rest[0], "--save", ""])
client = redis.Redis(port=int(port))
if verb == "open":
    client.set(rest[0], rest[1])
elif verb == "load":
    for line in sys.stdin:
        partition, number = line.split()
        client.rpush(rest[0] + "-" + partition, number)
else:
    def tell(kind, partition=-1, number=-1):
        os.write(1, f"{{os.getpid()}} {{kind}} {{partition}} {{number}} {{time.monotonic()}}\\n".encode())
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    keys = [f"{{rest[0]}}-{{number}}" for number in range(int(client.get(rest[0])))]
    tell("started")
    while not stopping:
        popped = client.blpop(keys, 0.1)
        if popped:
            partition, number = popped[0].decode().rpartition("-")[2], int(popped[1])
            tell("begun", partition, number)
            time.sleep(0.002)
            tell("ended", partition, number)
"""


@pytest.mark.thorough
def test_a_program_that_somebody_brings_takes_part(tmp_path: Path) -> None:
    """A real one: lists in a Redis, which any member pops. It shares nothing out, and a kill loses what was popped."""
    program = tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable, redis=find_redis()))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with External("lists", "Lists", str(program), patience_s=1.0) as peer:
        story = play(peer, random.Random(1))
    outcomes = story.outcomes()
    ended = {(it.partition, it.number) for it in story.handled if it.ended is not None}
    assert [it.kind for it in outcomes] == ["joins", "leaves", "killed"]
    assert len(ended) + sum(it.lost for it in outcomes) == len(story.published)
    assert sum(it.lost for it in outcomes) <= 1
    assert not sum(it.duplicates for it in outcomes)
    assert outcomes[0].moves > outcomes[0].minimum  # nobody owns anything
