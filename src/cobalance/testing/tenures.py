"""What a group does to a tenure, for tests of work functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cobalance.group.tenure import Tenure


def ask_back(tenure: Tenure) -> None:
    """No new work may begin: ``tenure.active`` is false from now on. On the event loop."""
    tenure.ask_back()
