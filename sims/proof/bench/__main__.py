"""``python -m proof.bench``."""

from __future__ import annotations

import sys

from proof.bench.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
