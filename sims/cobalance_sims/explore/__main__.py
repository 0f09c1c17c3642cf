"""``python -m cobalance_sims.explore``."""

from __future__ import annotations

import sys

from cobalance_sims.explore.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
