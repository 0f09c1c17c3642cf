"""Explanations of what happened to a partition, in virtual time; and one of a real group, by the command."""

from __future__ import annotations

import json
import re
from functools import partial

import anyio.to_thread
import attrs
import pytest
from tests.cli_process import cobalance
from tests.consumers import Place, until
from tests.coordinator.backends import MemoryBackend
from tests.coordinator.driver import SETTINGS, Group, Member

from cobalance import Topic
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.requests import Header, Request, Suspect, Vouch
from cobalance.description import Backlog, GroupDescription, ServerDescription
from cobalance.errors import UsageError
from cobalance.journal import Journal, JournalEntry, with_gaps
from cobalance.operate.explanation import Explanation
from cobalance.operate.moves import Account
from cobalance.operate.wording import duration


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend("luajit21")


@pytest.fixture
def group(backend: MemoryBackend) -> Group:
    return Group(backend)


def explained(group: Group, name: str | None = "r") -> str:
    """The sentences, as one text without member ids."""
    assert isinstance(group.backend, MemoryBackend)
    journal = Journal(MemoryTransport(group.backend.store), "g")
    account = Account.read(with_gaps(journal.entries()), name)
    text = " ".join(Explanation(GroupDescription.read(group.coordinator), account).sentences())
    return re.sub(r" \(\w\)", "", text)


def member(group: Group, name: str, **options: object) -> Member:
    return group.join(name, label=f"web-{name}/1", **options)


def age(group: Group, name: str) -> int | None:
    """How long that resource has been as it is."""
    return next(it.age_ms for it in GroupDescription.read(group.coordinator).resources if it.name == name)


def held(group: Group) -> tuple[Member, Member]:
    """A holds r, and b has joined, for which the other one is asked back."""
    a = member(group, "a")
    group.set_resources(a, ("r", "s"))
    group.drain()
    a.busy("s")
    group.backend.now_ms += 500
    return a, member(group, "b")


def test_a_planned_handover(group: Group) -> None:
    """While it drains it says what it waits for, and that nobody is chosen yet; then who released it, and why."""
    a, b = held(group)
    a.hear()
    group.backend.now_ms += 1_000
    assert explained(group) == (
        "r is being handed over by web-a/1, whose drain has taken 1.0 s. "
        "It was given to web-a/1 1.5 s ago, after resources were added to the list. "
        "It is asked back, to even out the shares after web-b/1 joined. "
        "It waits until that member has finished and released it; in 4.0 s it is moved by force. "
        "Then whoever has the most room gets it: that is decided at that moment, not before."
    )
    a.release("r")
    b.hear()
    token = b.holds["r"].token
    assert explained(group) == (
        f"r is held by web-b/1 under token {token}, for 0 ms. "
        "It moved to web-b/1 0 ms ago: web-a/1 finished and released it after 1.0 s, to even out the shares after web-b/1 joined."
    )


def test_a_holder_that_does_not_finish(group: Group) -> None:
    """It is moved by force."""
    a, _ = held(group)
    a.hear()
    group.run(SETTINGS.revocation_timeout_ms + 1_000)
    assert "web-a/1 had not finished by the revocation timeout, to even out the shares" in explained(group)
    assert "so it was moved by force" in explained(group)


def test_a_crash(group: Group) -> None:
    """The next holder has it since its holder was silent."""
    a, b = held(group)
    group.drain()
    b.silent = True
    group.run(2 * SETTINGS.session_timeout_ms, a)
    assert "It moved to web-a/1" in explained(group)
    assert "web-b/1 was silent for longer than the session timeout." in explained(group)


def test_a_killed_process_was_seen_to_be_dead(group: Group) -> None:
    """Not silent: its session was over long before its timeout."""
    held(group)
    group.drain()
    channel = group.coordinator.channel("b")
    group.backend.watch(channel)
    group.execute(Request(Header("b", 0), Vouch("amqp")))
    group.backend.unwatch(channel)
    look = Suspect(member="b", connection="amqp")
    first = group.coordinator.suspect(look)
    last = attrs.evolve(look, seen=first.seen, last_look_ms=first.now_ms, within_ms=1)
    assert group.coordinator.suspect(last).verdict == "ENDED"
    assert "web-b/1 was seen to be dead." in explained(group)
    assert "the last change was" in explained(group, None).lower()
    assert "web-b/1 was found dead. Since then, 1 partition moved or began." in explained(group, None)


