"""``cobalance sims``: the simulator and the explorer, loaded only when they are asked for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from cobalance.errors import CobalanceError


class SimsMissing(CobalanceError):
    """The simulator is not installed."""


def sims(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> int:
    """Simulate in virtual time, explore every interleaving, tune timeouts from a journal: `cobalance sims --help`."""
    words = [it for it in arguments if it != "--"]
    try:
        from cobalance_sims.cli import main as tell
        from cobalance_sims.explore.cli import main as explore
    except ImportError as error:
        raise SimsMissing(f"The simulator cannot be loaded ({error}): pip install 'cobalance[sims]'.") from None
    return int(explore(words[1:]) if words[:1] == ["explore"] else tell(words))
