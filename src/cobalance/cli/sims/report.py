"""``cobalance sims report``: a sweep, a journal or a recommendation as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cobalance.errors import CobalanceError, UsageError, counted
from cobalance_sims.spark.errors import INSTALL

app = App(name="report")


class ReportImpossible(CobalanceError):
    """A package that the report needs is not installed."""


@app.default
def report(
    *source: Annotated[str, Parameter(help="Output of sweep, journal or tune; several make one page.")],
    out: Annotated[Path, Parameter(help="The file to write, such as report.html.")],
    png: Annotated[Path | None, Parameter(help="Also write each figure as a PNG to this folder.")] = None,
    run: Annotated[
        str | None, Parameter(help="The run or group to show in detail; by default the most informative one.")
    ] = None,
    title: Annotated[str | None, Parameter(help="Title of the page; by default what was found.")] = None,
) -> None:
    """Draw a sweep, an exported journal or a recommendation as one HTML file that needs no network."""
    if not source:
        raise UsageError("Give what is to be drawn: what sweep, journal or tune wrote with --out.")
    try:
        import matplotlib as mpl  # noqa: F401
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        raise ReportImpossible(f"A report needs matplotlib and pyarrow ({error}): {INSTALL}.") from None
    from cobalance_sims.report.build import document, write_pngs
    from cobalance_sims.report.sources import read

    materials = [read(path, run) for path in source]
    text = document(materials, title)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        pictures = write_pngs(materials, png) if png else []
    except OSError as error:
        raise UsageError(f"{error.filename or out} cannot be written ({error.strerror}): name another place.") from None
    also = f", and {counted(len(pictures), 'picture')} in {png}" if pictures else ""
    print(f"{out}: {len(text.encode()) / 1e6:.1f} MB{also}")
