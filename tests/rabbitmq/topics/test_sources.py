"""Queues declared by others: found, added and removed while a group consumes them, on a real RabbitMQ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
import redis as redis_py
from tests.consumers import Place, Seen, bodies_in, channel, handler_of, note_looks, place, until
from tests.faults.management_api import OK, gateway, trickling
from tests.faults.proxy import proxy_to
from tests.names import unique

from cobalance import servers
from cobalance.coordinator.client import ResourceRow
from cobalance.errors import AuthenticationRefused, CobalanceError, TopicMissing, Unreachable, UsageError
from cobalance.rabbitmq import BoundQueues, Delivery, MatchingQueues, list_topics
from cobalance.rabbitmq.topics import management, sources
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.management import (
    bound_queues,
    close_connection,
    connection_names,
    message_counts,
    unacknowledged_counts,
)
from cobalance.rabbitmq.topics.sources import ManagedSource

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def hashing_rabbitmq() -> Iterator[servers.OwnRabbitMQ]:
    """A RabbitMQ with consistent-hash and modulus-hash exchanges, which counts messages often."""
    server = servers.private_rabbitmq(
        management=True,
        plugins=["rabbitmq_consistent_hash_exchange", "rabbitmq_sharding"],
        settings={"collect_statistics_interval": "500", "management_agent.disable_metrics_collector": "false"},
    )
    yield server
    server.close()


@pytest.fixture
def here(hashing_rabbitmq: servers.OwnRabbitMQ) -> Iterator[Place]:
    """That RabbitMQ and a group in memory."""
    with place(hashing_rabbitmq.url) as it:
        yield it


def held(here: Place) -> set[str]:
    """The resources that have a holder."""
    return {name for name, row in here.resources().items() if row.owner and not row.removing}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...] | None]:
    """The queues found by each look of the coordinator."""
    return note_looks(monkeypatch, ManagedSource)


def make_exchange(it: Any, exchange: str, kind: str, *queues: str) -> None:
    """Declares an exchange of a plugin's type, with queues."""
    it.exchange_declare(exchange, kind, durable=True)
    for name in queues:
        it.queue_declare(name, durable=True)
        it.queue_bind(name, exchange, "1")


def clean_up(it: Any, exchange: str, *queues: str) -> None:
    """Deletes the exchange and the queues."""
    for name in queues:
        it.queue_delete(name)
    it.exchange_delete(exchange)


def publish_keys(it: Any, exchange: str) -> None:
    """Publishes forty messages, each with a key of its own."""
    for number in range(40):
        it.basic_publish(exchange, f"key-{number}", str(number).encode(), mandatory=True)


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash"])
@pytest.mark.thorough
async def test_queues_bound_to_an_exchange_come_and_go(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ, looks: list[tuple[str, ...] | None], kind: str
) -> None:
    """Each is assigned when it is bound; unbound, it is consumed until it is empty, and only then given up."""
    exchange, seen, slow = unique("exchange"), Seen(), anyio.Event()
    first, second, third = (f"{exchange}.{name}" for name in "abc")

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "stop":
            await slow.wait()

    options = {"management_url": hashing_rabbitmq.management_url, "refresh_ms": 300, "prefetch": 1}
    with channel(here.amqp_url) as it:
        make_exchange(it, exchange, kind, first, second)
        source = BoundQueues(exchange)
        async with here.member(source, handle, **options), here.member(source, handle, **options):
            await until(lambda: held(here) == {first, second})
            publish_keys(it, exchange)
            assert sorted(await seen.wait(40), key=int) == [str(number) for number in range(40)]
            it.queue_declare(
                third, durable=True, arguments={"x-queue-type": "quorum", "x-single-active-consumer": True}
            )
            it.queue_bind(third, exchange, "1")
            await until(lambda: held(here) == {first, second, third})
            here.publish(third, "stop", "last")
            await seen.wait(41)
            it.queue_unbind(third, exchange, "1")
            looked = len(looks)
            await until(lambda: len(looks) > looked + 4)
            assert third in held(here)
            slow.set()
            assert (await seen.wait(42))[-2:] == ["stop", "last"]
            await until(lambda: set(here.resources()) == {first, second})
        assert [bodies_in(here.amqp_url, name) for name in (first, second)] == [[], []]
        clean_up(it, exchange, first, second, third)
    assert here.journal("abandoned", "forced") == []


