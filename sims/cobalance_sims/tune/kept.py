"""Runs that an interrupted search has made: kept in a file beside its result, so that the same search resumes from
there.

A run is identified by its churn, its settings, its seed and the version of the kernel: nothing else changes its result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from cobalance.errors import CobalanceError
from cobalance.limits import parse_json
from cobalance_sims.calibrate.drawing import DrawnChurns, churns_of
from cobalance_sims.records import OUTCOME
from cobalance_sims.simulate.kernel import VERSION
from cobalance_sims.tune.trials import Asked, Outcome, settings_of

_MAPS = frozenset(it.name for it in OUTCOME.columns if it.type == "map<int,long>")


class NotKept(CobalanceError):
    """The file of the runs cannot be read or written."""


class Runs(Protocol):
    """Makes runs, a few at a time; see runners.py."""

    @property
    def at_once(self) -> int:
        """How many runs to ask for before they are written: the most that an interruption loses."""

    def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
        """Returns their outcomes, in any order."""


@attrs.define
class Kept:
    """Makes the runs that the file does not have, and adds them."""

    file: Path
    churns: DrawnChurns = attrs.field(converter=churns_of)
    runner: Runs | None = None
    """May be given later, but before the first run that the file does not have."""
    _known: dict[str, Outcome] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for line in self._read().splitlines():
            try:
                key, outcome = parse_json(line, list)
                self._known[key] = _with_numbers(outcome)
            except (ValueError, TypeError, AttributeError):
                continue  # the last line of a search that was killed

    def _read(self) -> bytes:
        try:
            return self.file.read_bytes() if self.file.exists() else b""
        except OSError as error:
            raise NotKept(f"{self.file}, which holds runs, cannot be read ({error.strerror}).") from None

    @property
    def count(self) -> int:
        """Number of runs in the file."""
        return len(self._known)

    def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
        """In the order in which they are asked for, whether made now or before."""
        keys = [self._key(*it) for it in asked]
        missing = [it for it, key in zip(asked, keys, strict=True) if key not in self._known]
        while missing and self.runner is not None:
            some = max(1, self.runner.at_once)
            self._make(self.runner, missing[:some])
            missing = missing[some:]
        return [self._known[key] for key in keys if key in self._known]

    def _make(self, runner: Runs, asked: Sequence[Asked]) -> None:
        made = {self._key(settings_of(it, asked[0][0]), it["seed"]): it for it in runner(asked)}
        self._known |= made
        lines = [json.dumps([key, {**it, "params": None}]) for key, it in made.items()]  # long, and in replay as well
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write("\n".join(["", *lines, ""]))  # ends a line that a killed search has left unfinished
        except OSError as error:
            raise NotKept(f"{self.file} cannot be written ({error.strerror}). What it holds is kept.") from None

    def _key(self, settings: Any, seed: int) -> str:
        text = json.dumps([VERSION, self.churns.drawn(seed).table(), attrs.asdict(settings), seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _with_numbers(outcome: Mapping[str, Any]) -> Outcome:
    """The bins of histograms are texts in JSON."""
    return {
        name: {int(bin_): count for bin_, count in value.items()} if name in _MAPS else value
        for name, value in outcome.items()
    }
