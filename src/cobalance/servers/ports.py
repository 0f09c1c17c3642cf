"""Free TCP ports on the loopback interface."""

import random
import socket

HOST = "127.0.0.1"
"""Private servers are reachable from this machine only."""

PORTS = range(20_000, 30_000)
"""Below the ports that Linux and macOS give to outgoing connections.

A client that keeps dialling a stopped server can otherwise be given the server's own port, connect to itself and
keep the server from coming back.
"""


def free_port() -> int:
    """A port that nothing listened on a moment ago."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop - 1} on {HOST}")
