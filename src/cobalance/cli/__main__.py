"""``python -m cobalance.cli``: the same as ``cobalance``."""

from cobalance.cli import main

if __name__ == "__main__":
    main()