async def test_redis_is_emptied_while_a_queue_runs_out(
    hashing_rabbitmq: servers.OwnRabbitMQ, private_redis: servers.OwnRedis, looks: list[tuple[str, ...] | None]
) -> None:
    """It is unbound, and no list tells of it any more; but its holder does, and it has messages: it is worked to its end."""
    exchange, seen, slow = unique("exchange"), Seen(), anyio.Event()
    bound, unbound = f"{exchange}.a", f"{exchange}.b"

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "stop":
            await slow.wait()

    options = {"management_url": hashing_rabbitmq.management_url, "refresh_ms": 300, "prefetch": 1}
    with place(hashing_rabbitmq.url, private_redis.url) as here, channel(here.amqp_url) as it:
        make_exchange(it, exchange, "x-consistent-hash", bound, unbound)
        async with here.member(BoundQueues(exchange), handle, **options):
            await until(lambda: held(here) == {bound, unbound})
            here.publish(unbound, "stop", "last")
            await seen.wait(1)
            it.queue_unbind(unbound, exchange, "1")
            with redis_py.Redis.from_url(private_redis.url) as admin:
                admin.flushall()
            await until(lambda: here.journal("recovered") and here.coordinator.subscriptions()[0].known)
            looked = len(looks)
            await until(lambda: len(looks) > looked + 4)
            assert held(here) == {bound, unbound}
            assert here.journal("removing", "revoking", "released") == []
            slow.set()
            assert await seen.wait(2) == ["stop", "last"]
            await until(lambda: set(here.resources()) == {bound})
        clean_up(it, exchange, bound, unbound)


async def test_queues_that_match_come_and_go(here: Place, hashing_rabbitmq: servers.OwnRabbitMQ) -> None:
    """A deleted one is removed from the group; another coordinator keeps looking when the first one leaves."""
    prefix, seen = unique("match"), Seen()
    options = {"management_url": hashing_rabbitmq.management_url, "refresh_ms": 200}
    source = MatchingQueues(f"{prefix}-[0-9]+")
    with channel(here.amqp_url) as it:
        for name in (f"{prefix}-1", f"{prefix}-2", f"{prefix}-other"):
            it.queue_declare(name, durable=True)
        async with here.member(source, handler_of(seen), **options) as first:
            await until(lambda: held(here) == {f"{prefix}-1", f"{prefix}-2"})
            async with here.member(source, handler_of(seen), **options) as second:
                await second.wait_held()
                await first.leave()
                it.queue_declare(f"{prefix}-3", durable=True)
                await until(lambda: held(here) == {f"{prefix}-{n}" for n in (1, 2, 3)})
                here.publish(f"{prefix}-3", "x")
                await seen.wait(1)
                it.queue_delete(f"{prefix}-1")
                await until(lambda: set(here.resources()) == {f"{prefix}-2", f"{prefix}-3"})
        for name in (f"{prefix}-2", f"{prefix}-3", f"{prefix}-other"):
            it.queue_delete(name)


