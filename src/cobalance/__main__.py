"""``python -m cobalance``: the same as ``cobalance``."""

from cobalance.cli import main

if __name__ == "__main__":
    main()
