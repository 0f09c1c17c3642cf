"""What must be true of the data, and of every single execution of a script."""

from __future__ import annotations

from collections import Counter

import attrs

from cobalance.coordinator.requests import Commit, CommitItem, Join, Release, ReleaseItem, Request
from proof.consistency import broken_rule
from proof.explore.calls import wrong_with
from proof.explore.codec import HIGHEST_TOKEN
from proof.explore.coordinator import Effect, ExploredCoordinator
from proof.explore.scope import GROUP_MS, Scope
from proof.records import Records

MOST_FACTS = 20_000

_MOVES = frozenset({"granted", "revoking", "cancelled", "forced", "expired", "withdrawn", "inherited", "removed"})


@attrs.frozen(eq=False)
class Facts:
    """What the checks need to know about some data."""

    records: Records
    wrong: str

    def is_told(self, member: str, cursor: int) -> bool:
        """Whether there is news for a member."""
        return any(entry[0] == member and entry[1] > cursor for entry in self.records.feed)


class Checks:
    """Checks each data and each execution once."""

    def __init__(self, scope: Scope, coordinator: ExploredCoordinator) -> None:
        self._scope, self._coordinator = scope, coordinator
        self._facts: dict[int, Facts] = {}
        self._verdicts: dict[int, str] = {}

    def facts(self, store: int) -> Facts:
        """The facts about the data of a part."""
        found = self._facts.get(store)
        if found is None:
            if len(self._facts) >= MOST_FACTS:
                self._facts.clear()
            records = Records.read(self._coordinator.state(store))
            rule, _ = broken_rule(records, stand_in=HIGHEST_TOKEN)
            found = self._facts[store] = Facts(records, f"inconsistent data: {rule}" if rule else "")
        return found

    def execution(self, before: int, request: Request, outcome: Effect) -> str:
        """Says why this execution is wrong; empty if it is right."""
        found = self._verdicts.get(id(outcome))
        if found is None:
            found = self._verdicts[id(outcome)] = self._judge(before, request, outcome)
        return found

    def _judge(self, before: int, request: Request, outcome: Effect) -> str:
        if outcome.wrong:
            return outcome.wrong
        was, now = self.facts(before).records, self.facts(outcome.after)
        if was.is_torn:  # then the repair decides what the records are
            return now.wrong or _idle(now.records, outcome) or self._unnamed(outcome)
        return (
            now.wrong
            or _unfenced(was, request, outcome)
            or _regressed(was, now.records)
            or _idle(now.records, outcome)
            or self._unnamed(outcome)
            or self._unbounded(request, outcome)
            or wrong_with(was, request, outcome, now.records)
        )

    def _unnamed(self, outcome: Effect) -> str:
        """Promise S8: no member is granted, nor left with, what its code does not name."""
        for entry in outcome.journal if self._scope.lists else ():
            if entry["kind"] in ("granted", "cancelled") and entry["resource"] not in self._scope.named_by(
                entry["member"][0]
            ):
                return f"{entry['resource']} is {entry['kind']} to {entry['member']}, whose code does not name it"
        return ""

    def _unbounded(self, request: Request, outcome: Effect) -> str:
        """The budget of one call, apart from what the caller itself asked for."""
        moves = sum(entry["kind"] in _MOVES for entry in outcome.journal)
        asked = len(request.payload.items) if isinstance(request.payload, (Release, Commit)) else 0
        asked += len(request.payload.claims) if isinstance(request.payload, Join) else 0
        allowed = (4 if request.payload.verb == "leave" else 2) * self._scope.moves + asked
        return f"{moves} moves in one call" if moves > allowed else ""


def _unfenced(was: Records, request: Request, outcome: Effect) -> str:
    """Promise S3: commits and releases are accepted from the current token of its member only."""
    if not isinstance(request.payload, (Commit, Release)) or outcome.reply.status != "OK":
        return ""
    if was.last_request(request.header.member) == request.header.number:
        return ""  # a repeat gets the answer of the first time
    items: tuple[CommitItem | ReleaseItem, ...] = request.payload.items
    for item, result in zip(items, outcome.reply.results, strict=True):
        record = was.resources.get(item.resource)
        current = record is not None and (record.owner, record.token) == (request.header.member, item.token)
        if result == "OK" and not current:
            return f"a {request.payload.verb} of {item.resource} is accepted from {request.header.member}, who does not have it"
    return ""


def _regressed(was: Records, now: Records) -> str:
    """Promise S4; a group that recovers takes what its members claim."""
    for name, offset in was.offsets.items():
        if name in now.offsets and now.offsets[name] < offset and not now.number("recovering"):
            return f"the committed offset of {name} falls from {offset} to {now.offsets[name]}"
    return ""


def _idle(now: Records, outcome: Effect) -> str:
    """Promise S5: nothing is free while a member could have it, and nothing is hidden from the next call."""
    if outcome.reply.status != "OK" or outcome.reply.more or now.number("recovering") or now.number("barrier"):
        return ""
    if now.number("due") and now.number("due") <= GROUP_MS:
        return ""
    kept = loads(now)
    free = sorted(
        name
        for name, it in now.resources.items()
        if it.status == "free" and any(now.can_work(member, name) for member in kept)
    )
    if free:
        return f"{', '.join(free)} stays free while somebody could have it"
    return _needless(now, kept)


def _needless(now: Records, kept: Counter[str]) -> str:
    """Half of promise S6: nothing that its holder may keep is being revoked. Capacities and lists are equal here."""
    if now.is_mixed:
        return ""
    shared = sum(not it.removing and it.status != "halted" for it in now.resources.values())
    wanted = shared - now.number("graced_kept")
    for name, it in sorted(now.resources.items()):
        if it.status == "pending" and not it.removing and it.owner in kept and kept[it.owner] < wanted // len(kept):
            return f"{name} is still revoked from {it.owner}, who has too few"
    return ""


def loads(records: Records) -> Counter[str]:
    """How many resources each active member keeps."""
    kept = Counter({name: 0 for name, it in records.members.items() if it.status == "active" and it.capacity > 0})
    for it in records.resources.values():
        if it.owner in kept and it.status in ("held", "granted"):
            kept[it.owner] += 1
    return kept
