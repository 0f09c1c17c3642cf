"""The command ``cobalance``."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point: runs this process's command line and exits."""
    from cobalance.cli.app import run

    sys.exit(run(sys.argv[1:]))
