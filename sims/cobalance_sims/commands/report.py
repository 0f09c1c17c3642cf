"""``cobalance sims report``: a sweep, a journal or a recommendation as one page to look at."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cobalance.errors import CobalanceError, UsageError

USAGE = 2
INSTALL = "pip install 'cobalance[spark]'"


class ReportImpossible(CobalanceError):
    """What draws and reads is not installed."""


def main(words: Sequence[str]) -> int:
    """Writes the page, and says where; 2 when the command was wrong."""
    try:
        options = _parser().parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    try:
        import matplotlib as mpl  # noqa: F401
        import pyarrow as pa  # noqa: F401
    except ImportError as error:
        raise ReportImpossible(f"A report needs matplotlib and pyarrow ({error}): {INSTALL}.") from None
    _write(options)
    return 0


def _write(options: argparse.Namespace) -> None:
    from cobalance_sims.report.build import document, write_pngs
    from cobalance_sims.report.sources import read

    materials = [read(path, options.run) for path in options.source]
    text = document(materials, options.title or "Handovers under churn")
    out = Path(options.out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        pictures = write_pngs(materials, Path(options.png)) if options.png else []
    except OSError as error:
        raise UsageError(f"{error.filename or out} cannot be written ({error.strerror}): name another place.") from None
    also = f", and {len(pictures)} pictures in {options.png}" if pictures else ""
    sys.stdout.write(f"{out}: {len(text.encode()) / 1e6:.1f} MB{also}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cobalance sims report",
        description="Draw a sweep, an exported journal or a recommendation as one HTML file that needs no network.",
    )
    parser.add_argument(
        "source", nargs="+", metavar="IN", help="what sweep, journal or tune wrote with --out; several make one page"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="such as report.html")
    parser.add_argument("--png", metavar="DIR", help="each figure as a PNG as well")
    parser.add_argument(
        "--run", metavar="ID", help="the run, or group, whose story is told; by default the most telling one"
    )
    parser.add_argument("--title", help="of the page")
    return parser
