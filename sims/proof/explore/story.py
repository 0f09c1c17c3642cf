"""A path through the states as readable text."""

from __future__ import annotations

from cobalance.coordinator.requests import Request
from proof.explore.fair import beginning
from proof.explore.pool import FIRST_TOKEN, Ids
from proof.explore.search import Found
from proof.explore.world import MEMORY, STORE, Action, Transitions

_SAYS = {
    "tick": "time passes: half a session timeout",
    "empty": "Redis loses all data",
    "replace": "another, empty Redis answers from now on",
    "arrive": "the late request arrives after all",
    "start": "starts",
    "restart": "starts again as a new process",
    "crash": "crashes",
    "pause": "is frozen",
    "resume": "goes on, and looks at its clock",
    "cut": "cannot reach Redis any more",
    "heal": "can reach Redis again",
    "leave": "is asked to leave",
    "relist": "declares another resource list",
    "wake": "is woken by a hint",
    "lost": "calls, and the request is lost:",
    "late": "calls, gives up waiting, and the request is still on its way:",
    "reply": "calls, and the reply is lost:",
    "answer": "calls",
}

_DOES = {
    "finish": "has drained",
    "short": "says it has drained, wrongly,",
    "begin": "runs on_revoked of",
    "commit": "commits",
    "seen": "is seen to be dead:",
}


class PathStory:
    """Describes a path, and beside each step the holders afterwards."""

    def __init__(self, world: Transitions) -> None:
        self._world = world

    def tell(self, found: Found) -> str:
        scope = self._world.scope
        lines = [f"      -- {', '.join(scope.slots[: scope.settled])}: settled --"] if scope.settled else []
        more, state = self._steps(found.path, beginning(self._world))
        lines += more
        if found.closure:
            lines.append("      -- from here on nothing goes wrong any more --")
            more, _ = self._steps(found.closure[:40], state)
            lines += more
        return "\n".join([*lines, f"WRONG {found.wrong}"])

    def _steps(self, path: tuple[Action, ...], state: Ids) -> tuple[list[str], Ids]:
        lines = []
        for number, action in enumerate(path, 1):
            text = self._text(state, action)
            state = self._world.take(state, action).state
            lines.append(f"{number:>4}  {text:<72} {self._holders(state)}")
        return lines, state

    def _text(self, state: Ids, action: Action) -> str:
        what = action[0]
        if what in ("tick", "empty", "replace", "arrive"):
            return _SAYS[what]
        process = self._world.processes.look(state[action[1]])
        if what == "die":
            return f"{process.slot}'s {process.outstanding.payload.verb} dies at write {action[2]}"
        if len(action) > 2:
            return f"{process.slot} {_DOES[what]} {action[2]}"
        call = ""
        if what in ("answer", "lost", "late", "reply"):
            call = self._call(state, process.outstanding)
        return f"{process.slot} {_SAYS[what]} {call}".rstrip()

    def _call(self, state: Ids, request: Request) -> str:
        server = self._world.memories.look(state[MEMORY]).identity
        reply = self._world.coordinator.execute(state[STORE], server, request).reply
        changes = ", ".join(f"{it.kind} {it.resource}" for it in reply.changes)
        return f"{request.payload.verb}: {reply.status} {' '.join(reply.results)} {changes}".rstrip()

    def _holders(self, state: Ids) -> str:
        records = self._world.checks.facts(state[STORE]).records
        held = [
            f"{name} {it.status} {it.owner} #{it.token - FIRST_TOKEN if it.token else 0}"
            for name, it in sorted(records.resources.items())
        ]
        return " | ".join(held)
