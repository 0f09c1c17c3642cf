"""Reads the reply to a command as Redis sends it, for who takes many entries apart at once, without an object for each."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from redis import exceptions as redis_errors

if TYPE_CHECKING:
    from cobalance.coordinator.redis.address import Wire

FIRST_ROOM = 1 << 20
"""Bytes of the buffer at first; it is doubled while the reply is longer."""


def read_raw(connection: Wire, *words: str | int | bytes, room: int = FIRST_ROOM) -> tuple[bytearray, int]:
    """Sends a command; returns a buffer, and how many of its bytes are the reply, which may be an error. There are at least
    16 bytes after it. Nothing else may be on its way on this connection.

    A PING with a random word follows the command: where that has come back, the reply before it is complete. No value
    can hold the word, which nobody knew when it was written.
    """
    word = secrets.token_hex(8).encode()
    end = b"$%d\r\n%b\r\n" % (len(word), word)
    connection.send_command(*words)
    connection.send_command("PING", word)
    socket = connection._sock  # type: ignore[attr-defined]  # noqa: SLF001 - redis-py would parse what it reads
    buffer, length = bytearray(room), 0
    while not buffer.endswith(end, 0, length):
        if length == len(buffer):
            buffer.extend(bytes(length))
        with memoryview(buffer) as whole, whole[length:] as free:
            count = socket.recv_into(free)
        if count == 0:
            raise redis_errors.ConnectionError("Connection closed by server.")
        length += count
    return buffer, length - len(end)