async def test_an_unguarded_queue_that_turns_up_is_halted(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """No membership ends over it, and the others are consumed."""
    prefix, seen = unique("unguarded"), Seen()
    options = {"management_url": hashing_rabbitmq.management_url, "refresh_ms": 200}
    with channel(here.amqp_url) as it:
        it.queue_declare(f"{prefix}-1", durable=True)
        async with here.member(MatchingQueues(f"{prefix}-."), handler_of(seen), **options):
            await until(lambda: held(here) == {f"{prefix}-1"})
            it.queue_declare(f"{prefix}-2", durable=True, arguments={"x-queue-type": "quorum"})
            await until(lambda: [row.halted for row in here.resources().values() if row.halted] == ["Unguarded"])
            here.publish(f"{prefix}-1", "x")
            await seen.wait(1)
        for name in (f"{prefix}-1", f"{prefix}-2"):
            it.queue_delete(name)
    assert "group resume" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "on_error", "why"),
    [({"x-queue-type": "quorum"}, "pause", "Unguarded"), ({}, "dead_letter", "UsageError")],
    ids=["unguarded", "no-dead-letters"],
)
async def test_a_group_starts_beside_a_queue_that_is_halted(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ, arguments: dict[str, str], on_error: Any, why: str
) -> None:
    """Or a rolling restart would end one process after the other, though the others go on while they run."""
    prefix, seen = unique("beside"), Seen()
    options = {"management_url": hashing_rabbitmq.management_url, "refresh_ms": 200, "on_error": on_error}
    with channel(here.amqp_url) as it:
        it.queue_declare(f"{prefix}-1", durable=True, arguments={"x-dead-letter-exchange": ""})
        it.queue_declare(f"{prefix}-2", durable=True, arguments=arguments)
        async with here.member(MatchingQueues(f"{prefix}-."), handler_of(seen), **options):
            await until(lambda: [row.halted for row in here.resources().values() if row.halted] == [why])
            async with here.member(MatchingQueues(f"{prefix}-."), handler_of(seen), **options):
                here.publish(f"{prefix}-1", "x")
                await seen.wait(1)
        with pytest.raises(CobalanceError):
            await here.member([MatchingQueues(f"{prefix}-."), f"{prefix}-2"], handler_of(seen), **options).start()
        for name in (f"{prefix}-1", f"{prefix}-2"):
            it.queue_delete(name)


@pytest.fixture
def restricted(hashing_rabbitmq: servers.OwnRabbitMQ) -> Iterator[servers.OwnRabbitMQ]:
    """That RabbitMQ, with a user "few" whose permissions can be changed."""
    hashing_rabbitmq.control("add_user", "few", "few")
    hashing_rabbitmq.control("set_user_tags", "few", "management")
    yield hashing_rabbitmq
    hashing_rabbitmq.control("delete_user", "few")


