"""What must be true of a single call, whatever came before it: the records before, the request, and its effect."""

from __future__ import annotations

from collections.abc import Callable

from cobalance.coordinator.requests import Commit, Release, Request, SetResources
from proof.explore.coordinator import Effect
from proof.explore.scope import GROUP_MS
from proof.records import Records

Rule = Callable[[Records, Request, Effect, Records], str]


def wrong_with(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Returns the first rule that is broken; empty if there is none."""
    if outcome.reply.status != "OK":
        return ""
    return next((wrong for rule in RULES if (wrong := rule(was, request, outcome, now))), "")


def _overtaken(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Requests: a lower number is refused as STALE."""
    del outcome, now
    last = was.last_request(request.header.member)
    if request.header.number < last:
        return f"a {request.payload.verb} is executed although its sender has gone on since"
    return ""


def _joined_again(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Promise S7: a member id joins once; a tombstone keeps a late join from creating a ghost."""
    del request, now
    joined = {entry["member"] for entry in outcome.journal if entry["kind"] == "joined"}
    return next((f"{name} joins again" for name in sorted(joined & was.members.keys())), "")


def _repeated(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Requests: a repeat gets the same answer."""
    del now
    member, last = request.header.member, was.last_request(request.header.member)
    if request.header.number != last or not isinstance(request.payload, Commit | Release | SetResources):
        return ""
    first = was.scalars.get(f"a:{member}", "")
    again = " ".join(outcome.reply.results)
    return f"a repeated {request.payload.verb} is answered {again} instead of {first}" if first != again else ""


def _unfinished(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Handover: a release is refused while delivered > committed."""
    del was, now
    if isinstance(request.payload, Release):
        for item, result in zip(request.payload.items, outcome.reply.results, strict=True):
            if result == "OK" and not item.reason and item.delivered > item.committed:
                return f"a release of {item.resource} is accepted as finished, with something left uncommitted"
    return ""


def _undated(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Handover: the reply that carries a revocation sets its deadline."""
    del was, request, now
    undated = [it.resource for it in outcome.reply.changes if it.kind == "revoke" and not it.deadline_ms]
    return f"{undated[0]} is asked back without a deadline" if undated else ""


def _overdue(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Promise L2: no call ignores an expired deadline."""
    del request, was
    if outcome.reply.more or now.number("recovering"):
        return ""
    late = [name for name, it in sorted(now.resources.items()) if 0 < it.deadline <= GROUP_MS]
    return f"the deadline of {late[0]} has passed, and nothing comes of it" if late else ""


def _lowered(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Claims: the highest token wins."""
    del request, now
    for entry in outcome.journal:
        record = was.resources.get(entry.get("resource", ""))
        if entry["kind"] == "claimed" and record is not None and int(entry["token"]) < record.token:
            return f"a claim of {entry['resource']} is kept although a higher token is on record"
    return ""


_MOVED = frozenset({"revoking", "removing", "cancelled", "granted", "forced"})


def _unsettled(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Claims: while recovering nothing is revoked, removed, cancelled or granted."""
    del request
    moved = [entry["kind"] for entry in outcome.journal if entry["kind"] in _MOVED]
    if moved and was.number("recovering") and now.number("recovering"):
        return f"{moved[0]} is journalled while the group recovers"
    return ""


def _outdated(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Resource lists: a lower version is ignored, unless the higher one was never complete and its sender ended."""
    del now
    walker = was.scalars.get("walker", "")
    is_given_up = walker != "" and (walker not in was.members or was.members[walker].status != "active")
    payload, newest = request.payload, was.number("list_complete" if is_given_up else "list_version")
    is_first = request.header.number > was.last_request(request.header.member)
    if is_first and isinstance(payload, SetResources) and payload.version < newest:
        taken = outcome.reply.results[0] not in ("IGNORED", "WAIT")
        return f"list {payload.version} is taken although the group has {newest}" if taken else ""
    return ""


def _forced(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Settling: forcing deadlines first would force moves needlessly. A member that gets another resource in the very
    same call could have kept what was taken; except in eager mode, which takes everything and assigns it again.
    """
    del request
    if was.scalars.get("mode") == "eager":
        return ""
    forced = [entry for entry in outcome.journal if entry["kind"] == "forced"]
    losers = {it["member"] for it in forced if not was.resources[it["resource"]].removing}
    for entry in outcome.journal:
        if entry["kind"] == "granted" and entry["member"] in losers:
            record = now.resources.get(entry["resource"])
            if record is not None and record.rank != "0":  # a pinned one went to a member that did not give it up
                return f"{entry['member']} is deprived by force, and given {entry['resource']} in the same call"
    return ""


def _takers(records: Records) -> set[str]:
    return {name for name, it in records.members.items() if it.status == "active" and it.capacity > 0}


def _given_back(was: Records, request: Request, outcome: Effect, now: Records) -> str:
    """Handover: a member that gave up unfinished work is not chosen again for a while, unless it is alone."""
    del request
    active = _takers(was) & _takers(now)
    last_givers = {entry["resource"]: entry["member"] for entry in outcome.journal if entry["kind"] == "abandoned"}
    for entry in outcome.journal:
        record = was.resources.get(entry.get("resource", ""))
        if entry["kind"] != "granted" or record is None:
            continue
        giver, _, until = record.avoid.partition("@")
        if last_givers.get(entry["resource"], giver) != giver:  # another has given it up since
            continue
        others = {it for it in active - {giver} if now.can_work(it, entry["resource"])}
        if giver == entry["member"] and int(until.partition("@")[0] or "0") > GROUP_MS and others:
            return f"{entry['resource']} goes back to {giver}, who gave it up"
    return ""


RULES: tuple[Rule, ...] = (
    _overtaken,
    _joined_again,
    _repeated,
    _unfinished,
    _undated,
    _overdue,
    _lowered,
    _unsettled,
    _outdated,
    _forced,
    _given_back,
)
