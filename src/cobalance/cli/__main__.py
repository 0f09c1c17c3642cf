"""Entry point of ``python -m cobalance.cli``, which is the same as ``cobalance``."""

from cobalance.cli import main

if __name__ == "__main__":
    main()
