"""Run by Spark in place of the Python process in which a streaming source lives: connects first, and only then imports
PySpark.

Spark waits ten seconds for such a process to connect, which cannot be configured, and PySpark's own imports everything
before it does: half a second of CPU, which takes a busy machine longer. Only the standard library may be imported here.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from typing import Any

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
OKAY = b"ok"
BUFFER_BYTES = 65_536


def main() -> None:
    """Connects, if Spark listens in a known way, and continues as the process that Spark has asked for."""
    connection = connected()
    sys.path.insert(0, "")  # the working directory, as python -m does
    if connection is not None:
        use(connection)
    sys.argv = [MODULE]
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


def connected() -> socket.socket | None:
    """Returns a connection on which Spark has accepted the secret."""
    port, secret = os.environ.get("PYTHON_WORKER_FACTORY_PORT", ""), os.environ.get("PYTHON_WORKER_FACTORY_SECRET")
    if not port.isdecimal() or secret is None or os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true":
        return None
    connection = socket.create_connection(("127.0.0.1", int(port)))
    words = secret.encode()
    connection.sendall(len(words).to_bytes(4, "big") + words)
    answer = _received(connection, int.from_bytes(_received(connection, 4), "big"))
    if answer != OKAY:
        sys.exit("Spark did not accept its own secret.")
    return connection


def use(connection: socket.socket) -> None:
    """Makes PySpark take this connection instead of opening one. Before 4.2 it looks for the function in another module."""
    from pyspark import util, worker_util

    def made(*_: Any) -> tuple[Any, socket.socket]:
        return connection.makefile("rwb", BUFFER_BYTES), connection

    for module in (util, worker_util):
        vars(module)["local_connect_and_auth"] = made


def _received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            sys.exit("Spark went away.")
        found += part
    return found


if __name__ == "__main__":
    main()
