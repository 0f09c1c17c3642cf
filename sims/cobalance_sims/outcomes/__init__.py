"""Outcomes: folds the events of one run, simulated or real, into one row for each handover and one row for the run.

:func:`fold` reads the events once, in order of ``seq``; the cost does not depend on how far back they reach. It accepts
an incomplete journal: one that begins in the middle reveals owners by what they do, and after a gap only what is seen
again counts. A value that cannot be known is null.
"""

from __future__ import annotations

from cobalance_sims.outcomes.event import Event, of_entry
from cobalance_sims.outcomes.fold import Folded, RunFacts, fold

__all__ = ["Event", "Folded", "RunFacts", "fold", "of_entry"]
