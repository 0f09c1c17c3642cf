"""``cobalance bench``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from cobalance.errors import CobalanceError


class BenchMissing(CobalanceError):
    """What the bench compares with is not installed."""


def bench(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> int:
    """Measure each figure against its raw peer. `cobalance bench -- --help` lists its options."""
    try:
        from cobalance.bench import main
    except ImportError as error:
        raise BenchMissing(f"The bench cannot be loaded ({error}): pip install 'cobalance[bench]'.") from None
    return int(main([it for it in arguments if it != "--"]))
