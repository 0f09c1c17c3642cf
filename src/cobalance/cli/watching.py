"""``--watch``: the same output again every second, in place on a terminal, until Ctrl-C."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import attrs
from cyclopts import Parameter

from cobalance.cli.exits import OK
from cobalance.cli.output import Cell, print_json, print_table, remark, table_lines
from cobalance.errors import ServerError

EVERY_S = 1.0

Watching = Annotated[
    bool,
    Parameter(name="--watch", negative="", help="Show it again every second, until Ctrl-C; as JSON, a line each time."),
]


@attrs.frozen(kw_only=True)
class Page:
    """What a command shows at one moment."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    json: Any
    """The same for programs."""
    remarks: Sequence[str] = ()
    """For people, beside the output."""
    within: int | None = None
    """The width of a line; None leaves it as long as it gets."""

    def print(self, *, json: bool) -> None:
        for text in self.remarks:
            remark(text)
        if json:
            print_json(self.json)
        else:
            print_table(self.columns, self.rows, within=self.within)


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Around what has no other end than Ctrl-C, which is a normal one."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(OK)


@until_interrupted()
def watch(read: Callable[[], Page], *, json: bool) -> NoReturn:
    """Shows what is read, again and again. A server that fails is waited for, which is said once."""
    show = _print_line if json else _in_place() if sys.stdout.isatty() else _print_below
    failure = ""
    while True:
        try:
            show(read())
            failure = ""
        except ServerError as error:
            if str(error) != failure:
                remark(f"warning: {error} Trying again.")
            failure = str(error)
        time.sleep(EVERY_S)


def _print_line(page: Page) -> None:
    print_json(page.json, line=True)


def _print_below(page: Page) -> None:
    page.print(json=False)
    print(flush=True)


def _in_place() -> Callable[[Page], None]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
    atexit.register(live.stop)  # shows the cursor again

    def show(page: Page) -> None:
        live.start()
        within = None if page.within is None else max(page.within, console.width)
        live.update(Text("\n".join(_lines(page, within)), no_wrap=True, overflow="ellipsis"), refresh=True)

    return show


def _lines(page: Page, within: int | None) -> Iterable[str]:
    yield time.strftime("%H:%M:%S")
    yield from table_lines(page.columns, page.rows, within=within)
    yield from page.remarks
