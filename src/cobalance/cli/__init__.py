"""The command ``cobalance``."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point: runs this process's command line and exits."""
    from cobalance.cli.app import run

    for stream in (sys.stdout, sys.stderr):  # a name that the terminal's encoding lacks is shown, and fails no command
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))
