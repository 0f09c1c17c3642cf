"""``python -m proof.bench``."""

from __future__ import annotations

import logging
import sys

from proof.bench.run import main

if __name__ == "__main__":
    logging.getLogger("cobalance").setLevel(logging.ERROR)  # here, since the tests call main
    sys.exit(main(sys.argv[1:]))