def test_a_leave(group: Group) -> None:
    """Which it does for all that it holds."""
    _, b = held(group)
    group.drain()
    group.until_left(b)
    group.drain()
    assert "web-b/1 finished and released it" in explained(group)
    assert "because it was leaving" in explained(group)


def test_one_change_with_many_entries() -> None:
    """A member begins to leave and has left, whatever came between; and changes that are gathered. Moves count from the first."""
    account = Account()
    for seq, (at_ms, kind, who) in enumerate(
        [
            (0, "joined", "a"),
            (9, "granted", "a"),
            (9_000, "leaving", "a"),
            (9_001, "granted", "b"),
            (9_900, "joined", "c"),
            (9_901, "granted", "c"),
            (12_000, "left", "a"),
            (12_400, "joined", "d"),
            (12_401, "granted", "d"),
        ]
    ):
        account.take(JournalEntry(id=f"{seq}-0", seq=seq, kind=kind, at_ms=at_ms, member=who, resource=None))
        gathered = account.last_changes(500)
        assert (len(gathered), sum(it.moves for it in gathered)) == [
            *((1, 0), (1, 1), (1, 0), (1, 1), (1, 0), (1, 1)),
            *((3, 2), (4, 2), (4, 3)),
        ][seq]
    assert [it.entry.member for it in account.last_changes(0)] == ["d"]


def test_a_handler_that_fails(group: Group) -> None:
    """Given up, with the reason in words; in the end it is paused, and says until when."""
    a, b = held(group)
    group.drain()
    b.release("r", reason="failed")
    group.drain()
    assert "web-b/1 gave it up, since its handler failed." in explained(group)
    a.release("r", reason="failed:ValueError")
    group.drain()
    assert "That ended 0 ms ago: web-a/1 gave it up, since its handler failed (ValueError)." in explained(group)
    assert "It is tried again in " in explained(group)
    assert "cobalance group resume g r." in explained(group)
    b.release("s", reason="halted:OffsetUnknown") if "s" in b.holds else a.release("s", reason="halted:OffsetUnknown")
    assert "s has been worked by nobody for 0 ms: OffsetUnknown." in explained(group, "s")
    assert "It waits for an operator, once the cause is removed: cobalance group resume g s." in explained(group, "s")
    assert "s is worked by nobody: OffsetUnknown" in explained(group, None)


def test_a_pause_that_is_over_is_no_operator(group: Group) -> None:
    """It is tried again by itself; or an operator does not wait for that."""
    a, b = held(group)
    group.drain()
    b.release("r", reason="failed")
    group.drain()
    a.release("r", reason="failed")
    group.run(2 * SETTINGS.session_timeout_ms)
    group.drain()
    assert "r was tried again after a pause. Since then, 1 partition" in explained(group, None)
    assert "ago, after it was tried again after a pause; before that, web-a/1 gave it up," in explained(group)
    next(it for it in (a, b) if "r" in it.holds).release("r", reason="failed")
    assert group.coordinator.resume("r") == {"r": "OK"}
    group.drain()
    assert "r was resumed. Since then, 1 partition" in explained(group, None)
    assert "ago, after it was resumed; before that, web-" in explained(group)


def test_nobody_there(group: Group) -> None:
    """No member; none that could; none that names it."""
    a = member(group, "a")
    group.set_resources(a, ("r",))
    group.drain()
    group.until_left(a)
    assert "r is held by nobody, for 0 ms." in explained(group)
    assert "It waits for a member: the group has none." in explained(group)
    member(group, "b", capacity=0)
    assert "all present are standbys" in explained(group)
    assert "1 partition held by nobody: r." in explained(group, None)


def test_a_place_that_is_kept(group: Group) -> None:
    """For an instance id, and for how long; then why others have it."""
    a = member(group, "a", instance_id="pod-0")
    group.set_resources(a, ("r",))
    group.drain()
    group.run(2_000, a, member(group, "b"))
    a.leave(remain=True)
    group.backend.now_ms += 1_000
    assert "r is kept for pod-0 on web-a/1, which has gone, for 1.0 s by now." in explained(group)
    assert "It waits for that instance id to come back, for 19.0 s more" in explained(group)
    assert "pod-0 on web-a/1: gone; what they held is kept" in explained(group, None)
    group.run(SETTINGS.rejoin_grace_ms + 1_000)
    assert "did not come back for it within the rejoin grace." in explained(group)


