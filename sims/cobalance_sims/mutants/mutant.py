"""A planted bug, as data."""

from __future__ import annotations

import attrs

LADDER = ("2x1", "tiny")
"""The scopes that have to notice it, the cheapest first."""


@attrs.frozen(kw_only=True)
class Mutant:
    """One change to one production file."""

    name: str
    file: str
    """Below ``src/cobalance``."""
    old: str
    """Exactly once in the file."""
    new: str
    breaks: str
    """What goes wrong, in a sentence."""
    scopes: tuple[str, ...] = LADDER
    equivalent: str = ""
    """Why it changes nothing that any promise speaks of, if that is proven."""


def lua(name: str, file: str, old: str, new: str, breaks: str, *scopes: str, equivalent: str = "") -> Mutant:
    """A change to a script (``commit``) or to a part of the prelude (``50_moves``)."""
    folder = "coordinator/lua/_prelude/" if file[0].isdigit() else "coordinator/lua/"
    return Mutant(
        name=name,
        file=f"{folder}{file}.lua",
        old=old,
        new=new,
        breaks=breaks,
        scopes=scopes or LADDER,
        equivalent=equivalent,
    )


def python(name: str, file: str, old: str, new: str, breaks: str, *scopes: str, equivalent: str = "") -> Mutant:
    """A change to a module of the member's side."""
    return Mutant(
        name=name,
        file=f"{file}.py",
        old=old,
        new=new,
        breaks=breaks,
        scopes=scopes or LADDER,
        equivalent=equivalent,
    )
