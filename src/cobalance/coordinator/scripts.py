"""Loads a verb's Lua: its own file, with the shared prelude inserted where the file says ``--- @prelude``.

The heartbeat handles its common case above that line, so that it does not pay for what it does not use.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from cobalance.coordinator.transport import Script

VERBS = (
    "join",
    "heartbeat",
    "release",
    "commit",
    "leave",
    "tick",
    "set_resources",
    "configure",
    "resume",
    "reset_offsets",
    "describe",
    "repair",
    "delete",
    "report",
    "vouch",
    "step_down",
    "suspect",
)

_MARK = "--- @prelude\n"

_INNER = "20_records.lua"
"""With this part of the prelude begins a function in the script, which has all that follows.

Each call makes all functions of a script. For each name that one takes from the function around it, Lua walks through the
names taken from that before; names from further out it just copies. With 290 names in one function, that walk took more
than half of a call that has nothing to do. Lua lets a function take 60 names from further out, which this one stays below.
"""


@cache
def prelude() -> str:
    """The part shared by all verbs, in file order. :func:`load` closes the function that it begins."""
    folder = files("cobalance.coordinator") / "lua" / "_prelude"
    parts = sorted((part for part in folder.iterdir() if part.name.endswith(".lua")), key=lambda part: part.name)
    texts = {part.name: part.read_text(encoding="utf-8") for part in parts}
    texts[_INNER] = "return (function()\n" + texts[_INNER]
    return "\n".join(texts.values())


@cache
def load(verb: str) -> Script:
    """The complete script of a verb."""
    if verb not in VERBS:
        raise ValueError(f"no such verb: {verb!r}; there are {', '.join(VERBS)}")
    source = (files("cobalance.coordinator") / "lua" / f"{verb}.lua").read_text(encoding="utf-8")
    before, mark, after = source.partition(_MARK)
    if not mark:
        raise ValueError(f"{verb}.lua has no line {_MARK.strip()!r}")
    return Script.of(verb, before + prelude() + after + "end)()\n")
