"""Takes back each changed setting whose gain is not certain: a setting is worth changing only for a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from cobalance_sims.tune.space import with_values
from cobalance_sims.tune.verdict import Judged, difference, judge

if TYPE_CHECKING:
    from cobalance_sims.tune.preferences import Preferences
    from cobalance_sims.tune.trials import Trials


@attrs.frozen(kw_only=True)
class Parsimony:
    """Judges simpler choices over seeds that the search has not seen."""

    trials: Trials
    today: Judged
    preferences: Preferences
    seeds: Sequence[int]
    tolerance: float

    def simplest(self, choice: Judged) -> Judged:
        """The choice, with today's value of each setting without which it is not surely dearer, nor by more than the
        tolerance. It still keeps every limit, and is surely better than today's settings if those keep them as well.
        """
        found = choice
        for name, value in attrs.asdict(self.today.settings).items():
            settings = with_values(found.settings, **{name: value})
            if settings is None or settings in (found.settings, self.today.settings):
                continue
            self.trials.make([settings], self.seeds, f"whether {name} has to change")
            simpler = judge(self.trials, settings, self.seeds, self.preferences)
            if self._is_as_good(simpler, choice):
                found = simpler
        return found

    def _is_as_good(self, simpler: Judged, choice: Judged) -> bool:
        limits, draws = self.preferences.limits, self.trials.draws(self.seeds)
        if simpler.keeps(limits) != "kept":
            return False
        if self.today.keeps(limits) == "kept" and difference(self.today, simpler, draws).low <= 0:
            return False
        loss = difference(simpler, choice, draws)
        return loss.low <= 0 and loss.value <= self.tolerance * max(choice.total.value, 1e-9)
