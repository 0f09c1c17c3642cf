"""From a message key to a partition: the same answer in every process, language and year."""

import zlib


def partition_of(key: bytes | str, partitions: int) -> int:
    """The partition (0 … partitions - 1) that messages of this key belong to.

    It is the CRC-32 of the key's bytes (the one of zip and PNG, polynomial 0xEDB88320) modulo the number of partitions; text is
    hashed as UTF-8. Every language has that function, so a publisher that does not use this library can route alike. Changing
    the number of partitions moves almost every key; `growth` says how that is done in order.
    """
    data = key.encode() if isinstance(key, str) else key
    return zlib.crc32(data) % partitions
