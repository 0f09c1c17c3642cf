"""How a process looks between two steps of the world, and what must have happened to it since the last look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from cobalance_sims.simulate.process import Process

PHASES = {"held": "working", "draining": "draining", "closing": "draining", "aborted": "aborted"}
"""The specification's names for the states of a tenure; the others are stopped, finished or not."""

WORKED = ("working", "draining")


@attrs.frozen
class Sighting:
    """The state of one process."""

    tenures: dict[str, tuple[int, str]] = attrs.Factory(dict)
    """Resource → token, phase."""
    lease_until: int | None = None
    believed: bool = False
    """Whether that lease was still valid when this was seen."""
    leaving: bool = False
    frozen: bool = False
    gone: bool = False

    @classmethod
    def of(cls, process: Process, count: Callable[[str, int | None], int]) -> Sighting:
        """The process as it is now."""
        session, now = process.session, process.world.now + process.offset_ms
        return cls(
            tenures={
                name: (count(name, token), PHASES.get(state, "stopped"))
                for name, (token, state) in session.holdings.snapshot().items()
            },
            lease_until=session.lease.until,
            believed=session.lease.until is not None and not session.lease.over(now),
            leaving=process.leaving,
            frozen=process.paused,
            gone=not process.alive,
        )

    def since(self, before: Sighting) -> Iterator[tuple[str, str]]:
        """Yields what must have happened: event and resource ("" where it is about the process)."""
        if self.gone:
            if not before.gone:
                yield "crash", ""
            return
        if before.frozen and not self.frozen:
            yield "thaw", ""
        yield from self._news(before)
        for name in self.tenures:
            yield from self._ends(before, name)
        if self.frozen and not before.frozen:
            yield "freeze", ""

    def _news(self, before: Sighting) -> Iterator[tuple[str, str]]:
        has_heard = self.believed and self.lease_until != before.lease_until
        if self._stops(before, has_heard=has_heard):
            yield "stop", ""
        if self.lease_until is None and before.lease_until is not None:
            yield "lose", ""
        if has_heard:
            yield "hear", ""

    def _stops(self, before: Sighting, *, has_heard: bool) -> bool:
        """It begins to drain without having been asked, or to leave what it does not hold."""
        drains = any(
            phase == "draining" and before.tenures.get(name) == (token, "working")
            for name, (token, phase) in self.tenures.items()
        )
        return not before.leaving and ((drains and not has_heard) or self.leaving)

    def _ends(self, before: Sighting, name: str) -> Iterator[tuple[str, str]]:
        """The end of a tenure it had before. A new one that is stopped at once was never begun."""
        token, phase = self.tenures[name]
        had_token, had_phase = before.tenures.get(name, (0, ""))
        if had_token != token or had_phase not in (*WORKED, "aborted"):
            return
        if phase == "aborted" and had_phase in WORKED:
            yield "abort", name
        elif phase == "stopped" and had_phase in WORKED:
            yield "finish", name

    def as_fields(self) -> dict[str, dict[str, int | str]]:
        """The fields for the specification."""
        return {name: {"t": token, "phase": phase} for name, (token, phase) in self.tenures.items()}
