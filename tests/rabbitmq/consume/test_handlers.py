"""Handlers of every shape: a message is acknowledged once its handler has finished, and only if it returned None."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.consumers import Place, Seen, bodies_in, new_topic, until

from cobalance.errors import UnexpectedResult, UsageError
from cobalance.group.clock import awake_ms
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.consume.slot import TURN_MS
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

Body = Callable[[Delivery], Awaitable[None]]


async def left(member: ConsumerGroup) -> None:
    """Waits until the member has left."""
    with anyio.fail_after(60):
        await member.wait_left()


def bytes_of(delivery: Delivery) -> bytes:
    """A key for each message."""
    return delivery.body


def as_lambda(body: Body) -> Any:
    """A plain function that only returns the coroutine."""
    return lambda delivery: body(delivery)  # noqa: PLW0108 -- the shape is what is tested


def as_decorated(body: Body) -> Any:
    """The result of a decorator that does not know about async."""

    @functools.wraps(body)
    def wrapper(*args: Any) -> Any:
        return body(*args)

    return wrapper


class _Service:
    """An object that is called like an async function."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def __call__(self, prefix: str, delivery: Delivery) -> None:
        del prefix
        await self._body(delivery)


def as_partial_of_object(body: Body) -> Any:
    return functools.partial(_Service(body), "prefix")


def as_awaitable(body: Body) -> Any:
    """Returns an awaitable that is not a coroutine."""

    class Later:
        def __init__(self, delivery: Delivery) -> None:
            self._delivery = delivery

        def __await__(self) -> Any:
            return body(self._delivery).__await__()

    return Later


