"""Invalid histories: each corruption turns a recorded one into one that the specification has to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from proof.spec.history import Event, History

Corruption = Callable[[list[Event]], bool]
"""Changes the events; returns whether it found something to change."""


def corrupted(histories: Iterable[History], corruptions: Mapping[str, Corruption] | None = None) -> list[History]:
    """Applies each corruption, those of groups unless others are given, to the first history in which it is possible.

    Raises:
        ValueError: a corruption is possible in none of them, so nothing would be shown.
    """
    known = list(histories)
    chosen = CORRUPTIONS if corruptions is None else corruptions
    return [_first(known, name, corruption) for name, corruption in chosen.items()]


def _first(histories: list[History], name: str, corruption: Corruption) -> History:
    for it in histories:
        events = [dict(event) for event in it.events]
        if corruption(events):
            return attrs.evolve(it, name=f"{it.name}, {name}", events=tuple(events))
    raise ValueError(f"no history allows for {name!r}: record more of them")


def _find(events: list[Event], *kinds: str, start: int = 0) -> Iterator[int]:
    return (at for at in range(start, len(events)) if events[at]["is"] in kinds)


def grant_before_release(events: list[Event]) -> bool:
    """The next holder is granted what the present one has not released yet."""
    for released in _find(events, "release"):
        for granted in _find(events, "grant", start=released):
            if events[granted]["r"] == events[released]["r"]:
                events.insert(released, events.pop(granted))
                return True
    return False


def token_repeated(events: list[Event]) -> bool:
    """A grant carries the token of the tenure before."""
    for at in _find(events, "grant"):
        if events[at]["t"] > 1:
            events[at]["t"] -= 1
            return True
    return False


def release_missing(events: list[Event]) -> bool:
    """A release is missing, and what followed it happened."""
    for at in _find(events, "release"):
        del events[at]
        return True
    return False


def forced_too_early(events: list[Event]) -> bool:
    """A resource is taken the moment its revocation begins."""
    for at in _find(events, "revoke"):
        events.insert(at + 1, events[at] | {"is": "force"})
        return True
    return False


def expired_too_early(events: list[Event]) -> bool:
    """A member that has just been answered is declared dead."""
    for at in _find(events, "hear"):
        events.insert(at + 1, {"is": "expire", "m": events[at]["m"]})
        return True
    return False


def revoked_without_surplus(events: list[Event]) -> bool:
    """A resource is revoked that its holder may keep: a cancelled revocation happens once more."""
    for at in _find(events, "cancel"):
        events.insert(at + 1, events[at] | {"is": "revoke"})
        return True
    return False


def commit_of_a_former_token(events: list[Event]) -> bool:
    """A commit is stored under the token of the tenure before."""
    for at in _find(events, "commit"):
        if events[at]["t"] > 1:
            events[at]["t"] -= 1
            return True
    return False


def uneven_grant(events: list[Event]) -> bool:
    """A grant goes to a member other than the one with the least."""
    members = [event["m"] for event in events if event["is"] == "join"]
    for at in _find(events, "grant"):
        others = [it for it in members if it != events[at]["m"]]
        earlier = [event for event in events[:at] if event["is"] == "grant"]
        if others and len(earlier) == 1 and earlier[0]["m"] in others:
            events[at]["m"] = earlier[0]["m"]
            return True
    return False


def granted_unasked(events: list[Event]) -> bool:
    """A grant goes to a member whose list does not name it."""
    lists: dict[str, set[str]] = {}
    for event in events:
        _learn(lists, event)
        others = [it for it, names in lists.items() if event["is"] == "grant" and names and event["r"] not in names]
        if others:
            event["m"] = others[0]
            return True
    return False


def _learn(lists: dict[str, set[str]], event: Event) -> None:
    """Notes what members name."""
    if event["is"] == "join":
        lists[event["m"]] = event["all"]
    elif event["is"] == "list":
        lists |= dict.fromkeys(event["some"] & set(lists), event["all"])


def works_past_the_lease(events: list[Event]) -> bool:
    """A process that works a resource gets no answer for longer than its lease, and continues."""
    for at in _find(events, "has"):
        if any(it["phase"] == "working" for it in events[at]["all"].values()):
            events.insert(at + 1, {"is": "pass", "ms": 3_600_000})
            return True
    return False


CORRUPTIONS: dict[str, Corruption] = {
    "granted before it was released": grant_before_release,
    "a token repeated": token_repeated,
    "a release left out": release_missing,
    "forced ahead of its deadline": forced_too_early,
    "expired within its session": expired_too_early,
    "revoked without surplus": revoked_without_surplus,
    "committed under a former token": commit_of_a_former_token,
    "granted to who has more": uneven_grant,
    "granted to who does not name it": granted_unasked,
    "worked past the lease": works_past_the_lease,
}
"""All corruptions of a group's history by name."""


