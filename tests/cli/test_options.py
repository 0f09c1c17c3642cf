"""Options that cannot work are refused at once, with a message that says what would."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from cobalance import BlockingGroup, ConsumerGroup, Group
from cobalance.errors import UsageError
from cobalance.rabbitmq import AsyncPublisher, Publisher, Topic
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.settings import GroupSettings, MemberSettings


def handle(_: object) -> None: ...


def consumer(**options: Any) -> object:
    """A consumer of a group, without contacting any server."""
    return ConsumerGroup("g", "orders", handle, **options)


def dropin(**options: Any) -> object:
    """In place of a pika connection, with an address without a listener."""
    return GroupConnection("amqp://guest:guest@127.0.0.1:1/%2F", group="g", **options)


def publisher(**options: Any) -> object:
    return Publisher("amqp://127.0.0.1:1", Topic("orders", 1), **options)


def async_publisher(**options: Any) -> object:
    return AsyncPublisher("amqp://127.0.0.1:1", Topic("orders", 1), **options)


def group(**options: Any) -> object:
    return Group("g", ["r"], **options)


def blocking(**options: Any) -> object:
    return BlockingGroup("g", ["r"], **options)


NO_NUMBERS: tuple[Any, ...] = ("10", True, math.nan, math.inf, -5, [])
WHOLE = (*NO_NUMBERS, 2.5)

NUMBERS: list[tuple[Callable[..., object], str, tuple[Any, ...]]] = [
    *((make, "prefetch", (*WHOLE, 0, 65_536, None)) for make in (consumer, dropin)),
    *((make, "ack_every", (*WHOLE, 0, 10**10)) for make in (consumer, dropin)),
    *((make, "ack_interval_ms", (*NO_NUMBERS, 0, 10**10)) for make in (consumer, dropin)),
    *((make, "unconnected_ms", (*WHOLE, 0, 10**10)) for make in (consumer, dropin)),
    (consumer, "refresh_ms", (*WHOLE, 0, 10**10)),
    (consumer, "retries", (*WHOLE, 10**10, None)),
    (consumer, "max_in_flight", (*WHOLE, 0, 10**10)),
    (consumer, "max_in_flight_per_partition", (*WHOLE, 0, 10**10)),
    *((make, "window", (*WHOLE, 0, 10**10)) for make in (publisher, async_publisher)),
    *((make, "timeout_ms", (*WHOLE, 0, 10**10)) for make in (publisher, async_publisher)),
    *((make, "heartbeat_s", (*WHOLE, 65_536)) for make in (publisher, async_publisher)),
    (Retries, "most", (*WHOLE, 10**10)),
    (Retries, "first_ms", (*WHOLE, 10**10)),
    (Retries, "last_ms", (*WHOLE, 10**10)),
    (Retries, "factor", (*NO_NUMBERS, 0.5, 10**10)),
    (Batch, "most", (*WHOLE, 0, 65_536)),
    (Batch, "within_ms", (*WHOLE, 10**10)),
    (StreamSettings, "commit_every", (*WHOLE, 0, 10**10)),
    (StreamSettings, "commit_interval_ms", (*NO_NUMBERS, 0, 10**10)),
    (MemberSettings, "capacity", (*WHOLE, 1_001)),
    (MemberSettings, "max_processing_ms", (*WHOLE, 0, 10**10)),
    (MemberSettings, "drain_timeout_ms", (*WHOLE, 10**10)),
    (MemberSettings, "guarded_outage_ms", (*WHOLE, 10**10)),
]

KINDS: list[tuple[Callable[..., object], str, tuple[Any, ...]]] = [
    *((make, "require_guard", ("no", 1, None)) for make in (consumer, dropin)),
    *((make, "crash_detection", ("no", 1, None)) for make in (consumer, dropin)),
    *((make, "streams", ("first", {})) for make in (consumer, dropin)),
    *((make, "settings", ({"session_timeout_ms": 1}, 5)) for make in (group, consumer, dropin)),
    *((make, "member", (5, GroupSettings())) for make in (group, consumer, dropin)),
    *((make, "redis_url", (5, None, "", " ", "localhost:6379")) for make in (group, blocking, consumer, dropin)),
    *((make, "transport", (5, "memory://g", object())) for make in (group, blocking, consumer, dropin)),
    *((make, "management_url", (7, "")) for make in (consumer, dropin)),
    *((make, "on_assigned", (5,)) for make in (group, consumer, dropin)),
    (group, "work", (5,)),
    (consumer, "amqp_url", (5, None, "", "localhost")),
    (lambda parameters: GroupConnection(parameters, group="g"), "parameters", (5, None, "", [])),
    (lambda url: Publisher(url, Topic("orders", 1)), "url", (5, None)),
    (lambda url: AsyncPublisher(url, Topic("orders", 1)), "url", (5, None)),
    (lambda topic: Publisher("amqp://127.0.0.1:1", topic), "topic", (5, None)),
    (lambda partitions: Topic("orders", partitions), "partitions", ("3", None, True, 2.5)),
    (consumer, "batch", (5, "many")),
    (publisher, "name", (5,)),
    (StreamSettings, "lock", ("no", 1)),
    (StreamSettings, "start", ([], {})),
    (StreamSettings, "on_unknown_offset", ([],)),
    (MemberSettings, "instance_id", (5, b"pod")),
]


@pytest.mark.parametrize(
    ("make", "option", "value"), [(make, name, value) for make, name, values in NUMBERS + KINDS for value in values]
)
def test_a_value_that_cannot_work_is_refused(make: Callable[..., object], option: str, value: object) -> None:
    """Before any server is contacted. The message names the option and says what to give."""
    with pytest.raises(UsageError, match=r"(?i)give|has at least|from 0|expected|has 1 to") as raised:
        make(**{option: value})
    words = str(raised.value).casefold()
    assert option in words or "url" in words or make in (Retries, Batch, StreamSettings) or option == "retries"


LISTS: list[Callable[[Any], object]] = [
    lambda names: Group("g", names),
    lambda names: BlockingGroup("g", names),
    lambda names: ConsumerGroup("g", names, handle),
]


@pytest.mark.parametrize("names", [5, [1], [None], b"abc", [b"abc"]])
@pytest.mark.parametrize("make", LISTS)
def test_what_is_no_list_of_names_is_refused(make: Callable[[Any], object], names: Any) -> None:
    """For each kind of name."""
    with pytest.raises(UsageError, match="give"):
        make(names)


@pytest.mark.parametrize("make", LISTS[:2])
def test_a_word_is_no_list_of_its_letters(make: Callable[[Any], object]) -> None:
    """It used to be treated as one, and the letters were worked."""
    with pytest.raises(UsageError, match=r"'photos'.* give a list of names"):
        make("photos")


@pytest.mark.parametrize("name", [5, None, b"g"])
def test_a_name_is_a_string(name: Any) -> None:
    """A group's name, for example."""
    with pytest.raises(UsageError, match="name of a group"):
        Group(name, ["a"])


def test_a_list_may_be_any_iterable() -> None:
    """It is iterated once."""
    ConsumerGroup("g", (name for name in ["a", "b"]), handle)
    Group("g", {"a": 1})
