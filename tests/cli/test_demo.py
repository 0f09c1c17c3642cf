"""The demo plays its story on real servers, and its verdict finds every kind of failure."""

import itertools
import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import attrs
import pytest
from tests.cli_process import cobalance_process, running

from cobalance.coordinator.open import open_transport
from cobalance.demo.evidence import Evidence, ObservedChange
from cobalance.demo.verdict import judge, minimum_moves
from cobalance.journal import JournalEntry
from cobalance.lab.diary import HandlerRun
from cobalance.lab.message import NumberedMessage

SMALL = ("--messages", "1200", "--partitions", "7")


# -- the minimum -------------------------------------------------------------------------------------------------------


def fewest_by_trying(owners: Mapping[str, str], members: list[str]) -> int:
    """The fewest moves to any even assignment, by trying each of them."""
    resources = sorted(owners)
    even = (
        assigned
        for assigned in itertools.product(members, repeat=len(resources))
        if max(loads := [assigned.count(member) for member in members]) - min(loads) <= 1
    )
    return min(sum(owners[r] != member for r, member in zip(resources, assigned, strict=True)) for assigned in even)


@pytest.mark.parametrize("members", [["a"], ["a", "b"], ["a", "b", "c"], ["b", "c", "d"], ["c", "d"]])
@pytest.mark.parametrize("resources", [1, 2, 3, 5])
def test_the_minimum_is_the_fewest_moves_of_any_even_assignment(resources: int, members: list[str]) -> None:
    """Whatever the previous owners, even or not: the formula agrees with trying everything."""
    names = [f"r-{n}" for n in range(resources)]
    for former in itertools.product("abc", repeat=resources):
        owners = dict(zip(names, former, strict=True))
        assert minimum_moves(owners, members) == fewest_by_trying(owners, members), owners


def test_nobody_there_means_no_move() -> None:
    """Resources without members stay without an owner."""
    assert minimum_moves({"r-0": "a"}, []) == 0


# -- the verdict -------------------------------------------------------------------------------------------------------
#
# A made-up run: A and B hold two partitions each; C joins and gets p-1 from A and, evenly within one, nothing from B. Then A is
# killed, and its p-0 goes to C.


class Book:
    def __init__(self, *entries: JournalEntry) -> None:
        self.entries = list(entries)

    def write(self, kind: str, **fields: Any) -> int:
        """Adds one entry and returns its sequence number."""
        seq = len(self.entries) + 1
        self.entries.append(JournalEntry(id=f"{seq}-0", seq=seq, kind=kind, at_ms=1_000 + seq, **fields))
        return seq


def message(key_number: str, where: str, at: int, *, again: bool = False) -> HandlerRun:
    """`key:number`, processed by `partition:token:member` from `at` to `at` + 5 ms."""
    key, number = key_number.split(":")
    partition, token, member = where.split(":")
    begun_ns = at * 1_000_000
    return HandlerRun(
        process=member,
        message=NumberedMessage(key, int(number)),
        partition=partition,
        token=int(token),
        member=member,
        redelivered=again,
        begun_ns=begun_ns,
        ended_ns=begun_ns + 5_000_000,
    )


def published(**counts: int) -> frozenset[NumberedMessage]:
    """So many messages of each key."""
    return frozenset(NumberedMessage(key, n) for key, count in counts.items() for n in range(1, count + 1))


