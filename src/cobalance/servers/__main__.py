"""`python -m cobalance.servers [--management] -- COMMAND ...` runs a command with a Redis and a RabbitMQ at hand.

The command finds them in COBALANCE_REDIS_URL, COBALANCE_AMQP_URL and COBALANCE_MANAGEMENT_URL, and its exit code becomes
ours. Without a command, the servers run until Ctrl-C.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from types import FrameType

from cobalance.servers import Servers, ServerUnavailable, running

INTERRUPTED = 128 + signal.SIGINT


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code: the command's own, 1 without servers, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m cobalance.servers", description=__doc__.splitlines()[0])
    parser.add_argument("--management", action="store_true", help="with RabbitMQ's management API")
    parser.add_argument("command", nargs="*", help="the command to run; none: keep the servers until Ctrl-C")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    try:
        with running(management=options.management) as servers:
            return _run(options.command, servers) if options.command else _keep(servers)
    except ServerUnavailable as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(command: list[str], servers: Servers) -> int:
    with subprocess.Popen(command, env=os.environ | servers.environment()) as process:
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                continue  # Ctrl-C reaches the command too: it decides when to end, and the servers outlive it.
            except SystemExit:
                process.terminate()
            else:
                return code if code >= 0 else 128 - code


def _keep(servers: Servers) -> int:
    for name, url in servers.environment().items():
        sys.stdout.write(f"{name}={url}\n")
    sys.stdout.flush()
    while True:
        time.sleep(1)  # not one pause: a signal just before it would not end it


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
