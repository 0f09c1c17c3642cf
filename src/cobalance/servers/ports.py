"""Free TCP ports on the loopback interface."""

import random
import socket

HOST = "127.0.0.1"
"""Private servers are reachable from this machine only."""

PORTS = range(20_000, 30_000)
"""Below the ephemeral ports of Linux and macOS.

Otherwise a client that keeps connecting to a stopped server can be assigned the server's own port, connect to itself
and keep the server from coming back.
"""


def free_port() -> int:
    """Returns a port that nothing was listening on a moment ago."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop - 1} on {HOST}")