def test_the_place_of_one_that_is_silent(group: Group) -> None:
    """It did not leave; once it comes back, that is what is said, and not that it left."""
    a = member(group, "a", instance_id="pod-0")
    group.set_resources(a, ("r",))
    group.drain()
    b = member(group, "b")
    a.silent = True
    group.run(SETTINGS.session_timeout_ms + 1_000, b)
    assert "kept for pod-0 on web-a/1, which was silent for longer than the session timeout, for" in explained(group)
    was_silent = "pod-0 on web-a/1 was silent for longer than the session timeout; its place is kept. Since"
    assert was_silent in explained(group, None)
    heir = group.join("c", instance_id="pod-0", label="web-c/1")
    group.run(1_000, b, heir)
    assert "web-a/1 came back under its instance id. Since" in explained(group, None)
    assert "It moved to pod-0 on web-c/1" in explained(group)


def test_since_when_a_place_is_kept(group: Group) -> None:
    """From when its holder went, not from when that was granted; unknown once that cannot be told from the grace's end."""
    a = member(group, "a", instance_id="pod-0")
    b = member(group, "b")
    group.set_resources(a, ("r", "s"))
    group.drain()
    group.run(10_000, a, b)
    a.leave(remain=True)
    kept = next(it for it in group.coordinator.resources() if it.owner == "a").name
    group.run(1_000, b)
    assert age(group, kept) == 1_000
    heir = member(group, "c", instance_id="pod-0")  # has not inherited yet
    assert age(group, kept) in {None, 0}
    heir.heartbeat()
    assert age(group, kept) == 0


def test_a_silence_that_puts_the_end_of_a_grace_off(group: Group) -> None:
    """The end says no more when it began; the journal does."""
    a = member(group, "a", instance_id="pod-0")
    group.set_resources(a, ("r",))
    group.drain()
    a.leave(remain=True)
    group.backend.now_ms += SETTINGS.rejoin_grace_ms + 1_000
    assert (age(group, "r"), "which has gone, for 21.0 s by now." in explained(group)) == (None, True)


@pytest.mark.parametrize("grace_ms", [5_000, 60_000])
def test_a_grace_that_was_set_since(group: Group, grace_ms: int) -> None:
    """Nothing says then since when it runs, but for the journal."""
    a = member(group, "a", instance_id="pod-0")
    group.set_resources(a, ("r",))
    group.drain()
    b = member(group, "b")
    a.leave(remain=True)
    group.run(1_000, b)
    group.poke("grace_ms", grace_ms)
    assert age(group, "r") is None
    found = GroupDescription.read(group.coordinator)
    sentences = Explanation(found, Account("r")).sentences()
    assert "r is kept for pod-0 on web-a/1 (a), which has gone." in sentences
    assert "which has gone, for 1.0 s by now." in explained(group)


def test_the_first_start_of_a_group(backend: MemoryBackend) -> None:
    """Nobody can have held anything: a new group waits all the same, since an empty Redis may have lost one."""
    group = Group(backend, create=False)
    a = member(group, "a")
    group.run(SETTINGS.session_timeout_ms)
    assert "The last change was 0 ms ago: the group was created, and nobody held anything. Since" in explained(
        group, None
    )
    group.set_resources(a, ("r",), version=1)
    a.hear()
    assert "after resources were added to the list" in explained(group)
    group.lose_data()
    a.heartbeat()
    a.rejoin("a2")
    group.run(SETTINGS.session_timeout_ms + 1_000)
    assert "the group had found out who held what" in explained(group, None)


def test_a_recovery(backend: MemoryBackend) -> None:
    """Members of a new group are asked what they hold, for a session timeout."""
    group = Group(backend, create=False)
    a = member(group, "a")
    group.set_resources(a, ("r",))
    assert "It waits for members to say what they hold" in explained(group)
    assert "until then nothing moves." in explained(group, None)


def test_a_loss_is_called_one(backend: MemoryBackend) -> None:
    """The member that joins first creates the group, as far as the coordinator can know, until it claims something."""
    group = Group(backend, create=False)
    a = member(group, "a")
    group.set_resources(a, ("r",), version=1)
    group.run(SETTINGS.session_timeout_ms)
    group.lose_data()
    a.rejoin("b", label="web-a/1")
    assert "web-a/1 has it from before Redis lost data of the group" in explained(group)