# -- handovers of a partition ------------------------------------------------------------------------------------------


def _move(events: list[Event], source: int, target: int) -> bool:
    events.insert(target, events.pop(source))
    return True


def _next(events: list[Event], kind: str, start: int = 0, **fields: object) -> int | None:
    """The first such event with these fields."""
    found = (at for at in _find(events, kind, start=start) if fields.items() <= events[at].items())
    return next(found, None)


def heir_before_release(events: list[Event]) -> bool:
    """The next holder is granted the partition before the present one has released it."""
    at = _next(events, "release")
    granted = None if at is None else _next(events, "grant", at)
    return at is not None and granted is not None and _move(events, granted, at)


def release_unasked(events: list[Event]) -> bool:
    """Its holder releases it although nobody has asked for it."""
    at = _next(events, "release")
    if at is None:
        return False
    events[:] = [it for it in events if it["is"] != "ask" or it["t"] != events[at]["t"]]
    return True


def close_over_handler(events: list[Event]) -> bool:
    """A handler ends after its channel was closed in order."""
    for closed in _find(events, "close"):
        token = events[closed]["t"]
        finished = [at for at in _find(events[:closed], "finish") if events[at]["t"] == token]
        if finished and _next(events[:closed], "abort", t=token) is None:
            late, closing = events[finished[-1]], events[closed]
            events.remove(late)
            events.insert(events.index(closing) + 1, late)
            _never_acknowledged(events, late["x"])
            return True
    return False


def _never_acknowledged(events: list[Event], message: int) -> None:
    """Otherwise an ack of it would be refused before anything else."""
    for event in events:
        if event["is"] == "ack":
            event["some"] = event["some"] - {message}
    events[:] = [it for it in events if it["is"] != "ack" or it["some"]]


def ack_before_the_end(events: list[Event]) -> bool:
    """A message is acknowledged before its handler has finished."""
    for at in _find(events, "ack"):
        begun = _next(events, "begin", x=max(events[at]["some"]))
        if begun is not None and begun < at:
            return _move(events, at, begun + 1)
    return False


def ack_left_out(events: list[Event]) -> bool:
    """Acks that are due are not sent before the channel is closed, which is no stream's."""
    if events[0]["guard"] in ("lock", "none"):
        return False
    for closed in _find(events, "close"):
        last = [at for at in _find(events[:closed], "ack") if events[at]["t"] == events[closed]["t"]]
        if last and _next(events, "abort") is None:
            del events[last[-1]]
            return True
    return False


def out_of_order(events: list[Event]) -> bool:
    """Two messages of one key are worked in the wrong order."""
    if len(set(events[0]["keys"])) > 1:
        return False
    first, second = _next(events, "begin", x=1), _next(events, "begin", x=2)
    if first is None or second is None:
        return False
    for event in events:
        if event["is"] in ("begin", "finish") and event["x"] in (1, 2):
            event["x"] = 3 - event["x"]
    return True


def message_skipped(events: list[Event]) -> bool:
    """One message is never worked, and the next one is."""
    at = _next(events, "begin", x=2)
    if at is None:
        return False
    events[:] = [it for it in events if it["is"] not in ("begin", "finish", "stop") or it["x"] != 2]
    _never_acknowledged(events, 2)
    return True


