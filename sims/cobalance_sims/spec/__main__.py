"""``python -m cobalance_sims.spec``."""

from __future__ import annotations

import sys

from cobalance_sims.spec.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
