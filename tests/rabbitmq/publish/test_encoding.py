"""What AMQP cannot hold is refused by name when it is given, and is not shown."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from pika import frame
from pika.spec import BasicProperties

from cobalance.errors import UsageError
from cobalance.rabbitmq.model.encoding import encode_body, encode_properties


def ring() -> dict[str, Any]:
    """A dictionary that contains itself."""
    made: dict[str, Any] = {}
    made["itself"] = made
    return made


UNFIT = {
    "a float": ({"price": 1.5}, r"headers\['price'\] is an object of type float"),
    "an object": ({"fine": 1, "bad": object()}, r"headers\['bad'\] is an object of type object"),
    "deep inside": ({"a": {"b": [1, {"c": {1}}]}}, r"headers\['a'\]\['b'\]\[1\]\['c'\] is an object of type set"),
    "a number for a name": ({5: 1}, "headers have a name of type int"),
    "a number for a name inside": ({"a": {5: 1}}, r"headers\['a'\] have a name of type int"),
    "a long name": ({"k" * 300: 1}, "headers have a name of 300 bytes"),
    "a name that is no text": ({"\ud800": 1}, "headers have a name that is no text"),
    "a large number": ({"n": 2**63}, r"headers\['n'\] is an object of type int"),
    "a small number": ({"n": -(2**63) - 1}, r"headers\['n'\]"),
    "not a number": ({"n": Decimal("nan")}, r"headers\['n'\] is an object of type Decimal"),
    "many digits": ({"n": Decimal("12345678901.5")}, r"headers\['n'\]"),
    "before the year one": ({"t": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}, r"headers\['t'\]"),
    "before 1970": ({"t": datetime(1969, 1, 1, tzinfo=UTC)}, r"headers\['t'\] is an object of type datetime"),
    "half a character": ({"s": "\ud800"}, r"headers\['s'\] is an object of type str"),
    "itself": (ring(), r"headers\['itself'\].* is an object of type dict"),
    "no headers": ([1], "headers are an object of type list"),
}


@pytest.mark.parametrize(("headers", "complaint"), UNFIT.values(), ids=UNFIT)
def test_headers_that_amqp_cannot_hold(headers: Any, complaint: str) -> None:
    """The error says where the value is, what it is, and what is allowed."""
    with pytest.raises(UsageError, match=complaint) as raised:
        encode_properties(BasicProperties(), headers)
    assert "AMQP holds text, bytes" in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", [5, None, [], ["audit"]], ids=repr)
def test_headers_that_rabbitmq_reads_itself(name: str, value: Any) -> None:
    """A copy that has a queue would hide that the message has none, as after the growth of its topic."""
    with pytest.raises(UsageError, match=f"the headers have '{name}': RabbitMQ sends copies"):
        encode_properties(BasicProperties(), {name: value})
    assert decoded(encode_properties(BasicProperties(), {name.lower(): value})).headers == {name.lower(): value}


def test_a_value_is_not_shown() -> None:
    """It may be confidential."""
    with pytest.raises(UsageError) as raised:
        encode_properties(BasicProperties(), {"card": {"4111 1111"}})
    assert "4111" not in str(raised.value)


def test_what_amqp_can_hold() -> None:
    """Everything is decoded as it was encoded."""
    headers = {
        "text": "ä",
        "bytes": b"\x00\xff",
        "truth": True,
        "whole": -(2**63),
        "decimal": Decimal("19.99"),
        "moment": datetime(2026, 11, 22, tzinfo=UTC),
        "nothing": None,
        "list": [1, "a", [None]],
        "table": {"a": {"b": 1}},
    }
    assert decoded(encode_properties(BasicProperties(message_id="m"), headers)).headers == headers


def test_headers_that_are_changed_afterwards() -> None:
    """The message keeps the headers as they were given."""
    headers = {"tags": ["a"]}
    encoded = encode_properties(BasicProperties(), headers)
    headers["tags"].append("b")
    assert decoded(encoded).headers == {"tags": ["a"]}


def decoded(encoded: BasicProperties) -> BasicProperties:
    """Encodes properties as pika does, more than once, and decodes them."""
    first, second = (frame.Header(1, 0, encoded).marshal() for _ in range(2))
    assert first == second
    _, header = frame.decode_frame(first)
    assert isinstance(header, frame.Header)
    return header.properties


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, bytes.decode])
def test_bodies(make: Callable[[bytes], Any]) -> None:
    """Bytes-like objects, and text as UTF-8."""
    assert encode_body(make(b"xy")) == b"xy"


@pytest.mark.parametrize("body", [None, 5, ["x"], {"a": 1}, "\ud800"])
def test_bodies_that_are_none(body: Any) -> None:
    """They are not converted: 5 is not five zero bytes."""
    with pytest.raises(UsageError, match="the body is an object of type"):
        encode_body(body)


def test_what_wraps_pikas_channels_may_look_and_changes_nothing() -> None:
    """As OpenTelemetry's instrumentation of pika does: it asks for headers and ids, and puts headers of its own there."""
    encoded = encode_properties(BasicProperties(message_id="m"), {"source": "shop"})
    before = encoded.encode()
    assert {name: getattr(encoded, name) for name in vars(BasicProperties())} == dict.fromkeys(vars(BasicProperties()))
    encoded.headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    assert encoded.encode() == before
    assert encode_properties(BasicProperties(), None).headers is None


def test_a_signal_handler_that_raises_while_headers_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is raised, and the headers are not blamed."""
    encode, attempts = BasicProperties.encode, count()

    def interrupted(properties: BasicProperties) -> Any:
        if not next(attempts):
            raise ZeroDivisionError("from a handler")
        return encode(properties)

    monkeypatch.setattr(BasicProperties, "encode", interrupted)
    with pytest.raises(ZeroDivisionError):
        encode_properties(BasicProperties(), {"kind": "order"})
