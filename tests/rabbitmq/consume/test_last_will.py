"""Last wills on a real RabbitMQ: who gets them, and when there are none."""

from __future__ import annotations

import logging
import queue
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
from pika.adapters.select_connection import IOLoop
from tests.consumers import channel, until
from tests.faults.proxy import FaultProxy
from tests.names import unique
from tests.rabbitmq.topics.test_refused_growths import new_vhost
from tests.rabbitmq.wire.test_shortages import NO_FILE, NO_THREAD, Shortage
from tests.rabbitmq_user import new_user

from cobalance.coordinator.keys import scope
from cobalance.errors import ChannelLost
from cobalance.rabbitmq.consume import last_will
from cobalance.rabbitmq.consume.last_will import ENOUGH_CHANNELS, LastWill, Will, wills_queue
from cobalance.rabbitmq.consume.process_identity import own_process
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.lock_queue import LockQueue, lock_name
from cobalance.servers import OwnRabbitMQ
from cobalance.threads.log_lines import ServiceThread

PATIENCE_S = 60.0

pytestmark = pytest.mark.anyio


class Process:
    """A connection with a last will, and what it hears of others."""

    def __init__(self, url: str, wills: Queue) -> None:
        self.heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.connection = BrokerConnection(url, unique("wills"))
        self.connection.connect()
        self.will = LastWill(wills, self.connection, url, self._hear)

    def _hear(self, will: Will, done: Callable[[], object]) -> None:
        assert will.process == own_process()
        self.heard.put(will.member)
        done()

    def die(self) -> None:
        """Its connection ends without a word."""
        loop = self.connection._loop
        assert loop is not None
        self.connection.submit(loop.stop)


class Village:
    """Processes of one group."""

    def __init__(self, url: str, stack: ExitStack, log: pytest.LogCaptureFixture) -> None:
        self.url, self._stack, self._log = url, stack, log
        self.wills = wills_queue(scope(unique("group")))

    def process(self, options: str = "") -> Process:
        it = Process(self.url + options, self.wills)
        self._stack.callback(it.connection.close)
        return it

    async def keep(self, it: Process, member: str) -> None:
        """Returns when RabbitMQ has this will."""
        it.will.keep(member, "amqp")
        await self.wait_kept(member)

    async def wait_kept(self, member: str, times: int = 1) -> None:
        """Returns when RabbitMQ has had it so often."""
        await until(lambda: self._log.text.count(f"the last will of member {member}\n") == times)

    def consumers(self) -> int:
        """How many receive the wills of others."""
        with connected(self.url) as admin:
            state = admin.state(self.wills.name)
            return 0 if state is None else state.consumers


@pytest.fixture
def village(amqp_url: str, caplog: pytest.LogCaptureFixture) -> Iterator[Village]:
    caplog.set_level(logging.DEBUG, "cobalance.rabbitmq")
    with ExitStack() as stack:
        yield Village(amqp_url, stack, caplog)


async def test_the_will_of_a_dead_process_is_heard(village: Village) -> None:
    """By one of the others."""
    a, b = village.process(), village.process()
    await village.keep(a, "a.1")
    await village.keep(b, "b.1")
    a.die()
    assert b.heard.get(timeout=PATIENCE_S) == "a.1"


async def test_a_new_will_takes_the_place_of_the_one_before(village: Village) -> None:
    """A process that has joined again is another member."""
    a, b = village.process(), village.process()
    for member in ("a.1", "a.2", "a.3"):
        await village.keep(a, member)
    await village.keep(b, "b.1")
    a.die()
    assert b.heard.get(timeout=PATIENCE_S) == "a.3"
    await village.keep(village.process(), "c.1")
    assert b.heard.empty()


@pytest.mark.parametrize("body", [b"", b" ", b"\xff", b"a", b"b.1 amqp", b"b.1 amqp its process"])
async def test_what_is_no_will_of_this_process_costs_it_nothing(village: Village, body: bytes) -> None:
    """Anything may publish to any queue. It neither ends the connection nor takes the place of the will."""
    a, b = village.process(), village.process()
    await village.keep(a, "a.1")
    await village.keep(b, "b.1")
    with channel(village.url) as it:
        it.basic_publish("", a.will._queue, body, mandatory=True)
    await until(lambda: "is no will" in village._log.text)
    assert a.connection.is_open
    a.die()
    assert b.heard.get(timeout=PATIENCE_S) == "a.1"