@pytest.fixture
def evidence() -> Evidence:
    """A good run, with one message that was unacknowledged at the kill and so was redelivered."""
    book = Book()
    for member in "AB":
        book.write("joined", member=member)
    for token, (resource, member) in enumerate([("p-0", "A"), ("p-1", "A"), ("p-2", "B"), ("p-3", "B")], 10):
        book.write("granted", resource=resource, member=member, token=token)
    quiet = len(book.entries)
    book.write("joined", member="C")
    book.write("revoking", resource="p-1", member="A", token=11, handover_id=11)
    book.write("released", resource="p-1", member="A", token=11, handover_id=11)
    joined = book.write("granted", resource="p-1", member="C", token=20, handover_id=11)
    book.write("expired_member", member="A", reason="expired")
    book.write("expired", resource="p-0", member="A", token=10, reason="expired")
    crashed = book.write("granted", resource="p-0", member="C", token=30, handover_id=10)
    runs = (
        message("k0:1", "p-0:10:A", 0),
        message("k0:2", "p-0:10:A", 10),
        message("k0:2", "p-0:30:C", 3_000, again=True),
        message("k0:3", "p-0:30:C", 3_010),
        message("k1:1", "p-1:11:A", 0),
        message("k1:2", "p-1:20:C", 17),
        message("k2:1", "p-2:12:B", 0),
        message("k3:1", "p-3:13:B", 0),
    )
    return Evidence(
        mode="cooperative",
        partitions=("p-0", "p-1", "p-2", "p-3"),
        published=published(k0=3, k1=2, k2=1, k3=1),
        runs=runs,
        entries=tuple(book.entries),
        changes=(
            ObservedChange(kind="join", name="C joins", since_seq=quiet, at_ms=1_000, until_seq=joined),
            ObservedChange(kind="crash", name="A is killed", since_seq=joined, at_ms=1_005, until_seq=crashed),
        ),
        killed="A",
    )


def with_runs(evidence: Evidence, *changed: HandlerRun, without: int | None = None) -> Evidence:
    """With more runs, or with one fewer."""
    kept = tuple(run for n, run in enumerate(evidence.runs) if n != without)
    return attrs.evolve(evidence, runs=kept + changed)


def test_a_good_run_is_found_good(evidence: Evidence) -> None:
    """Every figure matches the story."""
    verdict = judge(evidence)

    assert verdict.failures == ()
    assert (verdict.published, verdict.processed, verdict.lost) == (7, 7, 0)
    assert (verdict.duplicates_from_crash, verdict.duplicates_otherwise) == (1, 0)
    assert [(it.moves, it.minimum, it.members_before, it.members_after) for it in verdict.changes] == [
        (1, 1, 2, 3),
        (1, 1, 3, 2),
    ]
    assert verdict.changes[0].converged_ms == 3
    assert verdict.changes[1].converged_ms == 1_000 + 13 - 1_005
    assert verdict.never_interrupted == 2
    assert verdict.gaps_planned.milliseconds == (12.0,)
    assert verdict.gaps_crash.milliseconds == (2_985.0,)


def failures(evidence: Evidence) -> str:
    """The failures in the verdict."""
    found = judge(evidence).failures
    assert len(found) == 1, found
    return found[0]


def test_a_lost_message_is_found(evidence: Evidence) -> None:
    """One that was published and confirmed, and never processed."""
    assert failures(with_runs(evidence, without=6)) == "1 messages were lost"


def test_a_reordered_message_is_found(evidence: Evidence) -> None:
    """On a planned handover: the new owner's message comes before the old one's."""
    late = message("k1:1", "p-1:20:C", 30)

    assert failures(with_runs(evidence, late, without=4)) == "1 messages were reordered without a crash to blame"


def test_a_message_reordered_by_the_crash_is_counted_apart(evidence: Evidence) -> None:
    """RabbitMQ requeues what a dead consumer had, which no planned handover needs."""
    skipped = attrs.evolve(evidence, published=evidence.published | published(k0=4))
    verdict = judge(with_runs(skipped, message("k0:4", "p-0:30:C", 3_005), without=None))

    assert (verdict.reordered_planned, verdict.reordered_total, verdict.failures) == (0, 1, ())


@pytest.mark.parametrize(
    "again",
    [
        message("k2:1", "p-2:12:B", 50, again=True),  # within one tenure
        message("k1:1", "p-1:20:C", 22, again=True),  # over a planned handover, from the member that was killed later
        message("k0:1", "p-0:30:C", 3_005),  # published twice, since it is not marked as redelivered
    ],
    ids=["same owner", "planned handover", "not redelivered"],
)
def test_a_duplicate_without_the_kill_is_found(evidence: Evidence, again: HandlerRun) -> None:
    """Only what the killed member had in hand when it was killed may be redelivered."""
    assert failures(with_runs(evidence, again)) == "1 duplicates do not come from the kill"


