"""Acts on tenures like a group does, for tests of work functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cobalance.group.tenure import Tenure


def ask_back(tenure: Tenure) -> None:
    """Asks the tenure back: no new work may begin, and ``tenure.active`` becomes false. Call it on the event loop."""
    tenure.ask_back()