@pytest.mark.thorough
async def test_a_group_starts_beside_queues_that_cannot_be_used(
    restricted: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """An exclusive and a forbidden queue match: the others are consumed, and these once they can be."""
    prefix, seen = unique("unusable"), Seen()
    exclusive, forbidden, usable = (f"{prefix}-{name}" for name in ("exclusive", "forbidden", "usable"))
    restricted.control("set_permissions", "few", f"^(?!{forbidden}).*", ".*", ".*")
    options = {"management_url": str(restricted.management_url).replace("guest:guest", "few:few"), "refresh_ms": 200}
    with place(restricted.url.replace("guest:guest", "few:few")) as here, channel(restricted.url) as it:
        for name in (forbidden, usable):
            it.queue_declare(name, durable=True)
        here.publish(usable, "usable")
        with channel(restricted.url) as other:
            other.queue_declare(exclusive, exclusive=True)
            group = here.member(MatchingQueues(f"{prefix}-.*"), handler_of(seen), **options)
            await group.start()
            assert await seen.wait(1) == ["usable"]
            await until(lambda: caplog.text.count("Trying again until it can be used") == 2)
            assert set(group.tenures) == {exclusive, forbidden, usable}
        it.queue_declare(exclusive, durable=True)
        restricted.control("set_permissions", "few", ".*", ".*", ".*")
        for name in (exclusive, forbidden):
            here.publish(name, name)
        assert sorted((await seen.wait(3))[1:]) == [exclusive, forbidden]
        await group.stop()
        assert here.journal("abandoned") == []
        for name in (exclusive, forbidden, usable):
            it.queue_delete(name)
    assert "RESOURCE_LOCKED" in caplog.text


async def test_an_unbound_queue_that_cannot_be_asked_stops_no_look(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ
) -> None:
    """It stays until it is gone; a queue that is bound meanwhile is found."""
    exchange = unique("asked")
    exclusive, usable, later = (f"{exchange}.{name}" for name in ("exclusive", "usable", "later"))
    options = {"management_url": hashing_rabbitmq.management_url, "refresh_ms": 200}
    with channel(here.amqp_url) as it:
        make_exchange(it, exchange, "direct", usable)
        with channel(here.amqp_url) as other:
            other.queue_declare(exclusive, exclusive=True)
            other.queue_bind(exclusive, exchange, "1")
            group = here.member(BoundQueues(exchange), handler_of(Seen()), **options)
            await group.start()
            await until(lambda: held(here) == {exclusive, usable})
            await until(lambda: message_counts(here.amqp_url, hashing_rabbitmq.management_url)[exclusive] == 0)
            other.queue_unbind(exclusive, exchange, "1")
            it.queue_declare(later, durable=True)
            it.queue_bind(later, exchange, "1")
            await until(lambda: held(here) == {exclusive, usable, later})
        await until(lambda: set(here.resources()) == {usable, later})
        await group.stop()
        clean_up(it, exchange, usable, later)


async def test_when_the_management_api_cannot_be_asked_all_stays_as_it_is(
    hashing_rabbitmq: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once; what is consumed goes on."""
    prefix, seen = unique("silent"), Seen()
    with place(hashing_rabbitmq.url) as here, channel(here.amqp_url) as it, caplog.at_level(logging.WARNING):
        it.queue_declare(f"{prefix}-1", durable=True)
        group = here.member(
            MatchingQueues(f"{prefix}-."),
            handler_of(seen),
            management_url=hashing_rabbitmq.management_url,
            refresh_ms=50,
        )
        async with group:
            await until(lambda: held(here) == {f"{prefix}-1"})
            [source] = group._subscribed._managed
            source._management_url = "http://guest:guest@127.0.0.1:1"
            await until(lambda: "could not be looked for" in caplog.text)
            here.publish(f"{prefix}-1", "x")
            await seen.wait(1)
            it.queue_delete(f"{prefix}-1")  # all matching queues are gone: more likely by mistake than on purpose
            it.queue_declare(f"{prefix}-2", durable=True)
            source._management_url = hashing_rabbitmq.management_url
            await until(lambda: set(here.resources()) == {f"{prefix}-2"})
            it.queue_delete(f"{prefix}-2")
            await until(lambda: "there are no queues" in caplog.text)
            assert set(here.resources()) == {f"{prefix}-2"}
    assert caplog.text.count("could not be looked for") == 1


def test_that_there_are_no_queues_is_said_once(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that waits for the first queue of a pattern looks every few seconds, for days."""
    name = unique("first")
    source = ManagedSource(MatchingQueues(name), here.amqp_url, hashing_rabbitmq.management_url)
    with channel(here.amqp_url) as it:
        for times in (1, 2):
            for _ in range(3):
                source.look({})
            assert caplog.text.count("there are no queues") == times
            it.queue_declare(name, durable=True)
            while source.look({}).resources is None:
                pass
            it.queue_delete(name)
            while source.look({}).resources is not None:
                pass


def test_our_own_queues_are_nobodys_to_consume(
    hashing_rabbitmq: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """They come and go with each member: a pattern that takes every name leaves them out without a word. Others that
    cannot be named are warned of for as long as they are there.
    """
    own = [
        "last-will 00ff",
        "last-wills.cobalance group",
        f"last-wills.{64 * 'a'}",
        "lock.group stream",
        f"lock.{64 * 'a'}",
    ]
    others = [unique("not ours "), unique("work")]
    source = ManagedSource(MatchingQueues(".*"), hashing_rabbitmq.url, hashing_rabbitmq.management_url)
    with channel(hashing_rabbitmq.url) as it:
        for name in [*own, *others]:
            it.queue_declare(name)
        try:
            found = source.find()
            assert others[1] in found
            assert found.isdisjoint([*own, others[0]])
            source.find()
            assert [others[0] in line for line in caplog.messages if "left out" in line] == [True]
        finally:
            for name in [*own, *others]:
                it.queue_delete(name)
        source.find()
        assert source._warned_of == set()


def test_a_topics_lock_is_nobodys_to_consume(hashing_rabbitmq: servers.OwnRabbitMQ) -> None:
    """It is there while the topic is changed, and exclusive; another queue of such a name is not."""
    topic, other = unique("orders"), unique("orders")
    found = ManagedSource(MatchingQueues("orders.*"), hashing_rabbitmq.url, hashing_rabbitmq.management_url).find
    with channel(hashing_rabbitmq.url) as it, connected(hashing_rabbitmq.url) as admin:
        it.queue_declare(f"{other}.changing")
        with admin.changing(topic):
            assert found() == {f"{other}.changing"}
        it.queue_delete(f"{other}.changing")


def row(name: str) -> ResourceRow:
    """One that is held."""
    return ResourceRow(name, "held", "m", 1, 0, 0, "2", False, "-", None)


def test_a_queue_that_is_on_no_page_is_still_there(here: Place) -> None:
    """Pages go by rank: a queue moves to one that was read already when others are deleted. RabbitMQ knows of it."""
    prefix = unique("page")
    first, second = f"{prefix}-1", f"{prefix}-2"
    page = b'{"items": [{"name": "%s", "exclusive": false, "messages": 0}], "page_count": 1}' % first.encode()
    held_now = {name: row(name) for name in (first, second)}
    with channel(here.amqp_url) as it, gateway(answer=page) as (_, url):
        for name in (first, second):
            it.queue_declare(name)
        source = ManagedSource(MatchingQueues(f"{prefix}-."), here.amqp_url, url)
        assert [source.look(held_now).resources for _ in range(3)] == [(first, second)] * 3
        it.queue_delete(second)
        assert [source.look(held_now).resources for _ in range(2)] == [(first, second), (first,)]
        it.queue_delete(first)


def test_what_cannot_be_asked_in_time_stays(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look ends, however many queues are missing and however long each takes; others are let go by later looks."""
    prefix = unique("late")
    first, second = f"{prefix}-1", f"{prefix}-2"
    held_now = {name: row(name) for name in (first, second)}
    source = ManagedSource(MatchingQueues(f"{prefix}-."), here.amqp_url, hashing_rabbitmq.management_url)
    with channel(here.amqp_url) as it:
        it.queue_declare(first)
        with monkeypatch.context() as patched:
            patched.setattr(sources, "ASK_S", 0, raising=False)
            assert [source.look(held_now).resources for _ in range(3)] == [(first, second)] * 3
        assert [source.look(held_now).resources for _ in range(2)] == [(first, second), (first,)]
        it.queue_delete(first)


@contextmanager
def let_go(here: Place, rabbitmq: servers.OwnRabbitMQ) -> Iterator[tuple[ManagedSource, str, str]]:
    """A queue that is bound, and one that was unbound and let go."""
    exchange = unique("back")
    first, second = f"{exchange}.a", f"{exchange}.b"
    source = ManagedSource(BoundQueues(exchange), here.amqp_url, rabbitmq.management_url)
    with channel(here.amqp_url) as it:
        it.exchange_declare(exchange)
        for name in (first, second):
            it.queue_declare(name, durable=True)
        it.queue_bind(first, exchange, "x")
        while source.look({first: row(first), second: row(second)}).resources == (first, second):
            pass
        yield source, first, second
        for name in (first, second):
            it.queue_delete(name)
        it.exchange_delete(exchange)


@pytest.mark.thorough
def test_what_was_given_back_brings_its_queue_back(here: Place, hashing_rabbitmq: servers.OwnRabbitMQ) -> None:
    """Its last holder ran out of time: an unbound queue with messages is kept until it is deleted."""
    with let_go(here, hashing_rabbitmq) as (source, first, second):
        with channel(here.amqp_url) as holder:
            holder.basic_consume(second, lambda *_: None)
            for _ in range(2):
                assert source.look({first: row(first)}).resources == (first,)
            here.publish(second, "late")
            assert source.look({first: row(first)}).resources == (first,)
        while source.look({first: row(first)}).resources == (first,):
            pass
        assert source.look({first: row(first)}).resources == (first, second)
        assert bodies_in(here.amqp_url, second) == ["late"]
        with channel(here.amqp_url) as it:
            it.queue_delete(second)
        assert source.look({first: row(first)}).resources == (first,)


@pytest.mark.thorough
def test_a_queue_that_was_let_go_is_for_others_to_use(here: Place, hashing_rabbitmq: servers.OwnRabbitMQ) -> None:
    """Once its last holder has gone, and it was found empty, what is in it is of another program."""
    with let_go(here, hashing_rabbitmq) as (source, first, second):
        assert source.look({first: row(first)}).resources == (first,)
        here.publish(second, "of another program")
        for _ in range(2):
            assert source.look({first: row(first)}).resources == (first,)


@pytest.mark.thorough
def test_a_queue_that_was_let_go_stays_so_while_it_cannot_be_asked(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only of queues that are still held is silence a reason to keep them."""
    with let_go(here, hashing_rabbitmq) as (source, first, second):
        with monkeypatch.context() as patched:
            patched.setattr(sources, "ASK_S", 0)
            assert source.look({first: row(first)}).resources == (first,)
        here.publish(second, "late")
        assert source.look({first: row(first)}).resources == (first, second)


def test_what_the_management_api_says(here: Place, hashing_rabbitmq: servers.OwnRabbitMQ) -> None:
    """Bindings and counts, page by page; missing and refused ones are reported as such."""
    url, exchange = hashing_rabbitmq.management_url, unique("api")
    with channel(here.amqp_url) as it:
        it.exchange_declare(exchange)
        assert bound_queues(here.amqp_url, exchange, url) == set()
        names = {f"{exchange}-{number}" for number in range(4)}
        for name in names:
            it.queue_declare(name, durable=True)
        it.queue_bind(f"{exchange}-1", exchange, "x")
        assert bound_queues(here.amqp_url, exchange, url) == {f"{exchange}-1"}
        assert names <= set(message_counts(here.amqp_url, url))
        with pytest.raises(TopicMissing, match="no exchange"):
            bound_queues(here.amqp_url, "nothing", url)
        with pytest.raises(AuthenticationRefused):
            message_counts(here.amqp_url, str(url).replace("guest:guest", "guest:wrong"))
        for name in names:
            it.queue_delete(name)
        it.exchange_delete(exchange)


@pytest.mark.parametrize("page", [b"<html>back soon</html>", b"\xff", b"[" * 100_000])
def test_a_page_is_no_answer_of_the_management_api(page: bytes) -> None:
    """For example from a proxy: the API counts as unreachable, and no membership ends."""
    with gateway(answer=page) as (_, url), pytest.raises(Unreachable, match="not JSON"):
        message_counts("amqp://127.0.0.1", url)


ASKED: dict[str, Callable[[str, str], object]] = {
    "topics": list_topics,
    "bindings": lambda amqp, url: bound_queues(amqp, "x", url),
    "unacknowledged": unacknowledged_counts,
    "messages": message_counts,
    "connections": connection_names,
    "a connection to close": lambda amqp, url: close_connection(amqp, url, "c", "why"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(
    "answer",
    [
        *(b'{"status": "maintenance"}', b"{}", b"null", b'"soon"', b"7", b"[7]", b'["name"]', b'[{"name": 7}]'),
        *(b'{"items": [], "page_count": "1"}', b'{"items": {}, "page_count": 1}', b'{"items": [{}], "page_count": 1}'),
        b'{"items": [], "page_count": 1000000000}',
        b'{"items": [{"name": "q", "messages": "1", "messages_unacknowledged": "1"}], "page_count": 1}',
    ],
)
def test_json_of_another_shape_is_no_answer_of_the_management_api(answer: bytes, asked: str) -> None:
    """The error says what answered, and where. A KeyError in a task of the group ended one member after the other."""
    with gateway(answer=answer) as (_, url), pytest.raises(Unreachable, match=r"127\.0\.0\.1:\d+ .*management_url"):
        ASKED[asked]("amqp://127.0.0.1", url)


@pytest.mark.parametrize("beginning", [b"", OK + b"X: ", OK + b"Content-Length: 10000\r\n\r\n", OK + b"\r\n"])
def test_an_answer_that_trickles_is_given_up(beginning: bytes) -> None:
    """The timeout is for all of it, instead of for each byte."""
    with ThreadPoolExecutor(1) as pool, trickling(beginning) as url:
        asked = pool.submit(message_counts, "amqp://127.0.0.1", url, timeout_ms=300)
        with pytest.raises(Unreachable, match=r"cannot be reached \(TimeoutError\)"):
            asked.result(20)


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory."""
    monkeypatch.setattr(management, "MOST_BYTES", 100_000)
    with trickling(OK + b"\r\n", b" " * 10_000, 0) as url, pytest.raises(Unreachable, match="more than 100,000 bytes"):
        message_counts("amqp://127.0.0.1", url, timeout_ms=20_000)


@pytest.mark.parametrize("answer", [b'{"status": "maintenance"}', b"[]", b"null"])
async def test_an_answer_of_another_shape_ends_no_member(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Each new head looked in its turn, and left the group over it. What is consumed stays as it is."""
    prefix, seen = unique("shape"), Seen()
    api = str(hashing_rabbitmq.management_url).replace("guest:guest@", "")

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with gateway(api) as (front, url), channel(here.amqp_url) as it:
        it.queue_declare(f"{prefix}-1", durable=True)
        options = {"management_url": url, "refresh_ms": 100}
        async with here.member(MatchingQueues(f"{prefix}-[0-9]"), handle, **options) as group:
            await group.wait_held(f"{prefix}-1")
            front.answer = answer
            await until(lambda: "could not be looked for" in caplog.text)
            front.answer = b""
            it.queue_declare(f"{prefix}-2", durable=True)
            await group.wait_held(f"{prefix}-1", f"{prefix}-2")
            assert group.failed is None
        for number in (1, 2):
            it.queue_delete(f"{prefix}-{number}")


def test_a_pattern_that_is_none_is_refused() -> None:
    """It is refused before any server is contacted."""
    with pytest.raises(UsageError, match="regular expression"):
        MatchingQueues("(")


async def test_the_least_patience_without_rabbitmq_does_not_end_while_it_is_there(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ
) -> None:
    """A queue that is found later is read, and worked, by its first holder."""
    prefix, seen = unique("patience"), Seen()
    options: dict[str, Any] = {
        "refresh_ms": 100,
        "management_url": hashing_rabbitmq.management_url,
        "unconnected_ms": 1,
    }
    with channel(here.amqp_url) as it:
        async with here.member(MatchingQueues(f"{prefix}-.*"), handler_of(seen), **options):
            it.queue_declare(f"{prefix}-0", durable=True)
            here.publish(f"{prefix}-0", "found")
            assert await seen.wait(1) == ["found"]
            assert not here.journal("abandoned")
        it.queue_delete(f"{prefix}-0")


async def test_who_has_no_rabbitmq_gives_up_a_queue_that_it_has_never_read(
    here: Place, hashing_rabbitmq: servers.OwnRabbitMQ
) -> None:
    """It was declared while this member was cut off; a member that has RabbitMQ works it."""
    prefix, seen = unique("unread"), Seen()
    names = [f"{prefix}-{number}" for number in range(4)]
    options: dict[str, Any] = {"refresh_ms": 100, "management_url": hashing_rabbitmq.management_url}
    with proxy_to(here.amqp_url) as proxy, channel(here.amqp_url) as it:
        direct, here.amqp_url = here.amqp_url, proxy.through(here.amqp_url)
        cut_off = here.member(MatchingQueues(f"{prefix}-.*"), handler_of(seen), unconnected_ms=1_000, **options)
        here.amqp_url = direct
        async with here.member(MatchingQueues(f"{prefix}-.*"), handler_of(seen), **options), cut_off:
            proxy.refuse()
            proxy.reset()
            await until(lambda: not cut_off.partitions.connection.is_open)
            for name in names:
                it.queue_declare(name, durable=True)
                here.publish(name, name)
            assert sorted(await seen.wait(len(names))) == names
            assert {entry.reason for entry in here.journal("abandoned")} == {"still_unconnected"}
        for name in names:
            it.queue_delete(name)