def message_repeated(events: list[Event]) -> bool:
    """The next holder works a message once more that was acknowledged."""
    at = _next(events, "arrive", t=2)
    if at is None or _next(events, "release", t=1) is None or _next(events, "ack", t=1) is None:
        return False
    events[at] = {**events[at], "x": 1}
    return True


def begin_after_the_end(events: list[Event]) -> bool:
    """A message is begun on a channel that is gone."""
    for ended in _find(events, "ended"):
        begun = [at for at in _find(events[:ended], "begin") if events[at]["t"] == events[ended]["t"]]
        if begun and _next(events, "cut") is None and _next(events, "crash") is None:
            last, token = events[begun[-1]]["x"], events[ended]["t"]
            spell = [it for it in events[:ended] if it.get("x") == last and it["t"] == token and it["is"] != "arrive"]
            events[:] = [it for it in events[:ended] if it not in spell] + [events[ended], *spell] + events[ended + 1 :]
            _never_acknowledged(events, last)
            return True
    return False


def served_beside_another(events: list[Event]) -> bool:
    """The next holder is subscribed while the one before has its channel."""
    closed = _next(events, "close", t=1)
    subscribed = _next(events, "subscribed", closed or 0, t=2)
    forced = _next(events, "force", t=1)
    refused = _next(events, "refused", t=2)
    if None in (closed, subscribed, forced, refused) or events[0]["guard"] != "exclusive":
        return False
    events[refused] = events[refused] | {"is": "subscribed"}  # type: ignore[index]
    return True


def lock_of_another(events: list[Event]) -> bool:
    """A stream is read while the one before has its lock."""
    gone, opened = _next(events, "gone", t=1), _next(events, "open", t=2)
    granted = _next(events, "grant", t=2)
    if gone is None or opened is None or granted is None or not granted < gone < opened:
        return False
    return _move(events, opened, granted + 1)


def lost_for_no_reason(events: list[Event]) -> bool:
    """A channel is lost although nobody has cut it."""
    at = _next(events, "cut")
    if at is not None:
        del events[at]
    return at is not None


def commit_unfinished(events: list[Event]) -> bool:
    """What is committed was not finished."""
    for at in _find(events, "commit"):
        if events[at]["offset"] < len(events[0]["keys"]):
            events[at]["offset"] = len(events[0]["keys"])
            return True
    return False


def offset_falls(events: list[Event]) -> bool:
    """A release stores a lower offset than was committed."""
    for at in _find(events, "release"):
        if events[at]["offset"] > 1 and _next(events[:at], "stored", offset=events[at]["offset"]) is not None:
            events[at]["offset"] -= 1
            return True
    return False


def commit_of_the_fenced(events: list[Event]) -> bool:
    """What a former holder commits is stored."""
    for at in _find(events, "force"):
        token = events[at]["t"]
        finished = [it["x"] for it in events[:at] if it["is"] == "finish" and it["t"] == token]
        if events[0]["guard"] in ("lock", "none") and finished and _next(events[:at], "crash") is None:
            fields = {"t": token, "offset": max(finished)}
            events[at + 1 : at + 1] = [{"is": "commit", **fields}, {"is": "stored", **fields}]
            return True
    return False


HANDOVER_CORRUPTIONS: dict[str, Corruption] = {
    "granted before it was released": heir_before_release,
    "released unasked": release_unasked,
    "closed over a running handler": close_over_handler,
    "acknowledged before it was finished": ack_before_the_end,
    "closed without its last acks": ack_left_out,
    "worked out of order": out_of_order,
    "a message skipped": message_skipped,
    "a message worked again": message_repeated,
    "begun on a channel that is gone": begin_after_the_end,
    "served beside another": served_beside_another,
    "read without the lock": lock_of_another,
    "lost for no reason": lost_for_no_reason,
    "committed unfinished": commit_unfinished,
    "released with a lower offset": offset_falls,
    "committed by a former holder": commit_of_the_fenced,
}
"""All corruptions of a partition's history by name."""
