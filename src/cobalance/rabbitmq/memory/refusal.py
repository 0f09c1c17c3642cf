"""RabbitMQ's error replies: a code, and a text that clients parse."""

from __future__ import annotations

MOST_BYTES = 255
"""AMQP's limit for a reply text; RabbitMQ cuts longer ones off."""


class Refusal(Exception):
    """Closes the channel of the refused request, or its whole connection."""

    def __init__(self, code: int, text: str, *, whole_connection: bool = False) -> None:
        text = text.encode()[:MOST_BYTES].decode(errors="ignore")
        super().__init__(text)
        self.code, self.text, self.whole_connection = code, text, whole_connection


def missing(kind: str, name: str) -> Refusal:
    return Refusal(404, f"NOT_FOUND - no {kind} '{name}' in vhost '/'")


def access_refused(why: str) -> Refusal:
    return Refusal(403, f"ACCESS_REFUSED - {why}")


def locked(queue: str) -> Refusal:
    """The queue is exclusive to another connection."""
    return Refusal(
        405,
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. It could be originally declared on "
        "another connection or the exclusive property value does not match that of the original declaration.",
    )


def precondition_failed(why: str) -> Refusal:
    return Refusal(406, f"PRECONDITION_FAILED - {why}")


def inequivalent(argument: str, thing: str, received: str, current: str) -> Refusal:
    """The queue or exchange exists with another declaration."""
    words = f"inequivalent arg '{argument}' for {thing} in vhost '/': received {received} but current is {current}"
    return precondition_failed(words)


def described(value: object) -> str:
    """The value of an argument in RabbitMQ's words."""
    if value is None:
        return "none"
    kind = "bool" if isinstance(value, bool) else "signedint" if isinstance(value, int) else "longstr"
    return f"the value '{str(value).lower() if kind == 'bool' else value}' of type '{kind}'"


def not_supported(what: str) -> Refusal:
    """RabbitMQ itself does not do this, and closes the whole connection."""
    return Refusal(540, f"NOT_IMPLEMENTED - {what}", whole_connection=True)


def only_in_rabbitmq(what: str) -> Refusal:
    """Only a real RabbitMQ does this. The channel alone is closed, so that the error reaches the program."""
    return Refusal(540, f"NOT_IMPLEMENTED - memory:// has no {what}: test that with a RabbitMQ")