async def test_a_will_is_kept_once_there_is_a_thread_or_a_connection_for_it(
    village: Village, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may refuse either for a moment."""
    monkeypatch.setattr(last_will, "AGAIN_MS", 1)
    a, b = village.process(), village.process()
    await village.keep(b, "b.1")
    for kind, method, error in ((ServiceThread, "start", NO_THREAD), (IOLoop, "__init__", NO_FILE)):
        shortage = Shortage(monkeypatch, kind, method, error)
        shortage.lasts = True
        a.will.keep(f"{kind.__name__}.1", "amqp")
        assert await anyio.to_thread.run_sync(shortage.met.wait, PATIENCE_S)
        shortage.lasts = False
        await village.wait_kept(f"{kind.__name__}.1")
    a.die()
    assert b.heard.get(timeout=PATIENCE_S) == "IOLoop.1"


@pytest.mark.thorough
async def test_a_will_is_kept_once_it_is_permitted(
    village: Village, private_rabbitmq: OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is lacking is said once, however often it is tried; and once more if it is lacking again later."""
    village.url = private_rabbitmq.url
    b = village.process()
    await village.keep(b, "b.1")
    monkeypatch.setattr(last_will, "RENEWED_MS", 100)
    with new_user(private_rabbitmq) as user:
        village.url = user.url
        await anyio.to_thread.run_sync(partial(user.permit, configure="^(?!last-will ).*"))
        a = village.process()
        a.will.keep("a.1", "amqp")
        await until(lambda: village._log.text.count("access to queue 'last-will ") >= 1)
        await anyio.to_thread.run_sync(user.permit)
        await until(lambda: "the last will of member a.1\n" in village._log.text)
        assert village._log.text.count("no last will can be kept") == 1
        await anyio.to_thread.run_sync(partial(user.permit, write="^(?!amq.default$).*"))
        await until(lambda: village._log.text.count("no last will can be kept") >= 2)
        a.die()
        assert b.heard.get(timeout=PATIENCE_S) == "a.1"


@pytest.fixture
def full_vhost(private_rabbitmq: OwnRabbitMQ) -> Iterator[str]:
    """The URL of a virtual host that takes no more queues."""
    with new_vhost(private_rabbitmq, max_queues=0) as url:
        yield url


@pytest.mark.thorough
async def test_a_virtual_host_without_room_for_queues_is_called_that(full_vhost: str, village: Village) -> None:
    """No permission is lacking; and for want of a lock, nothing was consumed."""
    village.url = full_vhost
    a = village.process()
    a.will.keep("a.1", "amqp")
    await until(lambda: "no last will can be kept" in village._log.text)
    assert "Permit it" not in village._log.text
    assert "Raise the limit of queues (max-queues), or give crash_detection=False" in village._log.text
    refused: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    lock = LockQueue(a.connection, lock_name("group", "stream"))
    a.connection.submit(lambda: lock.acquire(lambda: None, refused.put, refused.put))
    error = refused.get(timeout=PATIENCE_S)
    assert isinstance(error, ChannelLost)
    assert re.fullmatch(
        r"RabbitMQ refuses to create queue 'lock.group stream' \(.* queue limit .*\): raise that \(max-queues\)\.",
        str(error),
    )


async def test_a_busy_link_costs_no_will(village: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where RabbitMQ's answers wait behind a large message it is tried again soon, and not as late as after a refusal."""
    monkeypatch.setattr(last_will, "PATIENCE_S", 0.1)
    monkeypatch.setattr(last_will, "AGAIN_MS", 1)
    put_off, keep_later = threading.Event(), LastWill._keep_later

    def kept_later(will: LastWill) -> None:
        put_off.set()
        keep_later(will)

    monkeypatch.setattr(LastWill, "_keep_later", kept_later)
    with FaultProxy(urlsplit(village.url).port or 0) as wire:
        plain, village.url = village.url, wire.through(village.url)
        a = village.process()
        a.will._url = plain
        wire.black_hole("to_client")
        a.will.keep("a.1", "amqp")
        assert await anyio.to_thread.run_sync(put_off.wait, PATIENCE_S)
        wire.heal()
        await until(lambda: "the last will of member a.1\n" in village._log.text)


async def test_a_member_that_has_left_has_no_will(village: Village) -> None:
    """Nobody looks after it: the next will that is heard is another one's."""
    a, b, c = (village.process() for _ in range(3))
    await village.keep(a, "a.1")
    await village.keep(c, "c.1")
    await village.keep(b, "b.1")
    a.will.withdraw()
    a.connection.close()
    c.die()
    assert b.heard.get(timeout=PATIENCE_S) == "c.1"
    assert b.heard.empty()


async def test_a_will_waits_for_somebody_who_hears_it(village: Village) -> None:
    """Of the last process of a group the next one hears."""
    a = village.process()
    await village.keep(a, "a.1")
    a.die()
    b = village.process()
    b.will.keep()
    assert b.heard.get(timeout=PATIENCE_S) == "a.1"


async def test_what_is_not_looked_after_is_handed_on(village: Village) -> None:
    """The one who looks may die as well."""
    a, b = village.process(), village.process()
    b.will._on_heard = lambda will, _: b.heard.put(will.member)
    await village.keep(b, "b.1")
    await village.keep(a, "a.1")
    a.die()
    assert b.heard.get(timeout=PATIENCE_S) == "a.1"
    b.die()
    c = village.process()
    c.will.keep()
    assert {c.heard.get(timeout=PATIENCE_S), c.heard.get(timeout=PATIENCE_S)} == {"a.1", "b.1"}


async def test_what_was_looked_after_late_costs_the_next_connection_nothing(village: Village) -> None:
    """Redis may answer only after this one has lost RabbitMQ as well, and connected again."""
    a, b = village.process(), village.process()
    looked_after, later = queue.SimpleQueue[Callable[[], object]](), threading.Event()
    b.will._on_heard = lambda _, done: looked_after.put(done)
    await village.keep(b, "b.1")
    await village.keep(a, "a.1")
    a.die()
    done = looked_after.get(timeout=PATIENCE_S)
    b.die()
    await until(lambda: not b.connection.is_open)
    b.connection.connect()
    done()
    b.connection.submit(later.set)
    assert later.wait(PATIENCE_S)
    assert b.connection.is_open


async def test_ones_own_will_of_before_is_no_news(village: Village) -> None:
    """A process that has lost RabbitMQ, and connects again, lives; its new connection has a will again."""
    a = village.process()
    await village.keep(a, "a.1")
    a.die()
    await until(lambda: not a.connection.is_open)
    a.connection.connect()
    await village.keep(a, "a.2")
    b = village.process()
    await village.keep(b, "b.1")
    a.die()
    assert b.heard.get(timeout=PATIENCE_S) == "a.2"
    assert a.heard.empty()


async def test_a_channel_that_is_lost_alone_is_opened_again(village: Village, monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ closes it over a message that was not acknowledged for long."""
    monkeypatch.setattr("cobalance.rabbitmq.consume.last_will.AGAIN_MS", 10)
    a, b = village.process(), village.process()
    await village.keep(a, "a.1")
    await village.keep(b, "b.1")
    lost, kept = a.will._channel, queue.SimpleQueue[str | None]()
    assert lost is not None
    listeners = len(a.connection._listeners)
    a.will._on_kept = kept.put
    a.connection.submit(lost.close)
    assert b.heard.get(timeout=PATIENCE_S) == "a.1"
    await village.wait_kept("a.1", times=2)
    assert kept.get(timeout=PATIENCE_S) is None
    assert kept.get(timeout=PATIENCE_S) not in (None, "amqp"), (
        "the old will may be heard late: it is of no connection now"
    )
    assert len(a.connection._listeners) == listeners, "nothing listens for a channel that is gone"
    a.die()
    assert b.heard.get(timeout=PATIENCE_S) == "a.1"


async def test_where_channels_are_few_all_are_left_to_the_queues(village: Village) -> None:
    """There is no will, and nobody hears those of others."""
    few = village.process(f"?channel_max={ENOUGH_CHANNELS - 1}")
    few.will.keep("a.1", "connection")
    await village.keep(village.process(f"?channel_max={ENOUGH_CHANNELS}"), "b.1")
    assert village.consumers() == 1
