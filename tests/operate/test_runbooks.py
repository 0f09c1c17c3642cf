"""The runbooks of the README, each after its symptom has been brought about on real servers: their steps, as they stand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
import redis
from tests.cli_process import cobalance
from tests.consumers import SETTINGS, Place, new_topic, place, until
from tests.faults.redis_servers import info, watched

from cobalance import Delivery, GroupAdmin, Topic, operate
from cobalance.dashboard.tuning import revocation_evidence
from cobalance.errors import ServerError
from cobalance.operate.tally import Tally
from cobalance.operate.timings import Timings
from cobalance.servers import OwnRedis
from cobalance.servers.redis import PrivateRedis
from cobalance.threads.worker_threads import in_thread

pytestmark = pytest.mark.anyio

README = Path(operate.__path__[0]) / "README.md"


@pytest.fixture
def here(amqp_url: str, redis_url: str) -> Iterator[Place]:
    """A group on real servers, since commands have connections of their own."""
    with place(amqp_url, redis_url) as it:
        yield it


class Runbook:
    """One symptom's steps, for a group."""

    def __init__(self, symptom: str, here: Place, partition: str = "orders-0") -> None:
        text = README.read_text().partition(f"### {symptom}\n")[2].partition("\n#")[0]
        found = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
        self.steps = [re.findall(r"`([^`]+)`", it.replace("\n   ", " ")) for it in found]
        assert self.steps, symptom
        self._here, self._partition = here, partition
        self.followed: set[tuple[int, str]] = set()

    async def follow(self, number: int, *shown: str, command: int = 0) -> str:
        """Runs a step's command. Its output shows these words, which the step names."""
        return await in_thread(lambda: self.run(number, *shown, command=command))

    def run(self, number: int, *shown: str, command: int = 0) -> str:
        """The same, in this thread."""
        spans = self.steps[number - 1]
        commands = [it for it in spans if it.startswith("cobalance ")]
        self.followed.add((number, commands[command]))
        words = shlex.split(commands[command])[1:]
        given = [{"billing": self._here.group, "orders-0": self._partition, "30s": "3s"}.get(it, it) for it in words]
        urls = {"COBALANCE_REDIS_URL": self._here.redis_url, "COBALANCE_AMQP_URL": self._here.amqp_url}
        found = cobalance(*given, environment=urls)
        assert found.code == 0, found.out + found.err
        for it in shown:
            assert it in spans
            assert it in found.out, found.out
        return found.out

    async def until_said(self, number: int, words: str) -> str:
        """Follows a step until its output has these words."""

        def out() -> str | None:
            found = self.run(number)
            return found if words in found else None

        return str(await until(out, within_s=60))

    def check_followed(self) -> None:
        """No step was left out."""
        commands = {(n, it) for n, spans in enumerate(self.steps, 1) for it in spans if it.startswith("cobalance ")}
        assert commands == self.followed


async def take(_: Delivery) -> None:
    """All is well."""


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, partitions=2) as it:
        yield it


@pytest.mark.thorough
async def test_lag_grows(here: Place, topic: Topic) -> None:
    """One member is too few; a second one mends it."""
    book, is_quick = Runbook("Lag grows", here), anyio.Event()

    async def handle(_: Delivery) -> None:
        with anyio.move_on_after(1):
            await is_quick.wait()

    async with here.member(topic, handle, prefetch=1) as one, AsyncExitStack() as more:
        await one.wait_held(*topic.queue_names)
        for partition in (0, 1):
            await in_thread(partial(here.publish, topic, *range(400), partition=partition))
        row = (await book.follow(1, "LAG", "MAX-LAG")).splitlines()[-1].split()
        assert int(row[3]) > 1.5 * int(row[4])  # not one partition alone
        table = await book.follow(2, "#MEMBERS", "NEEDED", "#PARTITIONS")
        assert table.splitlines()[-1].split()[1:4] == ["1", "2", "2"]
        second = await more.enter_async_context(here.member(topic, handle, prefetch=1))
        await second.wait_held(topic.queue_names[1])
        is_quick.set()
        await until(lambda: book.run(3, "LAG").splitlines()[-1].split()[3] == "0", within_s=60)
    book.check_followed()


async def test_a_partition_is_stuck(here: Place, topic: Topic) -> None:
    """A handler that fails halts it; once the cause is gone it is resumed."""
    name, is_broken = topic.queue_names[0], True
    book = Runbook("A partition is stuck", here, name)

    async def handle(_: Delivery) -> None:
        if is_broken:
            raise ValueError("no such price list")

    async with here.member(topic, handle, retries=0, on_error="halt") as one:
        await one.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        await until(lambda: here.resources()[name].status == "halted")
        await book.follow(1, "has been worked by nobody")
        is_broken = False
        await book.follow(2, "resumed")
        await until(lambda: here.resources()[name].status == "held")
        out = await book.until_said(3, "0 messages are left to do")
        assert "is held by" in out
    book.check_followed()


async def test_a_handler_that_is_busy(here: Place, topic: Topic) -> None:
    """It is the other thing that a stuck partition may be."""
    gate, begun = anyio.Event(), anyio.Event()
    book = Runbook("A partition is stuck", here, topic.queue_names[0])

    async def handle(_: Delivery) -> None:
        begun.set()
        await gate.wait()

    async with here.member(topic, handle) as one:
        await one.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        await begun.wait()
        await book.until_said(1, "in flight, the oldest for")
        gate.set()


