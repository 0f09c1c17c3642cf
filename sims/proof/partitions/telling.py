"""A path through the states of a few partitions as readable text."""

from __future__ import annotations

from proof.explore.pool import Ids
from proof.explore.search import Found
from proof.explore.world import Action
from proof.partitions.exploring import HandoverTransitions
from proof.partitions.handover import Partition

_SAYS = {
    "start": "begins with it",
    "arrive": "hears",
    "reset": "finds its connection dead, and what that had brought unread",
    "turn": "takes its turn on the connection's thread",
    "timer": "meets its timer",
    "take": "takes what has arrived",
    "begin": "begins the next message",
    "finish": "finishes the message with tag",
    "fail": "fails with the message with tag",
    "settle": "settles the message with tag",
    "drain": "drains what has arrived",
    "cut short": "begins nothing more, half of its time being over",
    "release": "is drained, and closes its channel",
    "fenced": "hears that it has lost it",
    "abort": "aborts",
    "commit": "commits",
    "ask": "is asked for it",
    "keep": "is asked for it no more",
    "go on": "goes on, or closes its channel to go on with another",
    "give up": "gives it up",
    "time out": "waits no more for the program",
    "force": "has it taken by force",
    "lose": "loses its channel, without knowing it",
}


class HandoverStory:
    """Describes a path, and behind each step the partition it is about: its queue, and its readers."""

    def __init__(self, world: HandoverTransitions) -> None:
        self._world = world

    def tell(self, found: Found) -> str:
        lines, state = self._steps(found.path, self._world.beginning)
        if found.closure:
            lines.append("      -- from here on nothing disturbs it any more --")
            more, _ = self._steps(found.closure, state)
            lines += more
        return "\n".join([*lines, f"WRONG {found.wrong}"])

    def _steps(self, path: tuple[Action, ...], state: Ids) -> tuple[list[str], Ids]:
        lines = []
        for number, action in enumerate(path, 1):
            text = self._text(state, action)
            state = self._after(state, action)
            lines.append(f"{number:>4}  {text:<60} {self._seen(state, action)}".rstrip())
        return lines, state

    def _text(self, state: Ids, action: Action) -> str:
        what, at, *more = action
        if what == "cut":
            return f"{at} loses its connection, without knowing it"
        partition = self._partition(state, at)
        reader = partition.readers[more[0]]
        about = [str(getattr(it, "value", it)) for it in more[1:]]
        if what == "arrive":
            head = reader.arriving[0]
            about = [f"message {head}" if isinstance(head, int) else head]
        return " ".join((self._world.scope.names[at], reader.member, _SAYS[what], *about))

    def _after(self, state: Ids, action: Action) -> Ids:
        """Whatever it costs: the path has paid for it."""
        what, at, *more = action
        partitions = self._world.partitions
        if what == "cut":
            return tuple(it.step(number, ("cut", at)).after for it, number in zip(partitions, state, strict=False))
        return (*state[:at], partitions[at].step(state[at], (what, *more)).after, *state[at + 1 :])

    def _seen(self, state: Ids, action: Action) -> str:
        if action[0] == "cut":
            return ""
        partition = self._partition(state, action[1])
        readers = (f"{it.member} {it.core.state.value}" for it in partition.readers)
        return " | ".join((f"ready {[*partition.queue.ready]}", *readers))

    def _partition(self, state: Ids, at: int) -> Partition:
        return self._world.partitions[at].copy(state[at])
