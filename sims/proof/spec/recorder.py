"""Records what a simulated group does, in the terms of the TLA+ specification.

What scripts do is read from the journal, in the order in which they wrote it; what processes do is seen by inspecting
them after each step of the world. Nothing is asked of the coordinator, and nothing in the simulator is changed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cobalance.coordinator.requests import Commit, Leave, SetResources
from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.watch import Checkers
from proof.spec.history import Event, History
from proof.spec.sightings import Sighting

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.scenario import Scenario
    from cobalance_sims.simulate.world import World

WALKED = ("NEXT", "DONE", "RECOVERING")

MOVES = {"revoking": "revoke", "withdrawn": "withdraw", "cancelled": "cancel", "forced": "force"}
LISTED = {"added": "add", "removing": "remove", "removed": "delete"}


def record(scenario: Scenario, seed: int, most_events: int) -> History:
    """Records the beginning of a scenario, up to about that many events, cut where no script is under way."""
    run = Run(scenario, seed, checks=(), verbose=False)
    recorder = SpecRecorder(run.world)
    run.world.watch = recorder
    run.begin()
    recorder.begin(known_to_be_new=scenario.created)
    run.world.clock.run(scenario.length_ms, until=lambda: recorder.look() >= most_events)
    it = scenario.settings
    lease_ms = it.session_timeout_ms - it.session_timeout_ms // 10
    timings = (it.session_timeout_ms, lease_ms, it.revocation_timeout_ms)
    return History(f"{scenario.name} seed {seed}", tuple(recorder.events), timings)


class SpecRecorder(Checkers):
    """Watches a world in place of the checkers."""

    def __init__(self, world: World) -> None:
        super().__init__(world, ())
        self._world = world
        self.events: list[Event] = []
        self._at = 0
        self._declared = DeclaredLists()
        self._script: list[JournalEntry] = []
        self._counted: dict[str, dict[int, int]] = {}
        self._last: dict[str, int] = {}
        self._seen: dict[str, Sighting] = {}
        self.kinds: Counter[str] = Counter()

    def _add(self, kind: str, **fields: Any) -> None:
        if self._world.now > self._at:
            self.events.append({"is": "pass", "ms": self._world.now - self._at})
            self._at = self._world.now
        self.events.append({"is": kind, **fields})
        self.kinds[kind] += 1

    def _token(self, resource: str, token: int | None) -> int:
        """Tokens are counted by resource, in the order of their grants; one that was never granted is 0."""
        return self._counted.get(resource, {}).get(token or 0, 0)

    def begin(self, *, known_to_be_new: bool) -> None:
        """A group that is not known to be new has, for all anyone can tell, lost its data."""
        if not known_to_be_new:
            self._add("lose data")
        self.look()

    # -- processes -----------------------------------------------------------------------------------------------------

    def look(self) -> int:
        """Records what has changed with the processes since the last look; returns the number of events."""
        for process in self._world.processes.values():
            self._look_at(process)
        return len(self.events)

    def _look_at(self, process: Process) -> None:
        before = self._seen.get(process.name)
        if before is None:
            self._add("start", m=process.name)
            before = Sighting()
        now = Sighting.of(process, self._token)
        self._seen[process.name] = now
        for kind, resource in now.since(before):
            self._add(kind, m=process.name, **({"r": resource} if resource else {}))
        if now.tenures != before.tenures and not now.gone:
            self._add("has", m=process.name, all=now.as_fields())

    # -- scripts -------------------------------------------------------------------------------------------------------

    def journal(self, entry: JournalEntry) -> None:
        """Part of the script that is running."""
        self._script.append(entry)

    def data_lost(self, known_from: int) -> None:
        """Redis forgot everything.

        Raises:
            ValueError: it went back to a backup, whose members may be recorded under former ids.
        """
        if known_from >= 0:
            raise ValueError("histories with stale backups are not recorded")
        self._declared = DeclaredLists()
        self._add("lose data")

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        """A script has run: records what it did, and what it answered."""
        entries, self._script = self._script, []
        if reply.status == "OK" and isinstance(request.payload, Commit) and self._is_first(request):
            self._commit(process, request.payload, reply)
        joined = {entry.member for entry in entries if entry.kind == "joined"}
        changed = self._learn(process, request, reply)
        for entry in entries:
            if entry.resource in changed and (entry.kind in LISTED or entry.kind == "revoking"):
                changed = self._list(process)
            self._entry(entry, joined)
        if changed:
            self._list(process)
        self._forget()
        if entries:
            self._add("record", all=self._ledger())
        has_left = isinstance(request.payload, Leave) and "LEFT" in reply.results
        if reply.status == "OK" and not has_left:
            self._add("tell", m=process.name)

    def _learn(self, process: Process, request: Request, reply: CoordinatorReply) -> set[str]:
        it = request.payload
        if reply.status != "OK" or not isinstance(it, SetResources) or not self._is_first(request):
            return set()
        return self._declared.learn(process.subscription, it, reply)

    def _list(self, process: Process) -> set[str]:
        """The list that it shares with others has changed; nothing remains to be recorded about that."""
        same = {it.name for it in self._world.processes.values() if it.subscription == process.subscription}
        self._add("list", some=same, all=self._declared.of(process.subscription))
        return set()

    def _forget(self) -> None:
        there = [self._world.of_member(member) for member in self._world.redis.ledger.members]
        if there:
            self._declared.keep({process.subscription for process in there if process})

    def _is_first(self, request: Request) -> bool:
        """A repeat is answered as the first time."""
        member, number = request.header.member, request.header.number
        first = number > self._last.get(member, 0)
        self._last[member] = max(number, self._last.get(member, 0))
        return first

    def _commit(self, process: Process, payload: Commit, reply: CoordinatorReply) -> None:
        for item, result in zip(payload.items, reply.results, strict=True):
            if result == "OK":
                token = self._token(item.resource, item.token)
                self._add("commit", r=item.resource, m=process.name, t=token, offset=item.offset)

    def _entry(self, entry: JournalEntry, joined: set[str | None]) -> None:
        """Records one transition. A join is one step, with the claims and the end of the member's predecessor."""
        process = _process(entry.member)
        is_of_join = any(process == _process(member) and entry.member != member for member in joined)
        if entry.resource is not None:
            self._resource_entry(entry, entry.resource, process)
        elif entry.kind == "joined":
            subscription = self._world.processes[process].subscription
            self._add("join", m=process, all=self._declared.of(subscription))
        elif entry.kind == "leaving" or (entry.kind in ("left", "expired_member") and not is_of_join):
            self._add({"leaving": "leave", "expired_member": "expire"}.get(entry.kind, "left"), m=process)
        elif entry.kind == "recovered":
            self._add("recover")

    def _resource_entry(self, entry: JournalEntry, name: str, process: str) -> None:
        kind = entry.kind
        if kind == "granted":
            counted = self._counted.setdefault(name, {})
            counted[entry.token or 0] = len(counted) + 1
            self._add("grant", r=name, m=process, t=self._token(name, entry.token))
        elif kind in MOVES:
            self._add(MOVES[kind], r=name, m=process, t=self._token(name, entry.token))
        elif kind in LISTED:
            self._add(LISTED[kind], r=name)
        elif kind in ("released", "abandoned"):
            verb = "release" if kind == "released" else ("fenced" if entry.reason == "fenced" else "abandon")
            token = self._token(name, entry.token)
            self._add(verb, r=name, m=process, t=token, offset=entry.committed or 0)
        elif kind == "refused" and entry.reason.endswith(" FENCED"):
            self._add("refuse", r=name, m=process, t=self._token(name, entry.token))

    def _ledger(self) -> dict[str, dict[str, Any]]:
        ledger = self._world.redis.ledger
        return {
            name: {
                "m": _process(it.owner) or "nobody",
                "t": self._token(name, it.token),
                "pending": it.pending_since is not None,
            }
            for name, it in ledger.resources.items()
        }


def _process(member: str | None) -> str:
    """The process of a member id, which is made of the process's name and a count."""
    return (member or "").partition(".")[0]


class DeclaredLists:
    """Lists by subscription, which processes that name the same share."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def of(self, subscription: str) -> set[str]:
        """The list of a subscription; empty until one of its pages was served."""
        return self._names.get(subscription, set())

    def learn(self, subscription: str, page: SetResources, reply: CoordinatorReply) -> set[str]:
        """Returns what is no longer on its list, or new on it. A page may have been served up to some name only."""
        if reply.results[0] not in WALKED:
            return set()
        to = reply.results[1] if len(reply.results) > 1 else ""
        before = self.of(subscription)
        outside = {name for name in before if name <= page.after or (to and name > to)}
        self._names[subscription] = outside | {name for name in page.names if not to or name <= to}
        return before ^ self._names[subscription]

    def keep(self, subscriptions: set[str]) -> None:
        """Drops lists that nobody has."""
        self._names = {it: names for it, names in self._names.items() if it in subscriptions}
