"""A planted bug, as data."""

from __future__ import annotations

from hashlib import sha256

import attrs


@attrs.frozen(kw_only=True)
class Mutant:
    """One change to one production file."""

    name: str
    file: str
    """Path below ``src/cobalance``."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    breaks: str
    """What goes wrong, in a sentence."""
    rungs: tuple[str, ...]
    """The rungs that have to notice it, see :mod:`proof.mutants.rungs`."""
    equivalent: str = ""
    """Why it changes nothing that any promise is about, if that is proven."""

    @property
    def digest(self) -> str:
        """Identifies the change itself: a score belongs to this one, and to no other."""
        return sha256(f"{self.file}\0{self.old}\0{self.new}".encode()).hexdigest()[:16]


def lua(name: str, file: str, old: str, new: str, breaks: str, *rungs: str, equivalent: str = "") -> Mutant:
    """A change to a script (``commit``) or to a part of the prelude (``50_moves``)."""
    folder = "coordinator/lua/_prelude/" if file[0].isdigit() else "coordinator/lua/"
    return Mutant(
        name=name,
        file=f"{folder}{file}.lua",
        old=old,
        new=new,
        breaks=breaks,
        rungs=rungs,
        equivalent=equivalent,
    )


def python(name: str, file: str, old: str, new: str, breaks: str, *rungs: str, equivalent: str = "") -> Mutant:
    """A change to a module of the member's side."""
    return Mutant(
        name=name,
        file=f"member/{file}.py",
        old=old,
        new=new,
        breaks=breaks,
        rungs=rungs,
        equivalent=equivalent,
    )


def partition(name: str, file: str, old: str, new: str, breaks: str, *rungs: str, equivalent: str = "") -> Mutant:
    """A change to the core of a partition (``core``), or of a stream (``../streams/continuity``)."""
    path = f"rabbitmq/partition/{file}.py".replace("partition/../", "")
    return Mutant(name=name, file=path, old=old, new=new, breaks=breaks, rungs=rungs, equivalent=equivalent)
