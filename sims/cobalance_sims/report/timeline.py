"""Swim lanes: one for each resource, coloured by its owner, with every drain, gap and forced move of a churn story."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.errors import counted
from cobalance.ownership import CUT_SHORT, ENDINGS
from cobalance_sims.report.story import Segment, Timeline
from cobalance_sims.report.theme import HATCHES, OWNERS, Chart, Theme, canvas
from cobalance_sims.report.words import duration, moment, share, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LEAST_SHOWN = 0.0016
"""Share of the width: a drain or gap of a millisecond would be invisible among minutes."""

LANE_IN = 0.27
LETTER_SHARE = 0.0058
"""Share of the width that a letter of the smallest text takes."""
MEMBER_WORDS = {"joined": "joins", "leaving": "leaves", "expired_member": "is given up", "graced": "awaited"}


def timeline(story: Timeline) -> Chart:
    """Draws the figure of a story."""
    lanes = _Lanes.of(story)
    return Chart(
        name="timeline",
        title=f"Who owned what: {story.run}",
        alt=_alt(story),
        caption=_caption(story),
        draw=partial(_draw, lanes),
        hints={f"piece{at}": _hint(piece) for at, piece in enumerate(story.pieces)},
    )


@attrs.frozen
class _Lanes:
    story: Timeline
    rows: dict[str, int]
    labels: dict[str, str]
    members: dict[str, str]
    looks: dict[str, tuple[str, str]]
    """Owner → colour and hatch."""

    @classmethod
    def of(cls, story: Timeline) -> _Lanes:
        looks = {
            owner: (OWNERS[at % len(OWNERS)], HATCHES[at // len(OWNERS) % len(HATCHES)])
            for at, owner in enumerate(story.owners)
        }
        named = sorted({*story.owners, *(mark.member for mark in story.marks if not mark.resource)})
        return cls(
            story,
            {name: at for at, name in enumerate(story.resources)},
            shortened(list(story.resources), 18),
            shortened(named),
            looks,
        )

    def seconds(self, at_ms: int) -> float:
        return (at_ms - self.story.start_ms) / 1000


def _draw(lanes: _Lanes, theme: Theme) -> Canvas:
    story = lanes.story
    legend_rows = -(-len(story.owners) // 8)
    height_in = 1.3 + LANE_IN * len(story.resources) + 0.22 * legend_rows
    figure, axes = canvas(11, max(height_in, 2.6))
    axes.set_xlim(0, story.length_ms / 1000)
    axes.set_ylim(len(story.resources) - 0.4, -0.6)
    for at, piece in enumerate(story.pieces):
        _draw_piece(axes, lanes, piece, at, theme)
    _draw_cut_short(axes, lanes, theme)
    _draw_members(axes, lanes, theme)
    axes.set_yticks(range(len(story.resources)), [lanes.labels[it] for it in story.resources])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"seconds from {moment(story.start_ms)}")
    _draw_legend(figure, lanes, theme)
    return figure


def _draw_piece(axes: Any, lanes: _Lanes, piece: Segment, at: int, theme: Theme) -> None:
    from matplotlib.patches import Rectangle

    least_s = LEAST_SHOWN * lanes.story.length_ms / 1000
    start, width = lanes.seconds(piece.start_ms), (piece.end_ms - piece.start_ms) / 1000
    row = lanes.rows[piece.resource]
    if piece.state == "free":
        shape = Rectangle(
            (start, row - 0.09), max(width, least_s), 0.18, facecolor=theme.alarm, edgecolor="none", zorder=3
        )
    else:
        colour, hatch = lanes.looks[piece.owner]
        drains = piece.state == "draining"
        shape = Rectangle(
            (start, row - (0.22 if drains else 0.4)),
            max(width, least_s if drains else 0),
            0.44 if drains else 0.8,
            facecolor=colour,
            edgecolor=theme.paper,
            linewidth=0.6,
            hatch=hatch or None,
            zorder=2 if drains else 1,
        )
    shape.set_gid(f"piece{at}")
    axes.add_patch(shape)
    if piece.state == "held" and width > lanes.story.length_ms / 1000 * LETTER_SHARE * (
        len(lanes.members[piece.owner]) + 3
    ):
        colour, hatch = lanes.looks[piece.owner]
        behind = {"facecolor": colour, "edgecolor": "none", "pad": 1.2} if hatch else None
        axes.text(
            start + width / 2, row, lanes.members[piece.owner], color=_on(colour), fontsize=7.5, ha="center", va="center",
            clip_on=True, zorder=4, bbox=behind,
        )  # fmt: skip


def _on(colour: str) -> str:
    """Black or white, whichever is readable on it."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return "#ffffff" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.3 else "#101418"


