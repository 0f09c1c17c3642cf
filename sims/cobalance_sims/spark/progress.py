"""Shows the progress of a sweep: a bar for people who watch, a line for each wave in logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@attrs.define
class SweepProgress:
    """The progress of one sweep."""

    console: Console
    total: int = attrs.field(default=0, init=False)
    """Runs to be made now."""
    _bar: Progress | None = attrs.field(default=None, init=False)
    _done: int = attrs.field(default=0, init=False)
    _failed: int = attrs.field(default=0, init=False)
    _spent_s: float = attrs.field(default=0.0, init=False)
    _waves: int = attrs.field(default=0, init=False)

    @contextmanager
    def shown(self, total: int) -> Iterator[None]:
        """Shows progress for the length of a sweep of this many runs."""
        self.total = total
        if not self.console.is_terminal or not self.total:
            yield
            return
        columns = (
            TextColumn("simulating"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[news]}"),
        )
        with Progress(*columns, console=self.console) as self._bar:
            self._bar.add_task("sweep", total=self.total, news="the first wave tells how long it takes")
            yield

    def begins(self, runs: int) -> None:
        """A wave of this many runs begins."""
        if self._bar is not None and self._waves:
            self._bar.update(self._bar.task_ids[0], news=f"{self._news()}; {runs:,} runs in this wave")

    def finished(self, runs: int, failed: int, took_s: float) -> None:
        """A wave is committed."""
        self._waves += 1
        self._done += runs
        self._failed += failed
        self._spent_s += took_s
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, news=self._news())
        else:
            self.console.print(
                f"wave {self._waves}: {self._done:,} of {self.total:,} runs, {self._news()}", highlight=False
            )

    def _news(self) -> str:
        rate = self._done / self._spent_s if self._spent_s else 0.0
        left_s = (self.total - self._done) / rate if rate else 0.0
        failed = f", {self._failed:,} failed" if self._failed else ""
        return f"{rate:,.1f} a second{failed}, about {duration(left_s)} to go"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
