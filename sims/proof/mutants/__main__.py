"""``python -m proof.mutants``."""

from __future__ import annotations

import sys

from proof.mutants.score import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
