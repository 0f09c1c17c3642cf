"""``cobalance sims``: the simulator, loaded only when it is asked for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from cobalance.errors import CobalanceError


class SimsMissing(CobalanceError):
    """The simulator is not installed."""


def sims(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> int:
    """Simulate in virtual time, tune timeouts from a journal: `cobalance sims --help`."""
    words = [it for it in arguments if it != "--"]
    try:
        from cobalance_sims.cli import main
    except ImportError as error:
        raise SimsMissing(f"The simulator cannot be loaded ({error}): pip install 'cobalance[sims]'.") from None
    return int(main(words))
