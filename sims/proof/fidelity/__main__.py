"""``python -m proof.fidelity``."""

from __future__ import annotations

import sys

from proof.fidelity.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
