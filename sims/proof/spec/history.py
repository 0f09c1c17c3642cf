"""One run as the events that ``Histories.tla`` follows, or ``HandoverHistories.tla``: of a simulated group, or of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

PROMISES = (
    "INVARIANTS S1 S2 S5 RAInvariant RBInvariant RRInvariant",
    "PROPERTIES TokensRise S3 S4 S6",
)

HANDOVER_PROMISES = (
    "INVARIANTS OneAtWork Guarded InOrder AckedIsFinished",
    "PROPERTIES Once CommittedRises Fenced",
)

Event = dict[str, Any]
"""``is`` names it; the other fields are those in :data:`FIELDS`. Members are processes, tokens are counted from 1."""

FIELDS: dict[str, tuple[str, ...]] = {
    "pass": ("ms",),
    "list": ("some", "all"),
    "join": ("m", "all"),
    "lose data": (),
    "recover": (),
    **dict.fromkeys(("tell", "leave", "left", "expire"), ("m",)),
    **dict.fromkeys(("start", "hear", "lose", "stop", "crash", "freeze", "thaw"), ("m",)),
    **dict.fromkeys(("grant", "revoke", "withdraw", "cancel", "force", "refuse"), ("r", "m", "t")),
    **dict.fromkeys(("add", "remove", "delete"), ("r",)),
    **dict.fromkeys(("commit", "release", "abandon", "fenced"), ("r", "m", "t", "offset")),
    **dict.fromkeys(("finish", "abort"), ("m", "r")),
    "has": ("m", "all"),
    "record": ("all",),
}
"""Every kind of event of a group, and its fields."""

HANDOVER_FIELDS: dict[str, tuple[str, ...]] = {
    "partition": ("guard", "keys", "prefetch"),
    **dict.fromkeys(("grant", "ask", "force", "abandon"), ("t",)),
    **dict.fromkeys(("release", "commit", "stored"), ("t", "offset")),
    **dict.fromkeys(
        ("open", "subscribed", "refused", "drain", "abort", "close", "gone", "ended", "cut", "crash"), ("t",)
    ),
    **dict.fromkeys(("arrive", "begin", "finish", "stop"), ("t", "x")),
    "ack": ("t", "some"),
}
"""Every kind of event of a partition, and its fields: the token, and a message, several, or an offset, all counted from 1."""


@attrs.frozen
class History:
    """A run, or the beginning of one."""

    name: str
    """Which scenario and seed, or how it was corrupted."""
    events: tuple[Event, ...]
    timings: tuple[int, int, int] = (0, 0, 0)
    """Session, lease and revocation timeout, ms: all histories of one check share them. A partition's have none."""

    @property
    def processes(self) -> set[str]:
        """The processes that take part."""
        return {event["m"] for event in self.events if event["is"] == "start"}

    @property
    def resources(self) -> set[str]:
        """The resources that are shared."""
        lists = (event["all"] for event in self.events if event["is"] == "list")
        return set().union(*lists)


def module(histories: Iterable[History], extends: str = "Histories") -> str:
    """The TLA+ module that holds these histories; its name is Recorded."""
    definitions = [f"H{number} == <<\n{_events(it)}\n>>" for number, it in enumerate(histories, 1)]
    names = ", ".join(f"H{number}" for number in range(1, len(definitions) + 1))
    body = "\n\n".join([*definitions, f"All == <<{names}>>"])
    return f"---- MODULE Recorded ----\nEXTENDS {extends}\n\n{body}\n====\n"


def settings(histories: Iterable[History], *, with_promises: bool = True) -> str:
    """TLC's configuration for that module. Without promises, a history is followed for as long as its steps are
    possible.

    Raises:
        ValueError: the histories have different timings.
    """
    known = list(histories)
    timings = {it.timings for it in known}
    if len(timings) != 1:
        raise ValueError(f"histories of one check must share their timings: {sorted(timings)}")
    session, lease, revocation = timings.pop()
    members = sorted(set().union(*(it.processes for it in known)))
    resources = sorted(set().union(*(it.resources for it in known)))
    lines = (
        "SPECIFICATION HistorySpec",
        *(PROMISES if with_promises else ()),
        "CONSTANTS",
        f"    Member = {value(set(members))}",
        f"    Resource = {value(set(resources))}",
        '    Nobody = "nobody"',
        "    Offset = {0}",
        f"    Session = {session}",
        f"    Lease = {lease}",
        f"    Revocation = {revocation}",
        "    Margin = 1",
        "    Recorded <- All",
    )
    return "\n".join(lines) + "\n"


def handover_settings(_: Iterable[History], *, with_promises: bool = True) -> str:
    """The same for handovers of partitions: their histories say what kind of partition each is."""
    of_models = (
        "Guards = {}",
        "Messages = 0",
        "Keys = 1",
        "Prefetch = 0",
        "Asks = 0",
        "Forces = 0",
        "Stops = 0",
        "Losses = 0",
    )
    lines = (
        "SPECIFICATION HistorySpec",
        *(HANDOVER_PROMISES if with_promises else ()),
        "CONSTANTS",
        *(f"    {it}" for it in of_models),
        "    Recorded <- All",
    )
    return "\n".join(lines) + "\n"


def _events(history: History) -> str:
    return ",\n".join(f"  {_record(event)}" for event in history.events)


def _record(fields: Mapping[str, Any]) -> str:
    return "[" + ", ".join(f"{name} |-> {value(it)}" for name, it in fields.items()) + "]"


def value(it: object) -> str:
    """A Python value as TLA+: numbers, strings, booleans, sets of names, and dictionaries by name (functions)."""
    if isinstance(it, bool):
        return "TRUE" if it else "FALSE"
    if isinstance(it, int):
        return str(it)
    if isinstance(it, str):
        return f'"{it}"'
    if isinstance(it, set | frozenset):
        return "{" + ", ".join(sorted(map(value, it))) + "}"
    if isinstance(it, tuple):
        return f"<<{', '.join(map(value, it))}>>"
    if isinstance(it, dict):
        return _function(it)
    raise TypeError(f"no TLA+ for {it!r}")


def _function(it: Mapping[str, Mapping[str, Any]]) -> str:
    """A function from names to records. An empty one needs a form of its own."""
    if not it:
        return "[none \\in {} |-> 0]"
    return " @@ ".join(f"({value(name)} :> {_record(fields)})" for name, fields in sorted(it.items()))
