"""The hash is part of the wire format: publishers in other processes, versions and languages must agree with it."""

from collections import Counter

import pytest

from cobalance.rabbitmq.model.hashing import partition_of


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("", 0),
        ("a", 3),
        ("order-1", 7),
        ("order-2", 9),
        ("Zürich", 6),
        (b"\x00\xff", 10),
        ("123456789", 0xCBF43926 % 12),
    ],
)
def test_vectors_never_change(key: str | bytes, partition: int) -> None:
    """Twelve partitions; 0xCBF43926 is the check value in every description of CRC-32 for the last key."""
    assert partition_of(key, 12) == partition


def test_text_is_hashed_as_utf8() -> None:
    """A key means the same as text or as its bytes."""
    assert partition_of("Zürich", 1000) == partition_of("Zürich".encode(), 1000)


@pytest.mark.parametrize("partitions", [2, 3, 8, 12, 100])
def test_keys_spread_evenly(partitions: int) -> None:
    """With plain numbered keys, the usual case, every partition gets between half and double its share."""
    keys = 200 * partitions
    shares = Counter(partition_of(f"customer-{number}", partitions) for number in range(keys))
    assert len(shares) == partitions
    assert all(100 <= share <= 400 for share in shares.values())
