"""Validates the names of groups, resources, topics, queues and members."""

import re

from cobalance.errors import UsageError

MAX_NAME_BYTES = 200
"""RabbitMQ allows 255 bytes, and partitions and dead-letter queues append suffixes."""

_BANNED = re.compile(r"[\s{}*?\[\]\\^#\x00-\x1f\x7f]")


def validate_name(kind: str, value: str, most: int = MAX_NAME_BYTES) -> str:
    """Returns the name, or raises UsageError with the reason. ``kind`` is what is being named ("group").

    Braces would break the hash tag that keeps a group's Redis keys together, glob characters the patterns of SCAN and
    ACL rules, `#` the wildcards of topic exchanges, and blanks and control characters everyone's logs.
    """
    if not isinstance(value, str):
        raise UsageError(f"The name of a {kind} is an object of type {type(value).__name__}: give a string.")
    if not value:
        raise UsageError(f"The name of a {kind} must not be empty.")
    if len(value.encode(errors="surrogatepass")) > most:
        raise UsageError(f"The {kind} name {value[:20]!r}… is too long: at most {most} bytes of UTF-8.")
    found = _BANNED.search(value)
    if found or not value.isprintable():
        what = f" {found.group()!r}" if found else " a character that cannot be printed"
        raise UsageError(
            f"The {kind} name {value!r} contains{what}; braces, blanks, control characters and any of *?[]^\\# are not allowed in names."
        )
    return value


def split_resource(name: str) -> tuple[str | None, str]:
    """Topic and number of a partition queue; other resources have no topic."""
    topic, dash, number = name.rpartition("-")
    return (topic, number) if dash and topic and number.isdecimal() else (None, name)


def in_order(name: str) -> tuple[str, int, str]:
    """A key that sorts resources by name, and the partitions of a topic by number."""
    topic, number = split_resource(name)
    return (name, -1, "") if topic is None else (topic, int(number), number)