def test_a_duplicate_is_not_excused_when_nobody_was_killed(evidence: Evidence) -> None:
    """An expiry by mistake looks the same in the journal."""
    assert "duplicates" in failures(attrs.evolve(evidence, killed=None))


def test_two_owners_at_a_time_are_found(evidence: Evidence) -> None:
    """The new owner begins while the old one is still processing its last message."""
    early = attrs.evolve(evidence.runs[5], begun_ns=3_000_000)

    assert failures(with_runs(evidence, early, without=5)) == "1 messages were begun before the former owner had ended"


def test_two_messages_of_a_key_at_a_time_are_found(evidence: Evidence) -> None:
    """Handlers of one partition may run side by side, but not with one key."""
    more = attrs.evolve(evidence, published=evidence.published | published(k2=2))
    found = failures(with_runs(more, message("k2:2", "p-2:12:B", 3)))
    assert found == "1 messages were begun before the one before them with their key had ended"


def test_a_message_that_was_not_acknowledged_is_found(evidence: Evidence) -> None:
    """It would be a duplicate for the next consumer."""
    assert "would come again" in failures(attrs.evolve(evidence, left_in_queues=1))


def test_a_message_that_nobody_published_is_found(evidence: Evidence) -> None:
    """Counters that were never used."""
    assert "nobody published" in failures(with_runs(evidence, message("k9:1", "p-3:13:B", 90)))


@pytest.fixture
def detour(evidence: Evidence) -> Evidence:
    """In the second change, p-2 needlessly goes from B to C and back."""
    book = Book(*evidence.entries)
    for owner, token, heir, successor in (("B", 12, "C", 40), ("C", 40, "B", 50)):
        book.write("revoking", resource="p-2", member=owner, token=token)
        book.write("released", resource="p-2", member=owner, token=token)
        book.write("granted", resource="p-2", member=heir, token=successor)
    changes = (evidence.changes[0], attrs.evolve(evidence.changes[1], until_seq=len(book.entries)))
    return attrs.evolve(evidence, entries=tuple(book.entries), changes=changes)


def test_a_needless_move_is_found(detour: Evidence) -> None:
    """Even if the result is even."""
    assert failures(detour) == "A is killed: 3 moves where 1 suffices"


def test_a_needless_pause_is_found(evidence: Evidence) -> None:
    """p-3 is asked back and then kept: it did not move, but it was interrupted."""
    book = Book(*evidence.entries)
    book.write("revoking", resource="p-3", member="B", token=13)
    book.write("cancelled", resource="p-3", member="B", token=13)
    changes = (evidence.changes[0], attrs.evolve(evidence.changes[1], until_seq=len(book.entries)))

    paused = attrs.evolve(evidence, entries=tuple(book.entries), changes=changes)
    assert failures(paused) == "A is killed: 2 partitions were paused where 1 had to move"


def test_needless_moves_are_what_eager_mode_is(detour: Evidence) -> None:
    """There they are figures, not failures."""
    verdict = judge(attrs.evolve(detour, mode="eager"))

    assert (verdict.failures, verdict.moves, verdict.minimum) == ((), 4, 2)


