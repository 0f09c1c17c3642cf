"""What must happen sometimes: a campaign that never reached one of these has proven less than it says."""

from __future__ import annotations

from collections import Counter

import attrs

from cobalance.journal import JournalEntry
from cobalance.ownership import Ownership

MUST_HAPPEN: dict[str, str] = {
    "forced move": "a deadline passed and the resource was taken by force",
    "expiry during a drain": "a member's session ended while it drained",
    "cancelled revocation": "a revocation that was no longer surplus was called off",
    "withdrawn grant": "a grant nobody had heard of was taken back",
    "abandoned": "a holder gave up unfinished work",
    "graced": "a member with an instance id was kept for its return",
    "inherited": "its successor took over what was kept",
    "fenced commit": "a commit came from a token that is no longer current",
    "fenced release": "a release came from a token that is no longer current",
    "regressed commit": "a commit came with a lower offset than the stored one",
    "refused claim": "two claimed the same, or a claim came too late",
    "claimed": "a member brought back what it held before data was lost",
    "recovering group": "data was lost, and nobody's holdings were certain",
    "barrier": "eager mode stopped everything",
    "abort fenced": "a member cut off from Redis stopped by its own clock",
    "abort deadline": "a member stopped by its own clock, ahead of the coordinator",
    "abort lost": "a member heard that it had lost something",
    "status REJOIN": "a member was asked to join again",
    "status ENDED": "a member came back after its end",
    "status INSTANCE_IN_USE": "a second process came with an instance id in use",
    "cut_off": "a user was notified of being cut off",
    "redelivery": "a message came again",
    "refused by the broker": "the broker's guard held off a second consumer",
    "connection lost to a freeze": "a frozen client missed three heartbeats",
    "late execution": "a request ran after its sender had given it up",
    "repeat": "the same request ran twice",
    "different lists": "a member joined others that name something else",
    "let go of": "nobody named a resource any more",
    "repaired": "a script died between its writes, and the next one mended that",
    "crash seen at once": "the broker and Redis agreed that a process was dead, and its session ended early",
    "taken for dead": "a living process lost all its connections for longer than it was looked at",
    "will heard": "the broker said that a process lost its connection, and somebody looked",
}
"""Name → what it means, in the order of the table that a campaign prints."""

_BY_KIND = {
    "forced": "forced move",
    "cancelled": "cancelled revocation",
    "withdrawn": "withdrawn grant",
    "abandoned": "abandoned",
    "graced": "graced",
    "inherited": "inherited",
    "claimed": "claimed",
    "barrier": "barrier",
    "removing": "let go of",
    "repaired": "repaired",
}


@attrs.define
class Reached:
    """How many times each thing happened."""

    counts: Counter[str] = attrs.Factory(Counter)

    def count(self, name: str) -> None:
        self.counts[name] += 1

    def saw(self, entry: JournalEntry, before: Ownership) -> None:
        """Counts by an entry of the journal, and the state before it."""
        name = _BY_KIND.get(entry.kind)
        if name is not None:
            self.counts[name] += 1
        if entry.kind == "refused":
            verb, _, verdict = entry.reason.partition(" ")
            self.counts["refused claim" if verb == "claim" else f"{verdict.lower()} {verb}"] += 1
        elif entry.kind == "incarnation" and entry.reason == "recovering":
            self.counts["recovering group"] += 1
        elif entry.kind == "expired" and entry.resource in before.pending:
            self.counts["expiry during a drain"] += 1

    def add(self, other: Reached) -> None:
        """Adds the counts of another run."""
        self.counts.update(other.counts)

    def never(self) -> list[str]:
        """What should have happened and did not."""
        return [name for name in MUST_HAPPEN if not self.counts[name]]
