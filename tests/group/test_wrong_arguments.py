"""Typical mistakes in a first program get an error that says what to write instead, without contacting any server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from cobalance import (
    BlockingConsumerGroup,
    BlockingGroup,
    ConsumerGroup,
    Group,
    Retention,
    Tenure,
    Topic,
    create_topic,
    run,
)
from cobalance.errors import CobalanceError, UsageError
from cobalance.rabbitmq import list_topics, verify_topic

URL = "amqp://127.0.0.1:1"


def handle(_: object) -> None: ...


def consumer(handler: Any = handle, **options: Any) -> ConsumerGroup:
    """A consumer group that is not entered."""
    make: Any = ConsumerGroup
    made: ConsumerGroup = make("g", "orders", handler, **options)
    return made


def two(_: object, __: object) -> None:
    """One parameter too many."""


def none() -> None:
    """One too few."""


def needs_x(_: object, *, x: int) -> None:
    """One that is never passed."""


class Service:
    """A class that was not instantiated."""

    async def on(self, delivery: object) -> None:
        """A handler, once it is bound."""


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "name for topic": (lambda: create_topic(URL, "orders"), "topic is an object of type str: give a Topic"),  # type: ignore[arg-type]
    "swapped": (lambda: create_topic(Topic("orders", 2), URL), "url is an object of type Topic: give a str"),  # type: ignore[arg-type]
    "verify": (lambda: verify_topic(URL, "orders"), "topic is an object of type str: give a Topic"),  # type: ignore[arg-type]
    "run a handler": (lambda: run(handle), r"run\(\) takes a ConsumerGroup or a Group, not an object of type function"),  # type: ignore[arg-type]
    "run a class": (lambda: run(ConsumerGroup), r"run\(\) takes .*, not the class ConsumerGroup"),  # type: ignore[arg-type]
    "run a blocking one": (
        lambda: run(BlockingConsumerGroup("g", "orders", handle)),  # type: ignore[arg-type]
        r"`with group: group\.wait_left\(\)`, or give run\(\) a ConsumerGroup",
    ),
    "typo": (lambda: consumer(amqp=URL), "no option 'amqp': did you mean amqp_url"),
    "unlike any": (lambda: consumer(zzz=1), "no option 'zzz'"),
    "blocking typo": (lambda: BlockingConsumerGroup("g", "orders", handle, prefech=3), "did you mean prefetch"),  # type: ignore[call-overload]
    "group setting": (
        lambda: consumer(session_timeout_ms=5_000),
        r"give settings=GroupSettings\(session_timeout_ms=\.\.\.\)",
    ),
    "member setting": (lambda: consumer(capacity=5), r"give member=MemberSettings\(capacity=\.\.\.\)"),
    "retention": (lambda: Topic("orders", 3, retention=Retention(max_age="7D")), "queue_type='stream'"),
    "two": (lambda: consumer(two), "cannot be called with a delivery alone .*functools.partial"),
    "none": (lambda: consumer(none), "cannot be called with a delivery alone"),
    "keyword": (lambda: consumer(needs_x), "cannot be called with a delivery alone"),
    "unbound": (lambda: consumer(Service.on), "cannot be called with a delivery alone"),
    "class": (lambda: consumer(Service), "cannot be called with a delivery alone"),
    "work of none": (lambda: Group("g", ["a"], work=lambda: None), "work cannot be called with a tenure alone"),  # type: ignore[arg-type, misc]
    "blocking work of none": (
        lambda: BlockingGroup("g", ["a"], work=none),  # type: ignore[arg-type]
        "work cannot be called with a tenure alone",
    ),
    "callback of none": (lambda: consumer(on_lost=none), "on_lost cannot be called with a list of tenures alone"),
    "unknown backend": (lambda: run(consumer(), backend="curio"), "backend is 'curio': give one of 'asyncio', 'trio'"),
    "tenure without a loop": (Tenure.fake, r"no event loop runs here: call it in an async function"),
}


@pytest.mark.parametrize(("mistake", "answer"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(mistake: Callable[[], object], answer: str) -> None:
    """It is an error of ours, raised by the call itself."""
    with pytest.raises(UsageError, match=answer):
        mistake()


def injected(function: Callable[..., object]) -> Callable[[object], object]:
    """A decorator that passes the second argument itself; by ``wraps`` it claims to take both."""

    @functools.wraps(function)
    def wrapper(delivery: object) -> object:
        return function(delivery, None)

    return wrapper


@pytest.mark.parametrize(
    "handler", [injected(two), functools.partial(needs_x, x=1), Service().on, print, lambda *_: None, [].append]
)
def test_what_may_take_a_delivery_is_not_refused(handler: Any) -> None:
    """Only what certainly cannot is refused."""
    consumer(handler)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: consumer(amqp_url="localhost:5672"), "amqp://host:port/vhost"),
        (lambda: consumer(redis_url="localhost"), "redis://host[:port][/db]"),
        (lambda: consumer(management_url="localhost"), "http://host:15672"),
        (lambda: list_topics(URL, "ftp://host"), "http://host:15672"),
    ],
)
def test_hints_survive_the_redactor(call: Callable[[], object], hint: str) -> None:
    """They show the places of user and password without ever containing a secret."""
    with pytest.raises(UsageError) as raised:
        call()
    assert hint in str(raised.value)
    assert "user:password@" in str(raised.value)
    assert "***" not in str(raised.value)


def test_programs_are_told_the_option_and_not_the_command_lines_variable() -> None:
    """That variable is read by the command line only."""
    with pytest.raises(CobalanceError, match="give management_url="):
        list_topics(URL, "http://127.0.0.1:1")