def _draw_cut_short(axes: Any, lanes: _Lanes, theme: Theme) -> None:
    found = [mark for mark in lanes.story.marks if mark.kind in CUT_SHORT and mark.resource]
    if found:
        at = [lanes.seconds(mark.at_ms) for mark in found]
        rows = [lanes.rows[mark.resource] for mark in found]
        axes.scatter(
            at,
            rows,
            marker="X",
            s=70,
            color=theme.alarm,
            edgecolors=theme.paper,
            linewidths=0.9,
            zorder=6,
            clip_on=False,
        )


def _draw_members(axes: Any, lanes: _Lanes, theme: Theme) -> None:
    """Members that came and went, above the lanes; words only where they have room."""
    length_s = lanes.story.length_ms / 1000
    taken: list[list[tuple[float, float]]] = [[], []]
    for mark in lanes.story.marks:
        if mark.resource or mark.kind not in MEMBER_WORDS:
            continue
        at = lanes.seconds(mark.at_ms)
        if mark.kind == "joined" and at < length_s / 80:
            continue  # the run begins with them
        colour = theme.alarm if mark.kind == "expired_member" else theme.soft
        axes.axvline(at, color=colour, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0.5, alpha=0.8)
        words = f"{lanes.members[mark.member]} {MEMBER_WORDS[mark.kind]}"
        width_s = (len(words) + 2) * LETTER_SHARE * length_s
        to_left = at + width_s > length_s
        start = at - width_s if to_left else at
        level = next((at for at in (0, 1) if all(start + width_s <= a or start >= b for a, b in taken[at])), None)
        if level is None:
            continue
        taken[level].append((start, start + width_s))
        axes.annotate(
            words, (at, -0.6), xytext=(-3 if to_left else 3, 3 + 11 * level), textcoords="offset points", fontsize=7.5,
            color=colour, ha="right" if to_left else "left", annotation_clip=False,
        )  # fmt: skip


def _draw_legend(figure: Any, lanes: _Lanes, theme: Theme) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    first = lanes.looks[lanes.story.owners[0]][0]
    keys: list[Any] = [
        Patch(facecolor=colour, hatch=hatch or None, edgecolor=theme.paper, label=lanes.members[owner])
        for owner, (colour, hatch) in list(lanes.looks.items())[:24]
    ]
    keys += [
        Line2D([], [], color=first, linewidth=4, solid_capstyle="butt", label="narrow: draining"),
        Line2D([], [], color=theme.alarm, linewidth=2, solid_capstyle="butt", label="no owner"),
        Line2D(
            [],
            [],
            color="none",
            marker="X",
            markersize=8,
            markerfacecolor=theme.alarm,
            markeredgecolor=theme.paper,
            label="cut short",
        ),
    ]
    figure.legend(handles=keys, loc="outside lower left", ncols=8, fontsize=8, handlelength=1.4, columnspacing=1.2)


def _hint(piece: Segment) -> str:
    length = duration(piece.end_ms - piece.start_ms)
    words = {"held": "held by", "draining": "being drained by", "free": "without an owner"}[piece.state]
    return f"{piece.resource}: {words} {piece.owner} for {length}".replace("  ", " ")


def _alt(story: Timeline) -> str:
    return (
        f"Swim lanes of {counted(len(story.resources), 'resource')} over {duration(story.length_ms)}: each lane is coloured by its owner, "
        f"of whom there are {len(story.owners)}; narrow stretches are drains, thin ones in the colour of alarm are gaps, crosses are "
        "drains that were cut short, dashed lines are members that come and go."
    )


def _caption(story: Timeline) -> str:
    lanes_ms = story.length_ms * len(story.resources)
    ends = story.count(*ENDINGS)
    cut = story.count(*CUT_SHORT)
    shown = (
        ""
        if len(story.resources) == story.total_resources
        else f" (the {len(story.resources)} busiest of {story.total_resources:,} resources)"
    )
    members = (
        f"{counted(story.count('joined'), 'join')}, {counted(story.count('leaving'), 'leave')} and "
        f"{counted(story.count('expired_member'), 'lost member')}"
    )
    forced = f"{cut} of them cut short (crosses)" if cut else "none of them cut short"
    return (
        f"In {duration(story.length_ms)}{shown}, {members} made {counted(ends, 'tenure')} end, {forced}. Resources were held and worked "
        f"{share(story.time_ms('held'), lanes_ms)} of the time, draining {share(story.time_ms('draining'), lanes_ms)}, and without an "
        f"owner {share(story.time_ms('free'), lanes_ms)}; whatever did not have to move was never interrupted."
    )
