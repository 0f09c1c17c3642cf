"""``python -m cobalance_sims.mutants``."""

from __future__ import annotations

import sys

from cobalance_sims.mutants.score import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
