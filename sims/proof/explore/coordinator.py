"""The production scripts on the in-memory Redis; each distinct (data, script, arguments) is run once."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern

import attrs

from cobalance.coordinator.dump import State
from cobalance.coordinator.memory.store import MemoryStore, Snapshot
from cobalance.coordinator.replies import CoordinatorReply, decode
from cobalance.coordinator.requests import Header, Request, Suspect
from cobalance.coordinator.scripts import load
from cobalance.coordinator.transport import CERTAIN, DOUBTED, Reply, Script
from cobalance.errors import ScriptFailed
from proof.explore import dump
from proof.explore.pool import Pool
from proof.explore.scope import GROUP_MS, TICK_MS, Scope

MOST_SNAPSHOTS = 5_000

_VOUCH = Script.of("explored_vouch", "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])")


@attrs.frozen(eq=False)
class Effect:
    """The effect of one execution."""

    reply: CoordinatorReply
    reply_number: int
    """Equal replies share a number."""
    after: int
    """The part number of the data afterwards, before any renaming."""
    journal: tuple[dict[str, str], ...]
    granted: tuple[tuple[str, int, str], ...] = ()
    """Resource, token and member of the tenures it began."""
    digest: bytes = b""
    """Digest of reply and data, if they are to be compared with a replay."""
    wrong: str = ""
    """The error the script failed with."""
    writes: int = 0
    """Number of places where it could have died."""


@attrs.frozen
class Execution:
    """One distinct call, for the replay."""

    before: int
    script: str
    args: tuple[str, ...]
    dies_at: int = 0
    """The write at which the script dies; 0 means never."""


class ExploredCoordinator:
    """Scripts by verb, data by part number."""

    def __init__(
        self, scope: Scope, pool: Pool, lua: str | None = None, digest: Callable[[Reply, State], bytes] | None = None
    ) -> None:
        self.scope, self.pool = scope, pool
        self.store = MemoryStore(lua=lua, clock_us=lambda: GROUP_MS * 1000, identity="")
        self.canonical = dump.Canonical(scope.group, has_lists=bool(scope.lists))
        self.outcomes: dict[Execution, Effect] = {}
        self._digest = digest
        self._heard: dict[tuple[int, str, int], int] = {}
        self._seen: dict[tuple[int, str, str], tuple[Request, Effect] | None] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self._replies: dict[CoordinatorReply, int] = {}

    def execute(self, before: int, identity: str, request: Request, dies_at: int = 0) -> Effect:
        """Runs a request on the data of a part; the script may die at one of its writes."""
        script, args = load(request.payload.verb), request.args()
        outcome = self.run(before, script, (identity, *args), dies_at)
        if DOUBTED in outcome.wrong:  # As in a transport, the identity is read for this very call.
            outcome = self.run(before, script, (CERTAIN + identity, *args), dies_at)
        return outcome

    def run(self, before: int, script: Script, args: tuple[str, ...], dies_at: int = 0) -> Effect:
        """Runs a script; `args` begin with the server's identity."""
        key = Execution(before, script.name, args, dies_at)
        found = self.outcomes.get(key)
        if found is None:
            found = self.outcomes[key] = self._run(before, script, args, dies_at)
        return found

    def _run(self, before: int, script: Script, args: tuple[str, ...], dies_at: int) -> Effect:
        self.restore(before)
        known = len(journal_of(self.store.dump())) if self._is_torn(before) else 0
        self.store.die_at(dies_at)
        try:
            reply = self.store.run(script, dump.KEYS, args)
        except ScriptFailed as failed:
            if DOUBTED in str(failed) or not dies_at:
                digest = b"" if self._digest is None else self._digest(refusal(failed), self.store.dump())
                return Effect(CoordinatorReply(status="OK"), -1, before, (), digest=digest, wrong=str(failed))
            return self._dead(known)
        state = self.store.dump()
        digest = b"" if self._digest is None else self._digest(reply, state)
        decoded, journal = decode(reply), journal_of(state)[known:]
        number = self._replies.setdefault(decoded, len(self._replies))
        after = self.pool.add(*self.canonical.encode(state))
        return Effect(decoded, number, after, journal, granted(journal), digest, writes=self.store.writes)

    def _dead(self, known: int) -> Effect:
        """What it wrote before it died remains."""
        state = self.store.dump()
        journal, after = journal_of(state)[known:], self.pool.add(*self.canonical.encode(state))
        return Effect(CoordinatorReply(status="OK"), -1, after, journal, granted(journal))

    def see_dead(self, before: int, identity: str, member: str) -> tuple[Request, Effect] | None:
        """Ends the session of a member whose process both witnesses found dead; it had vouched on this server. None if a
        look says otherwise.
        """
        key = (before, identity, member)
        if key not in self._seen:
            self._seen[key] = self._see_dead(*key)
        return self._seen[key]

    def _see_dead(self, before: int, identity: str, member: str) -> tuple[Request, Effect] | None:
        self.restore(before)
        self.store.run(_VOUCH, dump.KEYS, (f"v:{member}", f"{GROUP_MS} {identity} c 1"))
        first = self._look(identity, Suspect(member=member, connection="c"))
        if first.results[0] != "SILENT":
            return None
        last = Suspect(
            member=member, connection="c", seen=first.results[1], last_look_ms=first.now_ms, within_ms=TICK_MS
        )
        reply, state = self._look(identity, last), self.store.dump()
        journal = journal_of(state)
        after = self.pool.add(*self.canonical.encode(state))
        wrong = "" if reply.results[0] == "ENDED" else f"the last look at {member} says {reply.results[0]}"
        return Request(Header("-", 0), last), Effect(reply, -1, after, journal, granted(journal), wrong=wrong)

    def _look(self, identity: str, look: Suspect) -> CoordinatorReply:
        args = Request(Header("-", 0), look).args()
        return decode(self.store.run(load("suspect"), dump.KEYS, (CERTAIN + identity, *args)))

    def _is_torn(self, part: int) -> bool:
        return any("\x1fpulse\x1ftorn " in text for text in self.pool.parts[part].skeleton)

    def restore(self, part: int) -> None:
        """Loads the data of a part into the store."""
        snapshot = self._snapshots.get(part)
        if snapshot is not None:
            self.store.restore(snapshot)
            return
        self.store.restore(self.state(part))
        if len(self._snapshots) >= MOST_SNAPSHOTS:
            self._snapshots.clear()
        self._snapshots[part] = self.store.snapshot()

    def state(self, part: int) -> State:
        """The data of a part."""
        it = self.pool.parts[part]
        return dump.decode(it.skeleton, it.numbers)

    def heard(self, part: int, member: str, cursor: int) -> int:
        """Returns the data after a member has heard its last answer, and its changes up to a version."""
        key = (part, member, cursor)
        if key not in self._heard:
            state = dump.without_heard(self.state(part), member, cursor)
            self._heard[key] = self.pool.add(*self.canonical.encode(state))
        return self._heard[key]

    def aged(self, part: int) -> int:
        """Returns the data one tick later."""
        it = self.pool.parts[part]
        return self.pool.add(*self.canonical.encode(dump.decode(it.skeleton, self.pool.aged(part))))


def journal_of(state: State) -> tuple[dict[str, str], ...]:
    """The journal entries in a dump."""
    for key in state:
        if key.key.endswith(b":journal"):
            return tuple(_fields(fields) for fields in key.contents[2::2])
    return ()


def granted(journal: tuple[dict[str, str], ...]) -> tuple[tuple[str, int, str], ...]:
    """The tenures that began: resource, token, member."""
    return tuple((it["resource"], int(it["token"]), it["member"]) for it in journal if it["kind"] == "granted")


def _fields(flat: tuple[bytes, ...]) -> dict[str, str]:
    return {intern(flat[i].decode()): intern(flat[i + 1].decode()) for i in range(0, len(flat), 2)}


def refusal(failed: ScriptFailed) -> Reply:
    """The error that a script answered with, in Redis's words."""
    return str(failed).partition(" failed: ")[2].encode()
