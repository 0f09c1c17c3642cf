"""Whether a group's indices and counters agree with its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from cobalance.coordinator.requests import TOKEN_SUMS
from proof.records import Records

SCALE, TOP = 2**35, 2**53


def check(records: Records) -> None:
    """Checks all rules.

    Raises:
        AssertionError: one is broken.
    """
    rule, culprits = broken_rule(records)
    if rule:
        raise AssertionError(f"{rule}: {', '.join(culprits)}")


def broken_rule(records: Records, *, stand_in: int | None = None) -> tuple[str, list[str]]:
    """Returns the first rule that is broken, and by what; empty if there is none. The explorer's canonical data has a
    ``stand_in`` for the highest token, whatever it is, and has lost what no script would read again.
    """
    for rule, breaks in _RULES if stand_in else _RULES + _RULES_OF_FULL_DATA:
        if culprits := sorted(map(str, breaks(records))):
            return rule, culprits
    if records.number("token") != stand_in and (above := _above_highest(records)):
        return "a token is above the highest", above
    return "", []


def _above_highest(records: Records) -> list[str]:
    return [name for name, it in records.resources.items() if it.token > records.number("token")]


def _names(records: Records) -> Collection[str]:
    return set(records.zsets["names"]) ^ set(records.resources)


def _owned(records: Records) -> Collection[str]:
    """Canonical data keeps only the order of a pending entry's time."""
    return {*map(_timeless, records.zsets["owned"])} ^ {*map(_timeless, _owned_entries(records))}


def _timeless(entry: str) -> str:
    member, rank, name = entry.split(" ")
    return f"{member} {rank if rank[0] == 'k' else rank[0]} {name}"


def _owned_entries(records: Records) -> Iterator[str]:
    for name, it in records.resources.items():
        if it.status == "pending":
            yield f"{it.owner} {'r' if it.removing else 'p'}{it.since:016} {name}"
        elif it.owner != "-":
            yield f"{it.owner} k{it.rank}{it.token:016} {name}"


def _owners(records: Records) -> Iterator[str]:
    for name, it in records.resources.items():
        owner = records.members.get(it.owner)
        if (it.owner == "-") != (it.status in ("free", "halted")):
            yield f"{name} is {it.status} of {it.owner}"
        elif it.owner != "-" and (owner is None or owner.status == "ended"):
            yield f"{name} of {it.owner}"
        elif it.removing and it.is_kept and owner is not None and owner.status != "dead":
            yield f"{name} is to be removed, yet kept"


def _free(records: Records) -> Collection[object]:
    free = {name: it.removing for name, it in records.resources.items() if it.status == "free"}
    return free.items() ^ {name: score == 0 for name, score in records.zsets["free"].items()}.items()


def _score(kept: int, share_class: int) -> int:
    return int(f"{kept * SCALE / share_class - (share_class < 0):.0f}")


def _load(records: Records) -> Collection[object]:
    load, more, less = {}, {}, {}
    for name, member in records.members.items():
        kept, share = records.kept_by(name), member.share_class
        if member.is_counted:
            load[name] = _score(kept, share) if share else TOP + 2 * kept
        if member.is_counted and kept:
            less[name] = _score(kept - 1, share) if share else TOP
        if member.is_counted and share > 0:
            more[name] = _score(kept + 1, share)
    loose = {name: load[name] for name in less.keys() & more.keys()}
    wrong = (records.zsets["load"].items() ^ load.items()) | (records.zsets["more"].items() ^ more.items())
    return wrong | _not_movable(records, "less", less) | _not_movable(records, "loose", loose)


def _ids(records: Records) -> Collection[object]:
    counted = {name: 0 for name, member in records.members.items() if member.is_counted}
    return records.zsets["ids"].items() ^ counted.items()


def _not_movable(records: Records, key: str, expected: dict[str, int]) -> set[object]:
    """A member that keeps only pinned resources may be missing."""
    movable = {it.owner for it in records.resources.values() if it.is_kept and it.rank != "0"}
    found = records.zsets[key]
    return {*(found.items() - expected.items()), *((expected.keys() - found.keys()) & movable)}


def _revoking(records: Records) -> Collection[object]:
    pending = {it.owner for it in records.resources.values() if it.status == "pending" and not it.removing}
    active = [name for name, it in records.members.items() if it.status == "active" and name in pending]
    expected = {name: records.zsets["load"][name] for name in active if name in records.zsets["more"]}
    expected |= {f"+{name}": -records.zsets["more"][name] for name in expected}
    return records.zsets["revoking"].items() ^ expected.items()


def _deadlines(records: Records) -> Collection[object]:
    armed = {name: it for name, it in records.resources.items() if it.deadline > 0}
    wrong = records.zsets["deadlines"].items() ^ {name: it.deadline for name, it in armed.items()}.items()
    return wrong or [name for name, it in armed.items() if it.status != "pending"]