@pytest.mark.thorough
def test_what_the_journal_does_not_reach_back_to(backend: MemoryBackend) -> None:
    """It says so, and guesses nothing."""
    group = Group(backend, attrs.evolve(SETTINGS, journal_length=100))
    a = member(group, "a")
    group.set_resources(a, ("r", *(f"s{number}" for number in range(20))))
    group.drain()
    for _ in range(30):
        for name in [name for name in a.holds if name != "r"]:
            a.release(name)
        group.drain()
    assert "The journal does not say how it came there: it does not reach back so far." in explained(group)
    assert re.search(r"\d+ entries of the journal are gone", explained(group))


def test_what_is_left_to_do_and_how_that_goes(group: Group) -> None:
    """With the verdict of a watch, if there is one."""
    held(group)
    found = GroupDescription.read(group.coordinator)
    backlog = Backlog(lag=5, in_flight=3, oldest_ms=90_000)
    resources = tuple(attrs.evolve(it, backlog=backlog, verdict="STALL") for it in found.resources)
    found = attrs.evolve(found, resources=resources)
    sentences = Explanation(found, Account("r")).sentences()
    assert "5 messages are left to do, 3 of them in flight, the oldest for 90.0 s." in sentences
    assert sentences[-2:] == ["Its handler, or one before it, has not returned.", "STALL: Nothing of that gets done."]
    plain = attrs.evolve(found, resources=tuple(attrs.evolve(it, backlog=Backlog()) for it in resources))
    assert Explanation(plain, Account("r")).sentences()[-1] == "STALL: It is not worked."
    stopped = attrs.evolve(plain, resources=tuple(attrs.evolve(it, verdict="STOP") for it in plain.resources))
    assert Explanation(stopped, Account("r")).sentences()[-1] == "STOP: Nobody is there to work it."
    assert Explanation(found, Account()).sentences()[-2:] == [
        "STALL: r, s.",
        "r has had a message in flight for 90.0 s, at web-a/1 (a): its handler, or one before it, has not returned.",
    ]


def test_why_nothing_is_known_of_what_is_left_to_do(group: Group) -> None:
    """A server that does not answer is said for the group, which shows dashes else."""
    held(group)
    server = ServerDescription(kind="RabbitMQ", place="broker:5672", problem="It cannot be reached.")
    found = attrs.evolve(GroupDescription.read(group.coordinator), servers=(server,))
    assert "RabbitMQ at broker:5672: It cannot be reached." in Explanation(found, Account()).sentences()


def test_what_is_not_there(group: Group) -> None:
    """It names what there is."""
    held(group)
    with pytest.raises(UsageError, match="group 'g' has no 'x': it has r, s"):
        explained(group, "x")


@pytest.mark.anyio
async def test_the_command_explains_a_real_group(topic: Topic, redis_url: str, amqp_url: str) -> None:
    """With the messages that are left; a partition that is not there is wrong usage."""
    urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}
    here = Place(amqp_url, redis_url)
    first = topic.queue_names[0]
    async with here.member(topic, lambda _: None) as one, here.member(topic, lambda _: None) as two:
        await until(lambda: len(one.tenures) == len(two.tenures) == 1)
        run = anyio.to_thread.run_sync
        explain = partial(cobalance, "group", "explain", here.group, first, environment=urls)
        with anyio.fail_after(60):  # a member on a busy machine may not tell in time what it has in flight
            while "0 messages are left to do." not in (outcome := await run(explain)).out:
                assert "LAG of 1 queue are unknown" in outcome.err
        assert (outcome.code, f"{first} is held by " in outcome.out) == (0, True)
        found = await run(lambda: cobalance("group", "explain", here.group, "--json", environment=urls))
        assert json.loads(found.out)["sentences"][0] == f"Group {here.group} is Stable: 2 members, 2 partitions."
        missing = await run(lambda: cobalance("group", "explain", here.group, "nowhere", environment=urls))
        assert (missing.code, "has no 'nowhere'" in missing.err) == (2, True)
    here.close()


def test_nothing_was_in_the_future() -> None:
    """An entry may be a moment younger than the snapshot beside it."""
    assert duration(-1) == "0 ms"
