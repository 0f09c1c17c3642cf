"""Entry point of ``python -m cobalance``."""

from cobalance.cli import main

if __name__ == "__main__":
    main()
