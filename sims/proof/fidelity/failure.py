"""The error of a run on real servers."""

from __future__ import annotations

from cobalance.errors import CobalanceError


class FidelityFailed(CobalanceError):
    """A run on real servers did not finish; the message says why."""
