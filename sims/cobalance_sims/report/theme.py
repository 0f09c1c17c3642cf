"""How figures look, and how they get onto the page: as SVG with the page's colours, so that light and dark are one
drawing.

Colours of owners are Okabe and Ito's, which people of every colour vision can tell apart, and no information is in
colour alone: labels, hatching and the shape of marks say the same.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

OWNERS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f8f2f", "#7a6fd0")
"""Readable on white and on nearly black."""

HATCHES = ("", "////", "....", "xxxx", "----", "oo")
"""For the owners after the eighth, and so on."""


@attrs.frozen
class Theme:
    """Colours by purpose."""

    ink: str
    soft: str
    """For secondary text."""
    line: str
    """Grids and edges."""
    paper: str
    alarm: str
    """For what went wrong: always with a mark of its own shape."""
    good: str
    plain: str
    """For data that needs no distinction."""


LIGHT = Theme(
    ink="#1d2733", soft="#5b6875", line="#d4dae0", paper="#ffffff", alarm="#c0392b", good="#00795a", plain="#0072b2"
)
DARK = Theme(
    ink="#e8edf2", soft="#9caab8", line="#36424e", paper="#151b22", alarm="#ff7a66", good="#3fc79a", plain="#5cb3e8"
)
_MARKED = Theme(
    ink="#010a01", soft="#010a02", line="#010a03", paper="#010a04", alarm="#010a05", good="#010a06", plain="#010a07"
)
"""Colours that nothing else has; in the SVG they become variables of the page."""


def variables(theme: Theme) -> str:
    """A theme as CSS."""
    return " ".join(f"--{name}: {value};" for name, value in attrs.asdict(theme).items())


Draw = Callable[[Theme], "Canvas"]


@attrs.frozen(kw_only=True)
class Chart:
    """One figure of the page."""

    name: str
    """For files and anchors."""
    title: str
    alt: str
    """Text alternative for people who cannot see the figure."""
    caption: str
    """What the figure shows, in words and numbers."""
    draw: Draw
    hints: dict[str, str] = attrs.field(factory=dict)
    """Gid of a mark → its tooltip."""


_RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "text.parse_math": False,  # names may contain dollar signs
    "svg.fonttype": "none",
    "figure.dpi": 100,
}


def svg(figure: Chart) -> str:
    """The figure for the page, accessible, and with nothing that could clash with another figure on it."""
    buffer = io.StringIO()
    with _style(_MARKED, salt=figure.name):
        canvas = figure.draw(_MARKED)
        canvas.savefig(
            buffer, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.05, metadata={"Date": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for name, colour in attrs.asdict(_MARKED).items():
        text = text.replace(colour, f"var(--{name})")
    text = re.sub(r'(\bid="|\bhref="#|url\(#)', rf"\g<1>{figure.name}-", text)
    for gid, hint in figure.hints.items():
        text = text.replace(
            f'<g id="{figure.name}-{gid}">', f'<g id="{figure.name}-{gid}"><title>{_escaped(hint)}</title>'
        )
    label = f'<title id="{figure.name}-title">{_escaped(figure.title)}</title><desc id="{figure.name}-desc">{_escaped(figure.alt)}</desc>'
    opened = re.sub(r'\s(?:width|height)="[^"]*pt"', "", text[: text.index(">")])
    described = f' role="img" aria-labelledby="{figure.name}-title {figure.name}-desc">'
    return f"{opened}{described}{label}{text[text.index('>') + 1 :]}"


def png(figure: Chart, path: str, theme: Theme = LIGHT) -> None:
    """Writes the figure to a file."""
    with _style(theme, salt=figure.name):
        canvas = figure.draw(theme)
        canvas.savefig(path, format="png", dpi=160, facecolor=theme.paper, bbox_inches="tight", pad_inches=0.15)


def _style(theme: Theme, salt: str) -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    colours = {
        "text.color": theme.ink,
        "axes.edgecolor": theme.line,
        "axes.labelcolor": theme.soft,
        "axes.titlecolor": theme.ink,
        "xtick.color": theme.line,
        "ytick.color": theme.line,
        "xtick.labelcolor": theme.soft,
        "ytick.labelcolor": theme.soft,
        "grid.color": theme.line,
        "legend.labelcolor": theme.ink,
        "figure.facecolor": theme.paper,
        "axes.facecolor": "none",
    }
    chosen: Any = {**_RC, **colours, "svg.hashsalt": salt}
    return mpl.rc_context(chosen)


def canvas(width_in: float, height_in: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Canvas, Any]:
    """Returns a figure and its axes, outside of pyplot, which would keep every figure for ever."""
    from matplotlib.figure import Figure as Canvas

    found = Canvas(figsize=(width_in, height_in), layout="constrained")
    return found, found.subplots(rows, columns, **options)


def _escaped(text: str) -> str:
    from html import escape

    return escape(text, quote=True)