async def test_everything_moved(here: Place, topic: Topic) -> None:
    """A process came and went."""
    book = Runbook("Everything moved", here)
    async with here.member(topic, take) as one:
        await one.wait_held(*topic.queue_names)
        async with here.member(topic, take) as two:
            await two.wait_held(topic.queue_names[1])
        await one.wait_held(*topic.queue_names)
        out = await book.follow(1, "The last change was")
        assert " left" in out
        moved = re.search(r"(\d+) partitions? moved or began", out)
        assert moved is not None
        assert int(moved[1]) > 0, out
        await book.follow(2, "joined", "left")
        await book.follow(3, "heartbeats")
    book.check_followed()


async def test_redis_lost_data(amqp_url: str, private_redis: OwnRedis, topic: Topic) -> None:
    """All of it. The member that works brings the group back."""
    with place(amqp_url, private_redis.url) as here:
        book = Runbook("Redis lost data, or failed over", here)
        async with here.member(topic, take) as one:
            await one.wait_held(*topic.queue_names)
            with redis.Redis.from_url(private_redis.url) as client:
                client.flushall()
            await until(lambda: bool(here.journal("recovered")))
            await one.wait_held(*topic.queue_names)
            await book.follow(1, "incarnation", "created", "claimed", "recovered")
            await book.follow(2, "Stable")
            await book.follow(2, command=1)
        book.check_followed()


@pytest.mark.parametrize("is_stale", [True, False])
@pytest.mark.thorough
async def test_redis_failed_over(amqp_url: str, topic: Topic, is_stale: bool) -> None:
    """To a replica that Sentinels have promoted, whether it lacks the last grants or nothing; members keep what they hold."""
    with watched() as sentinels, place(amqp_url, sentinels.url) as here:
        book = Runbook("Redis lost data, or failed over", here)
        (replica,) = sentinels.replicas
        async with here.member(topic, take) as one, AsyncExitStack() as more:
            await one.wait_held(*topic.queue_names)
            if is_stale:
                await until(lambda: has_all_of(replica, sentinels.master))
                replica.pause()
            two = await more.enter_async_context(here.member(topic, take))
            await two.wait_held(topic.queue_names[1])
            if not is_stale:
                await until(lambda: has_all_of(replica, sentinels.master))
            before = {name: row.token for name, row in here.resources().items()}
            sentinels.master.kill()
            replica.resume()
            await until(lambda: has_recovered(here))
            assert sentinels.present_master() is replica
            await book.follow(1, "incarnation", "recovering", "claimed", "recovered")
            await book.follow(2, "Stable")
            await book.follow(2, command=1)
            assert {name: row.token for name, row in here.resources().items()} == before
        book.check_followed()


def has_recovered(here: Place) -> bool:
    """Not while its Redis is away."""
    with suppress(ServerError):
        return bool(here.journal("recovered"))
    return False


def has_all_of(replica: PrivateRedis, master: PrivateRedis) -> bool:
    """Up to what the master has written by now."""
    return bool(info(replica.port)["slave_repl_offset"] >= info(master.port)["master_repl_offset"])


async def test_a_deploy_takes_long(here: Place, topic: Topic) -> None:
    """The process that is replaced is busy with a message."""
    book, gate, begun = Runbook("A deploy takes long", here), anyio.Event(), anyio.Event()

    async def handle(_: Delivery) -> None:
        begun.set()
        await gate.wait()

    async with here.member(topic, handle) as one:
        await one.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        here.publish(topic, 2, partition=1)
        await begun.wait()
        async with here.member(topic, handle) as two:
            await until(lambda: any(it.status == "pending" for it in here.resources().values()))
            out = await book.follow(1, "to finish")
            assert "waits for" in out
            gate.set()
            await two.wait_held(topic.queue_names[1])
            await book.follow(2, "released")
            await book.follow(3, "revocation_timeout_ms")
    book.check_followed()


async def test_a_deploy_that_takes_too_long(here: Place, topic: Topic) -> None:
    """A handler that is cancelled at the deadline: whatever counts handovers that ran out of time counts this one."""
    book, gate, begun = Runbook("A deploy takes long", here), anyio.Event(), anyio.Event()
    with GroupAdmin(here.redis_url, amqp_url=here.amqp_url) as admin:
        settings = admin.configure(here.group, revocation_timeout_ms=SETTINGS.session_timeout_ms)
        tally, timings = Tally(admin.journal(here.group)), Timings()

        async def handle(_: Delivery) -> None:
            begun.set()
            await gate.wait()

        async with here.member(topic, handle) as one:
            await one.wait_held(*topic.queue_names)
            for partition in (0, 1):
                here.publish(topic, 1, partition=partition)
            await begun.wait()
            async with here.member(topic, take) as two:
                await two.wait_held(topic.queue_names[1])
                await book.follow(2, "abandoned", "deadline")
                found = {it.check: it for it in await in_thread(partial(admin.examine, here.group))}
                gate.set()
            await in_thread(tally.read)
            for entry in admin.journal(here.group).entries():
                timings.take(entry)
    assert tally.handovers["forced"] == 1
    assert found["handovers"].level == "warning"
    assert timings.drains
    evidence = revocation_evidence(settings, timings)
    assert "1 resource was not finished in time" in " ".join(evidence.sentences)
    assert evidence.advice is not None
