"""Shows the demo while it runs: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from cobalance.demo.scene import Scene, WorkerScene

LINE_EVERY_S = 2.0
DRAW_EVERY_S = 0.15

STYLES = {"member": "green", "leaving": "yellow", "killed": "red", "left": "dim", "starting": "cyan"}


class View(Protocol):
    """Displays a demo, for the duration of a ``with``."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, text: str) -> None:
        """Reports an event."""

    def show(self, scene: Scene) -> None:
        """Shows the current state; called many times per second."""


class LineView:
    def __init__(self, console: Console) -> None:
        self._console, self._next_s = console, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, scene: Scene) -> None:
        if scene.seconds >= self._next_s:
            self._next_s = scene.seconds + LINE_EVERY_S
            held = "  ".join(f"{it.name}: {_partitions(it)}" for it in scene.workers if it.held or it.draining)
            self.say(f"{scene.seconds:5.1f} s  {scene.processed:,} of {scene.published:,}  {held}")


class LiveView:
    def __init__(self, console: Console) -> None:
        self._live, self._next_s = Live(console=console, auto_refresh=False), 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False)

    def show(self, scene: Scene) -> None:
        if scene.seconds >= self._next_s:
            self._next_s = scene.seconds + DRAW_EVERY_S
            self._live.update(_table(scene), refresh=True)


def view_for(console: Console) -> View:
    """Selects the view for the console."""
    return LiveView(console) if console.is_terminal else LineView(console)


def _table(scene: Scene) -> Table:
    rate = sum(it.rate for it in scene.workers)
    table = Table(
        title=f"{scene.step}   {scene.seconds:.0f} s",
        caption=f"published {scene.published:,}   processed {scene.processed:,}   {rate:,.0f} messages/s   "
        f"without an owner {scene.free}",
        min_width=90,
    )
    table.add_column("process")
    table.add_column("state")
    table.add_column("partitions (draining in brackets)", ratio=1)
    table.add_column("messages/s", justify="right")
    table.add_column("processed", justify="right")
    for it in scene.workers:
        style = STYLES[it.phase]
        table.add_row(
            it.name,
            f"[{style}]{it.phase}[/]",
            _partitions(it).replace("[", r"\["),
            f"{it.rate:,.0f}",
            f"{it.processed:,}",
        )
    return table


def _partitions(worker: WorkerScene) -> str:
    numbers = [(n, f"{n}") for n in worker.held] + [(n, f"[{n}]") for n in worker.draining]
    return " ".join(text for _, text in sorted(numbers))
