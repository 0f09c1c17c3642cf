"""The demo's story: three processes become five, one leaves, one is killed, one more joins."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import attrs

from cobalance.demo.evidence import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Iterator

FOUNDERS = ("A", "B", "C")


@attrs.frozen
class PlannedChange:
    """One change. The next begins when the group is quiet again and has worked for a while."""

    kind: ChangeKind
    worker: str

    @property
    def name(self) -> str:
        """For display."""
        return {
            "join": f"{self.worker} joins",
            "leave": f"{self.worker} leaves",
            "crash": f"{self.worker} is killed (SIGKILL)",
        }[self.kind]


def story(seed: int) -> Iterator[PlannedChange]:
    """The steps after the founders have settled. The seed determines who leaves and who is killed."""
    leaver, victim = random.Random(seed).sample(FOUNDERS, 2)
    yield PlannedChange("join", "D")
    yield PlannedChange("join", "E")
    yield PlannedChange("leave", leaver)
    yield PlannedChange("crash", victim)
    yield PlannedChange("join", "F")
