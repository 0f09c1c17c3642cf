"""Names that would break Redis keys, ACL patterns, routing or logs are refused with the reason."""

import pytest

from cobalance.errors import UsageError
from cobalance.names import MAX_NAME_BYTES, in_order, validate_name
from cobalance.rabbitmq.model.topic import MAX_PARTITIONS, Topic


@pytest.mark.parametrize(
    "name", ["orders", "orders-v2.eu_west", "team/orders", "Bestellungen-Zürich", "a:b@c", "x" * MAX_NAME_BYTES]
)
def test_ordinary_names_are_returned(name: str) -> None:
    """A name that is fine comes back as it is."""
    assert validate_name("group", name) == name


@pytest.mark.parametrize(
    "name",
    [
        "{orders}",
        "a}b",
        "a b",
        "a\tb",
        "a\nb",
        "orders*",
        "what?",
        "a[b]",
        "a\\b",
        "^a",
        "a#b",
        "a\x00b",
        "a\u00a0b",
        "a\u200bb",
        "a\ud800b",
    ],
)
def test_names_with_such_characters_are_refused(name: str) -> None:
    """The message names the kind of thing and shows the name, printable."""
    with pytest.raises(UsageError, match="The topic name") as raised:
        validate_name("topic", name)
    assert str(raised.value).isprintable()


def test_a_character_that_nobody_sees_is_told_of_in_words() -> None:
    """The name as shown contains it, but readers cannot see it."""
    with pytest.raises(UsageError, match="contains a character that cannot be printed; braces"):
        validate_name("topic", "a\u200bb")


def test_an_empty_name_is_refused() -> None:
    """It would be no name at all."""
    with pytest.raises(UsageError, match="must not be empty"):
        validate_name("group", "")


def test_length_counts_in_bytes() -> None:
    """RabbitMQ's limit is in bytes, and partitions add a suffix."""
    with pytest.raises(UsageError, match="too long"):
        validate_name("topic", "ü" * (MAX_NAME_BYTES // 2 + 1))


def test_a_topic_s_name_leaves_room_for_its_partitions() -> None:
    """However often it is grown, members can work each of them."""
    with pytest.raises(UsageError, match="too long: at most 180 bytes"):
        Topic("t" * 181, 1)
    with pytest.raises(UsageError, match="too long"):
        Topic("t" * 180, 1).for_group("g")
    longest = Topic("t" * 180, MAX_PARTITIONS, layout=999)
    assert [validate_name("queue", name) for name in longest.queue_names] == list(longest.queue_names)


def test_partitions_are_sorted_by_number() -> None:
    names = ["orders-10", "orders-2", "films", "orders-0", "orders", "billing-3"]
    assert sorted(names, key=in_order) == ["billing-3", "films", "orders", "orders-0", "orders-2", "orders-10"]