def test_a_group_left_uneven_is_found(evidence: Evidence) -> None:
    """The last grant is missing: a partition without an owner."""
    entries = evidence.entries[:-1]

    assert (
        "A is killed: the group did not become even and quiet"
        in judge(attrs.evolve(evidence, entries=entries)).failures
    )


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def urls(redis_admin_url: str, amqp_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment with the servers and a folder for temporary files. No demo leaves a group or a folder behind;
    deleting a group takes more permissions than members have.
    """
    transport = open_transport(redis_admin_url)
    before = transport.list_groups()
    yield {"COBALANCE_REDIS_URL": redis_admin_url, "COBALANCE_AMQP_URL": amqp_url, "TMPDIR": str(tmp_path)}
    after = transport.list_groups()
    transport.close()
    assert [name for name in after if name.startswith("demo-") and name not in before] == []
    assert list(tmp_path.glob("cobalance-demo-*")) == []


def play(urls: dict[str, str], tmp_path: Path, *options: str) -> dict[str, Any]:
    """Plays a small demo and returns its verdict, which must be good."""
    file = tmp_path / "verdict.json"
    outcome = cobalance_process("demo", *SMALL, "--json", str(file), *options, environment=urls)
    verdict: dict[str, Any] = json.loads(file.read_text())
    assert (outcome.code, outcome.err, verdict["failures"]) == (0, "", []), outcome.out
    return verdict


@pytest.mark.parametrize("queue_type", ["classic", pytest.param("quorum", marks=pytest.mark.thorough)])
def test_the_demo_holds_its_promises(urls: dict[str, str], tmp_path: Path, queue_type: str) -> None:
    """Nothing lost or reordered, the fewest moves, duplicates from the kill alone."""
    verdict = play(urls, tmp_path, "--type", queue_type)

    assert verdict["ok"] is True
    assert verdict["published"] == verdict["processed"] >= 1_200
    assert (verdict["lost"], verdict["reordered"]["planned_handovers"], verdict["duplicates"]["other"]) == (0, 0, 0)
    assert verdict["moves"]["actual"] == verdict["moves"]["minimum"] > 0
    assert [change["kind"] for change in verdict["changes"]] == ["join", "join", "leave", "crash", "join"]
    assert [change["members"] for change in verdict["changes"]] == [[3, 4], [4, 5], [5, 4], [4, 3], [3, 4]]
    for gaps in verdict["handover_gap_ms"].values():
        assert gaps["count"] > 0 < gaps["p50"] <= gaps["p99"]


@pytest.mark.thorough
def test_the_eager_baseline_stops_everything(urls: dict[str, str], tmp_path: Path) -> None:
    """The same story: safe as well, but every change pauses every partition."""
    verdict = play(urls, tmp_path, "--mode", "eager")

    assert (verdict["mode"], verdict["ok"], verdict["never_interrupted"]) == ("eager", True, 0)
    assert {change["uninterrupted"] for change in verdict["changes"]} == {0}
    assert verdict["moves"]["actual"] > verdict["moves"]["minimum"]


@pytest.mark.thorough
def test_the_story_is_shown_in_a_browser_until_it_is_interrupted(urls: dict[str, str], tmp_path: Path) -> None:
    """While it happens, and afterwards: the page has every change, and the end is the demo's own."""
    with running("demo", *SMALL, "--dashboard", folder=tmp_path, environment=urls) as demo:
        demo.wait_for("Dashboard: ")
        (address,) = (line.split()[1] for line in demo.out if line.startswith("Dashboard: "))
        with urlopen(address) as page:  # noqa: S310 -- of this test's own process
            assert b'data-page="handovers"' in page.read()
        demo.wait_for("until Ctrl-C")
        with urlopen(address.replace("/groups/", "/api/v1/groups/")) as answer:  # noqa: S310
            told = json.load(answer)
        outcome = demo.end(signal.SIGINT)
    assert (outcome.code, outcome.err) == (0, ""), outcome.out
    assert "OK as promised" in outcome.out
    assert len({it["id"] for it in told["owners"]}) == 6


def processes_of(folder: Path) -> list[int]:
    """The live processes of a demo with these temporary files."""
    found = []
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"TMPDIR={folder}".encode() in environment and b"cobalance.lab.member" in command:
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.thorough
def test_an_interrupted_demo_leaves_nothing_behind(urls: dict[str, str], tmp_path: Path, number: int) -> None:
    """No process, no topic, no group, no file; one line on stderr."""
    with running("demo", folder=tmp_path, environment=urls) as demo:
        demo.wait_for("D joins")
        outcome = demo.end(number)

    assert (outcome.code, outcome.err) == (130, "error: interrupted\n")
    assert processes_of(tmp_path) == []
