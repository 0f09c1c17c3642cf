"""``python -m proof.spec``."""

from __future__ import annotations

import sys

from proof.spec.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