SHAPES = [as_lambda, as_decorated, as_partial_of_object, as_awaitable]


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_turns_out_to_be_async_is_awaited_before_the_message_is_acknowledged(
    here: Place, shape: Callable[[Body], Any]
) -> None:
    """The body runs once per message, one at a time, and if it fails, the message fails."""
    seen = Seen()

    async def body(delivery: Delivery) -> None:
        await anyio.lowlevel.checkpoint()
        if seen.note(delivery) == "2":
            raise ValueError("two")

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        with pytest.raises(ValueError, match="two"):
            async with here.member(topic, shape(body), retries=Retries(1, first_ms=1), on_error="raise") as member:
                await left(member)
        assert seen.bodies == ["1", "2", "2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["2", "3"]


async def a_generator_in_disguise(delivery: Delivery) -> AsyncIterator[None]:
    """Never runs unless it is iterated over."""
    del delivery
    yield


async def forgets_to_await(delivery: Delivery) -> Any:
    """Returns the coroutine instead of awaiting it."""

    async def body(_: Delivery) -> None:
        pass

    return body(delivery)


async def returns_a_word(delivery: Delivery) -> str:
    """The word may mean success, or failure."""
    return delivery.body.decode()


REFUSED = {
    "generator": lambda delivery: (it for it in [delivery]),
    "async generator": lambda delivery: a_generator_in_disguise(delivery),  # noqa: PLW0108
    "coroutine": forgets_to_await,
    "job": lambda _: Future(),
    "False": lambda _: False,
    "word": returns_a_word,
}


@pytest.mark.parametrize("handler", REFUSED.values(), ids=REFUSED)
async def test_a_handler_that_returns_something_else_fails_its_message(
    here: Place, handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is unknown whether the work was done, so the message is not acknowledged; a retry would not help."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        late = Retries(3, first_ms=600_000, last_ms=600_000)
        with pytest.raises(UnexpectedResult, match="return None"):
            async with here.member(topic, handler, retries=late, on_error="raise") as member:
                await left(member)
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["1", "2"]
    assert f"message m1 of {topic.queue_names[0]} failed (UnexpectedResult: the handler returned" in caplog.text


async def test_a_batch_handler_that_returns_something_else_loses_nothing(here: Place) -> None:
    """The batch is given up as configured, from its first message on."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        async with here.member(topic, lambda _: 0, batch=Batch(2), on_error="halt"):
            await until(lambda: here.resources()[topic.queue_names[0]].halted == "UnexpectedResult")
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["1", "2"]


async def test_by_default_it_halts_its_partition(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Neither another member nor a pause would help; the log says how to resume once the handler is fixed."""
    calls: list[bytes] = []

    def handle(delivery: Delivery) -> bool:
        calls.append(delivery.body)
        return True

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        queue = topic.queue_names[0]
        async with here.member(topic, handle), here.member(topic, handle):
            await until(lambda: here.resources()[queue].halted is not None)
        assert here.resources()[queue].halted == "UnexpectedResult"
        assert bodies_in(here.amqp_url, queue) == ["1", "2"]
    assert calls == [b"1"]
    assert f"cobalance group resume {here.group} {queue}" in caplog.text


@pytest.mark.parametrize("batch", [None, Batch(3)])
async def test_an_unexpected_result_is_explained_once_and_never_tried_again(
    here: Place, batch: Batch | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler's side effects happen once per message; the remedy is logged once, not once per message."""
    calls: list[Any] = []

    def handle(given: Any) -> int:
        calls.extend(given if batch else [given])
        return len(calls)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        async with here.member(topic, handle, batch=batch, retries=9, on_error="dead_letter"):
            await until(lambda: caplog.text.count("to the dead-letter target") == 3)
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["1", "2", "3"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert [it.body for it in calls] == [b"1", b"2", b"3"]
    assert caplog.text.count("have it return None") == 1
    assert caplog.text.count("UnexpectedResult, as above") == 2


def generates(delivery: Delivery) -> Iterator[Delivery]:
    yield delivery


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        (None, "the handler is None: give a function"),
        ("handle", "the handler is an object of type str: give a function"),
        (generates, "the handler is a generator"),
        (functools.partial(generates), "the handler is a generator"),
        (a_generator_in_disguise, "the handler is a generator"),
    ],
)
def test_what_can_never_handle_a_message_is_refused_at_once(handler: Any, complaint: str) -> None:
    """It is refused before any server is contacted."""
    with pytest.raises(UsageError, match=complaint):
        ConsumerGroup("billing", "orders", handler)


async def test_an_acknowledgement_that_cannot_be_is_refused_in_words(here: Place) -> None:
    """Acknowledging twice is refused, and so is a delivery that this group never handed out."""
    seen: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        async with here.member(topic, handle, ack="manual") as member:
            await until(lambda: seen)
            member.ack(seen[0])
            for settle in (member.ack, member.reject):
                with pytest.raises(UsageError, match="settled before"):
                    settle(seen[0])
                with pytest.raises(UsageError, match="give a Delivery"):
                    settle(None)  # type: ignore[arg-type]
        for settle in (member.ack, member.reject):
            with pytest.raises(UsageError, match=f"has left group '{here.group}', so .* comes again"):
                settle(seen[0])
        stranger = ConsumerGroup("other", topic, handle, ack="manual")
        with pytest.raises(UsageError, match="is not of this group"):
            stranger.ack(seen[0])


@pytest.mark.parametrize("shape", ["async", "plain", "lambda"])
async def test_what_a_handler_sets_in_its_context_is_its_own(here: Place, shape: str) -> None:
    """A tenant or a trace id of one message is not taken for the next one's; what the program has set is seen."""
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[tuple[str, str]] = []

    def note(delivery: Delivery) -> None:
        token = tenant.set(tenant.get() + delivery.body.decode())
        seen.append((tenant.get(), delivery.body.decode()))
        if delivery.body == b"0":
            tenant.reset(token)
            tenant.set("another")

    async def note_async(delivery: Delivery) -> None:
        before = tenant.get()
        await anyio.lowlevel.checkpoint()
        assert tenant.get() == before
        token = tenant.set(f"{before}{delivery.body.decode()}")
        await anyio.lowlevel.checkpoint()
        seen.append((tenant.get(), delivery.body.decode()))
        if delivery.body == b"0":
            tenant.reset(token)
            tenant.set("another")

    handlers: dict[str, Any] = {"async": note_async, "plain": note, "lambda": as_lambda(note_async)}
    tenant.set("program")
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 0, 1, 2)
        async with here.member(topic, handlers[shape]):
            await until(lambda: len(seen) == 3)
    assert seen == [("program0", "0"), ("program1", "1"), ("program2", "2")]


@pytest.mark.parametrize("failures", [0, 20], ids=["done", "tried again"])
@pytest.mark.parametrize(
    "options",
    [{}, {"order": "key", "key": bytes_of}, {"batch": Batch(2)}],
    ids=["in order", "by key", "batches"],
)
async def test_a_handler_that_never_waits_leaves_others_their_turns(
    here: Place, options: dict[str, Any], failures: int
) -> None:
    """Between messages that are there already, and between tries without a pause."""
    turns, seen = 0, list[int]()

    async def handle(_: object) -> None:
        seen.append(turns)
        since = awake_ms()
        while awake_ms() - since <= TURN_MS:
            pass  # it computes something
        if len(seen) <= failures:
            raise ValueError

    retries = Retries(failures, first_ms=0, last_ms=0)
    with new_topic(here.amqp_url, 1) as topic:
        here.publish(topic, *map(str, range(40)))
        async with here.member(topic, handle, **options, retries=retries):
            with anyio.fail_after(60):
                while len(seen) < 20 + failures:
                    turns += 1
                    await anyio.lowlevel.checkpoint()
    begun = seen[: 20 + failures]  # while turns were counted
    assert len(set(begun)) > len(begun) // 2
