"""Maps a message key to a partition: the same one in every process, language and version."""

import zlib


def partition_of(key: bytes | str, partitions: int) -> int:
    """Returns the partition (0 … partitions - 1) for messages with this key.

    It is the CRC-32 of the key's bytes (as in zip and PNG, polynomial 0xEDB88320) modulo the number of partitions; text
    is hashed as UTF-8. Every language has this function, so a publisher without this library can route alike. Changing
    the number of partitions moves almost every key; `growth` describes how that is done without losing order.
    """
    data = key.encode() if isinstance(key, str) else key
    return zlib.crc32(data) % partitions
