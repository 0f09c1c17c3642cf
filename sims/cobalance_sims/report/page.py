"""The page: one file, no scripts, nothing to fetch, and a content policy of its own that would forbid it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import attrs

from cobalance_sims.report.theme import DARK, LIGHT, Chart, svg, variables

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@attrs.frozen
class Tile:
    """One number, large."""

    value: str
    meaning: str
    tone: str = ""
    """``good`` or ``alarm``, where the number is one or the other."""


@attrs.frozen
class Table:
    """Rows of text under a heading."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@attrs.frozen(kw_only=True)
class Section:
    """A heading and its content."""

    title: str
    text: str = ""
    code: str = ""
    """A command to copy."""
    tiles: tuple[Tile, ...] = ()
    figures: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """Returns the whole document. All texts are plain text: they are escaped here."""
    body = "\n".join(_section(it) for it in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_CSS}</style>
</head>
<body>
<header><p class="brand">cobalance</p><h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p></header>
<main>
{body}
</main>
</body>
</html>
"""


def _section(it: Section) -> str:
    parts = [f"<section><h2>{escape(it.title)}</h2>"]
    if it.text:
        parts.append(f'<p class="text">{escape(it.text)}</p>')
    if it.code:
        parts.append(f"<pre><code>{escape(it.code)}</code></pre>")
    if it.tiles:
        parts.append(f'<dl class="tiles">{"".join(map(_tile, it.tiles))}</dl>')
    parts += map(_figure, it.figures)
    parts += map(_table, it.tables)
    return "\n".join([*parts, "</section>"])


def _tile(it: Tile) -> str:
    tone = f' class="{it.tone}"' if it.tone in {"good", "alarm"} else ""
    return f"<div{tone}><dt>{escape(it.meaning)}</dt><dd>{escape(it.value)}</dd></div>"


def _figure(it: Chart) -> str:
    return (
        f'<figure id="{it.name}"><h3>{escape(it.title)}</h3><div class="plot">{svg(it)}</div>'
        f"<figcaption>{escape(it.caption)}</figcaption></figure>"
    )


def _table(it: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in it.head)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in it.rows
    )
    caption = f"<figcaption>{escape(it.caption)}</figcaption>" if it.caption else ""
    return (
        f'<figure><h3>{escape(it.title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{caption}</figure>"
    )


_CSS = (
    f":root {{ color-scheme: light dark; {variables(LIGHT)} --page: #f3f5f7; }}"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} --page: #0c1116; }} }}"
    """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 Inter, "Helvetica Neue", Arial, sans-serif; }
header, main { max-width: 1120px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 44px; }
.brand { margin: 0; color: var(--good); font-weight: 700; letter-spacing: .08em; text-transform: uppercase; font-size: 12px; }
h1 { margin: 4px 0 2px; font-size: 34px; line-height: 1.15; letter-spacing: -.02em; overflow-wrap: anywhere; }
.sub { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
section { margin: 34px 0 46px; }
h2 { font-size: 22px; letter-spacing: -.01em; margin: 0 0 10px; }
h3 { font-size: 15px; margin: 0 0 8px; overflow-wrap: anywhere; }
.text { max-width: 78ch; margin: 0 0 14px; }
figure { margin: 16px 0; padding: 20px 22px; background: var(--paper); border: 1px solid var(--line); border-radius: 14px; }
figcaption { margin-top: 10px; color: var(--soft); max-width: 92ch; font-size: 14.5px; overflow-wrap: anywhere; }
.plot { overflow-x: auto; }
.plot svg { display: block; width: 100%; min-width: 720px; height: auto; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(225px, 1fr)); gap: 12px; margin: 0 0 16px; }
.tiles div { background: var(--paper); border: 1px solid var(--line); border-radius: 14px; padding: 14px 16px; display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.tiles dt { color: var(--soft); font-size: 13px; line-height: 1.35; }
.tiles dd { margin: 0; font-size: 25px; font-weight: 650; letter-spacing: -.02em; font-variant-numeric: tabular-nums; }
.tiles .good dd { color: var(--good); }
.tiles .alarm dd { color: var(--alarm); }
pre { background: var(--paper); border: 1px solid var(--line); border-left: 4px solid var(--good); border-radius: 10px; padding: 13px 16px; overflow-x: auto; font-size: 14px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 7px 10px; border-bottom: 1px solid var(--line); }
th[scope="row"], th:first-child { text-align: left; }
thead th { color: var(--soft); font-weight: 600; }
@media print { body { background: #fff; } figure { break-inside: avoid; } }
"""
)
