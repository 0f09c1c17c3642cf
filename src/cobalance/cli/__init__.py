"""The command ``cobalance``."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point: runs the command line of this process and ends it."""
    from cobalance.cli.app import run

    sys.exit(run(sys.argv[1:]))
