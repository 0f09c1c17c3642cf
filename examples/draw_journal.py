"""Draws who worked what, and when, from a group's journal: a lane each resource, coloured by its owner.

    pip install 'cobalance[spark]'       # which brings matplotlib
    python examples/draw_journal.py GROUP FILE.svg

A member is named by its instance id, or by its host and process id.
"""

import os
import sys
from itertools import dropwhile
from pathlib import Path

from cobalance.coordinator.open import open_transport
from cobalance.journal import Journal
from cobalance_sims.outcomes.event import of_entry
from cobalance_sims.report.story import tell
from cobalance_sims.report.theme import DARK, LIGHT, svg, variables
from cobalance_sims.report.timeline import timeline

REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
COLOURS = f"svg {{ {variables(LIGHT)} }} @media (prefers-color-scheme: dark) {{ svg {{ {variables(DARK)} }} }}"


def draw(group: str) -> str:
    """The picture, in the reader's light or dark."""
    entries = list(dropwhile(lambda it: not it.member, Journal(open_transport(REDIS_URL), group).entries()))
    names = {it.member: it.instance_id or it.label for it in entries if it.kind == "joined"}
    events = [of_entry(it, group)._replace(member=names.get(it.member, it.member)) for it in entries]
    story = tell(group, events)
    if story is None:
        sys.exit(f"group {group} has held nothing yet")
    opened, _, rest = svg(timeline(story)).partition(">")
    return f"{opened}><style>{COLOURS} text {{ font-family: sans-serif }}</style>{rest}"


if __name__ == "__main__":
    group, file = sys.argv[1:]
    Path(file).write_text(draw(group), "utf-8")
