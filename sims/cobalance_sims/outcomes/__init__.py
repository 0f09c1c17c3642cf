"""Outcomes: the events of one run, simulated or real, folded into a row for each handover and one for the run.

:func:`fold` reads the events once, in order of ``seq``, at a cost that does not depend on how long they reach back. It takes a
journal as it finds it: one that begins in the middle knows owners from what they do, and after a gap only what is seen again
counts. What nobody can know is null.
"""

from __future__ import annotations

from cobalance_sims.outcomes.event import Event, of_entry
from cobalance_sims.outcomes.fold import Folded, Known, fold

__all__ = ["Event", "Folded", "Known", "fold", "of_entry"]
