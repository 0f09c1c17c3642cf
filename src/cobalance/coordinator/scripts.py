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

_OPENING = frozenset({"20_records.lua", "25_owned.lua", "87_expiry.lua"})
"""Parts that open a function of their own, which the rest of the script is in.

Each call makes all functions of a script. For each name that one takes from the function around it, Lua walks through the
names of that which were taken before; names from further out it just copies. In one function with 250 others that walk
took more than half of a call that has nothing to do. A function may take 60 names from further out, so not every part can open one.
"""


@cache
def prelude() -> str:
    """The part shared by all verbs, in file order. Functions that it opens are closed by :func:`load`."""
    folder = files("cobalance.coordinator") / "lua" / "_prelude"
    parts = sorted((part for part in folder.iterdir() if part.name.endswith(".lua")), key=lambda part: part.name)
    return "\n".join(
        ("return (function()\n" if part.name in _OPENING else "") + part.read_text(encoding="utf-8") for part in parts
    )


@cache
def load(verb: str) -> Script:
    """The complete script of a verb."""
    if verb not in VERBS:
        raise ValueError(f"no such verb: {verb!r}; there are {', '.join(VERBS)}")
    source = (files("cobalance.coordinator") / "lua" / f"{verb}.lua").read_text(encoding="utf-8")
    before, mark, after = source.partition(_MARK)
    if not mark:
        raise ValueError(f"{verb}.lua has no line {_MARK.strip()!r}")
    return Script.of(verb, before + prelude() + after + "end)()\n" * len(_OPENING))