def _counters(records: Records) -> Iterator[str]:
    classes = Counter(it.share_class for it in records.members.values() if it.is_counted)
    graced = [name for name, it in records.members.items() if it.is_counted and it.share_class < 0]
    expected = {
        "total": sum(it.is_counted for it in records.resources.values()),
        "live": sum(share * count for share, count in classes.items() if share > 0),
        "graced": -sum(share * count for share, count in classes.items() if share < 0),
        "graced_kept": sum(map(records.kept_by, graced)),
    }
    yield from (name for name, count in expected.items() if records.number(name) != count)
    if records.scalars.get("classes", "") != " ".join(f"{share}={classes[share]}" for share in sorted(classes)):
        yield "classes"
    shared = 0 if records.number("barrier") else expected["total"] - expected["graced_kept"]
    floors = sum(count * (shared * it // expected["live"]) for it, count in classes.items() if it > 0)
    if records.number("ceilings") not in (0, 1 + shared - floors):
        yield "ceilings"


_NEEDED = {"active": "s", "leaving": "s", "graced": "g", "dead": "e", "ended": "t"}


def _timers(records: Records) -> Iterator[str]:
    """A resource is avoided for a while or halted; only such a one may be pinned."""
    timers = records.zsets["timers"]
    yield from (name for name, it in records.members.items() if f"{_NEEDED[it.status]}:{name}" not in timers)
    for name, it in records.resources.items():
        owner = records.members.get(it.owner)
        if (it.status == "halted") != it.avoid.startswith("halted:"):
            yield f"{name} is {it.status}: {it.avoid}"
        elif (
            (it.status != "halted" and it.avoid != "-" and f"a:{name}" not in timers)
            or it.rank + it.avoid == "0-"
            or (owner is not None and owner.status == "graced" and not it.is_kept and f"p:{it.owner}" not in timers)
        ):
            yield name
    if records.number("recovering") and "r" not in timers:
        yield "the recovery"
    yield from (
        f"the offset of {it}" for it in records.offsets.keys() - records.resources.keys() if f"o:{it}" not in timers
    )


def _sums(records: Records) -> Iterator[str]:
    for name, member in records.members.items():
        held = sum(it.token for it in records.resources.values() if it.owner == name) if member.is_live else 0
        if records.number(f"k:{name}") != held % TOKEN_SUMS:
            yield name


def _sessions(records: Records) -> Collection[str]:
    live = {name for name, it in records.members.items() if it.is_live}
    of: dict[str, set[str]] = {kind: set() for kind in "rckhag"}
    for kind, mark, name in (field.partition(":") for field in records.scalars):
        if mark and kind in of:
            of[kind].add(name)
    graced = {name for name, it in records.members.items() if it.status == "graced"}
    strangers = (of["c"] | of["k"] | of["h"] | of["a"] | {records.scalars.get("coordinator", "")}) - live - {""}
    return (of["r"] ^ live) | (of["g"] ^ graced) | strangers


def _subscriptions(records: Records) -> Collection[object]:
    counted = Counter(it.subscription for it in records.members.values() if it.is_counted)
    written = dict(pair.rsplit("=", 1) for pair in records.scalars.get("subscriptions", "").split())
    known = {entry.split(" ")[0] for entry in records.zsets["declared"]}
    return ({name: int(it) for name, it in written.items() if it != "0"}.items() ^ counted.items()) | (
        known - written.keys()
    )


def _instances(records: Records) -> Iterator[str]:
    for instance, name in records.instances.items():
        member = records.members.get(name)
        if member is None or (member.instance, member.is_counted) != (instance, True):
            yield f"{instance} of {name}"
    counted = {name: it for name, it in records.members.items() if it.is_counted and it.instance != "-"}
    yield from (it.instance for it in counted.values() if it.instance not in records.instances)
    succeeded = {it.reason for it in counted.values() if it.is_live}  # whose successor has not sent all its claims yet
    for name, it in counted.items():
        if it.is_live and name not in succeeded and records.instances.get(it.instance) != name:
            yield f"{it.instance} of {records.instances.get(it.instance)}, not {name}"


def _unasked(records: Records) -> Collection[str]:
    granted = [(name, it.owner) for name, it in records.resources.items() if it.status == "granted"]
    return [name for name, owner in granted if owner in records.members and not records.can_work(owner, name)]


def _feed(records: Records) -> Collection[str]:
    return [
        name for name, _, _ in records.feed if name not in records.members or records.members[name].status == "ended"
    ]


_RULES: tuple[tuple[str, Callable[[Records], Iterable[object]]], ...] = (
    ("names are not the resources", _names),
    ("owned does not agree with the records", _owned),
    ("a resource has no owner, or one that has ended", _owners),
    ("free does not agree with the records", _free),
    ("load does not agree with what is kept", _load),
    ("ids are not the members", _ids),
    ("revoking does not agree with what could be cancelled", _revoking),
    ("deadlines do not agree with the records", _deadlines),
    ("a counter is wrong", _counters),
    ("a sum of tokens is not that of what is held", _sums),
    ("something that must end has no timer", _timers),
    ("sessions are not those of the living", _sessions),
    ("subscriptions are miscounted, or a list is nobody's", _subscriptions),
    ("an instance id is not its living member's", _instances),
    ("a member was given what it does not name", _unasked),
    ("somebody who has ended is still told things", _feed),
)


def _owned_since(records: Records) -> Collection[str]:
    return set(records.zsets["owned"]) ^ {*_owned_entries(records)}


def _news(records: Records) -> Collection[int]:
    return [version for _, version, _ in records.feed if version > records.number("version")]


def _journal(records: Records) -> Iterator[int]:
    """It has every line, and ends at the group's version."""
    previous = None
    for entry in records.journal:
        seq = int(entry["seq"])
        if previous is not None and seq != previous + 1 and entry["kind"] != "incarnation":
            yield seq
        previous = seq
    if previous not in (None, records.number("version")):
        yield previous


_RULES_OF_FULL_DATA: tuple[tuple[str, Callable[[Records], Iterable[object]]], ...] = (
    ("owned does not agree with the records", _owned_since),
    ("news is newer than the group", _news),
    ("the journal misses something", _journal),
)
