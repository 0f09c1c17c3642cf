"""Invalid histories: each corruption turns a recorded one into one that the specification has to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs

from proof.spec.history import Event, History

Corruption = Callable[[list[Event]], bool]
"""Changes the events; returns whether it found something to change."""


def corrupted(histories: Iterable[History]) -> list[History]:
    """Applies each corruption to the first history in which it is possible.

    Raises:
        ValueError: a corruption is possible in none of them, so nothing would be shown.
    """
    known = list(histories)
    return [_first(known, name, corruption) for name, corruption in CORRUPTIONS.items()]


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
"""All corruptions by name."""
