"""What goes wrong when a story is told on real servers."""

from __future__ import annotations

from cobalance.errors import CobalanceError


class TruthFailed(CobalanceError):
    """A telling on real servers did not come to its end; the message says why."""
