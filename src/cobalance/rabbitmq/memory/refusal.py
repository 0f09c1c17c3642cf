"""RabbitMQ's error replies: a code, and a text that clients parse."""


class Refusal(Exception):
    """Closes the channel of the refused request."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def missing(kind: str, name: str) -> Refusal:
    return Refusal(404, f"NOT_FOUND - no {kind} '{name}' in vhost '/'")


def not_implemented(what: str) -> Refusal:
    """Only a real RabbitMQ supports this."""
    return Refusal(540, f"NOT_IMPLEMENTED - memory:// has no {what}: test that with a RabbitMQ")


def inequivalent(argument: str, queue: str, received: object, current: object) -> Refusal:
    """The queue exists with another declaration."""
    return Refusal(
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{queue}' in vhost '/': received {_words(received)} but current is "
        f"{_words(current)}",
    )


def _words(value: object) -> str:
    if value is None:
        return "none"
    kind = "bool" if isinstance(value, bool) else "signedint" if isinstance(value, int) else "longstr"
    return f"the value '{str(value).lower() if kind == 'bool' else value}' of type '{kind}'"
