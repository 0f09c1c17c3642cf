"""The command ``cobalance``. It needs the extra ``cli``."""

from __future__ import annotations

import sys

EXTRA = ("cyclopts", "rich")


def main() -> None:
    """The entry point: runs the command line of this process and ends it."""
    try:
        from cobalance.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        sys.stderr.write("error: the command needs the extra `cli`: pip install 'cobalance[cli]'\n")
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
