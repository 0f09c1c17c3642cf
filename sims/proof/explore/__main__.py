"""``python -m proof.explore``."""

from __future__ import annotations

import sys

from proof.explore.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
