"""Checks that a group's indices and counters match its records; runs after every call of every test."""

from __future__ import annotations

from collections import Counter

from tests.coordinator.records import Records, ResourceRecord

from cobalance.coordinator.requests import TOKEN_SUMS

SCALE, TOP = 2**35, 2**53
MEMBER_FIELDS = ("r", "c", "k", "h", "a")


def check(records: Records) -> None:
    """Raises AssertionError naming the first broken rule."""
    for rule in RULES:
        rule(records)


def _names(records: Records) -> None:
    assert set(records.zsets["names"]) == set(records.resources), "names are not the resources"


def _owned_entry(name: str, record: ResourceRecord) -> str:
    if record.status == "pending":
        return f"{record.owner} {'r' if record.removing else 'p'}{record.since:016} {name}"
    return f"{record.owner} k{record.rank}{record.token:016} {name}"


def _owned(records: Records) -> None:
    expected = {_owned_entry(name, it) for name, it in records.resources.items() if it.owner != "-"}
    assert set(records.zsets["owned"]) == expected, "owned does not agree with the records"


def _owners(records: Records) -> None:
    for name, record in records.resources.items():
        assert (record.owner == "-") == (record.status in ("free", "halted")), (
            f"{name} is {record.status} of {record.owner}"
        )
        if record.owner != "-":
            owner = records.members.get(record.owner)
            assert owner is not None, f"{name} belongs to nobody"
            assert owner.status != "ended", f"{name} belongs to a tombstone"
            assert record.is_kept or owner.status != "graced" or f"p:{record.owner}" in records.zsets["timers"]
        assert not (record.removing and record.is_kept) or records.members[record.owner].status == "dead", (
            f"{name} is to be removed, yet kept"
        )


def _free(records: Records) -> None:
    expected = {name for name, record in records.resources.items() if record.status == "free"}
    assert set(records.zsets["free"]) == expected, "free does not agree with the records"
    for name, score in records.zsets["free"].items():
        assert (score == 0) == records.resources[name].removing, f"{name} is free at {score}"


def _score(kept: int, share_class: int) -> float:
    return float(f"{kept * SCALE / share_class - (share_class < 0):.0f}")


def _load_score(kept: int, share_class: int) -> float:
    return _score(kept, share_class) if share_class else TOP + 2 * kept


def _less_score(kept: int, share_class: int) -> float:
    return _score(kept - 1, share_class) if share_class else TOP


def _load(records: Records) -> None:
    counted = [
        (id_, records.kept_by(id_), member.share_class) for id_, member in records.members.items() if member.is_counted
    ]
    load = {id_: _load_score(kept, share_class) for id_, kept, share_class in counted}
    less = {id_: _less_score(kept, share_class) for id_, kept, share_class in counted if kept > 0}
    more = {id_: _score(kept + 1, share_class) for id_, kept, share_class in counted if share_class > 0}
    assert records.zsets["load"] == load, "load does not agree with what is kept"
    _check_movable(records, "less", less)
    _check_movable(records, "loose", {id_: load[id_] for id_ in less.keys() & more.keys()})
    assert records.zsets["more"] == more, "more does not agree with what is kept"


def _check_movable(records: Records, key: str, expected: dict[str, float]) -> None:
    """Members that keep only pinned resources may be missing."""
    found = records.zsets[key]
    assert found.items() <= expected.items(), f"{key} does not agree with what is kept"
    for id_ in expected.keys() - found.keys():
        kept = [it for it in records.owned_by(id_).values() if it.is_kept]
        assert all(it.rank == "0" for it in kept), f"{key} misses {id_}, which keeps what may be moved"


def _revoking(records: Records) -> None:
    pending = {it.owner for it in records.resources.values() if it.status == "pending" and not it.removing}
    active = [id_ for id_, member in records.members.items() if member.status == "active" and id_ in pending]
    expected = {id_: records.zsets["load"][id_] for id_ in active if id_ in records.zsets["more"]}
    expected |= {f"+{id_}": -records.zsets["more"][id_] for id_ in expected}
    assert records.zsets["revoking"] == expected, "revoking does not agree with what could be cancelled"


def _deadlines(records: Records) -> None:
    expected = {name: it.deadline for name, it in records.resources.items() if it.deadline > 0}
    assert records.zsets["deadlines"] == expected, "deadlines do not agree with the records"
    assert all(records.resources[name].status == "pending" for name in expected), "a deadline, but no revocation"


def _sums(records: Records) -> None:
    for id_, member in records.members.items():
        held = sum(it.token for it in records.owned_by(id_).values()) % TOKEN_SUMS
        assert records.number(f"k:{id_}") == (held if member.is_live else 0), f"{id_} has another sum of tokens"


def _counters(records: Records) -> None:
    members = records.members.items()
    classes = Counter(member.share_class for _, member in members if member.is_counted)
    written = " ".join(f"{share_class}={classes[share_class]}" for share_class in sorted(classes))
    assert records.scalars.get("classes", "") == written, "classes are miscounted"
    assert records.number("total") == sum(it.is_counted for it in records.resources.values()), "total is miscounted"
    live = {it: count for it, count in classes.items() if it > 0}
    assert records.number("live") == sum(it * count for it, count in live.items()), (
        "the living's capacity is miscounted"
    )
    assert records.number("graced") == -sum(it * count for it, count in classes.items() if it < 0), (
        "the graced's capacity is miscounted"
    )
    shared = 0 if records.number("barrier") else records.number("total") - records.number("graced_kept")
    floors = sum(count * (shared * it // records.number("live")) for it, count in live.items())
    assert records.number("ceilings") in (0, 1 + shared - floors), "ceilings are miscounted"
    graced = sum(records.kept_by(id_) for id_, member in members if member.share_class < 0 and member.is_counted)
    assert records.number("graced_kept") == graced, "graced_kept is miscounted"
    assert records.number("token") >= max((it.token for it in records.resources.values()), default=0)


def _timers(records: Records) -> None:
    timers = records.zsets["timers"]
    needed = {"active": "s", "leaving": "s", "graced": "g", "dead": "e", "ended": "t"}
    for id_, member in records.members.items():
        assert f"{needed[member.status]}:{id_}" in timers, f"nothing will end {id_}, which is {member.status}"
    for name, record in records.resources.items():
        assert (record.status == "halted") == record.avoid.startswith("halted:"), (
            f"{name} is {record.status}: {record.avoid}"
        )
        assert record.status == "halted" or record.avoid == "-" or f"a:{name}" in timers, f"{name} is avoided for ever"
        assert record.rank != "0" or record.avoid != "-", f"{name} is pinned for ever"
    assert records.number("recovering") == 0 or "r" in timers, "recovery never ends"
    for name in records.offsets.keys() - records.resources.keys():
        assert f"o:{name}" in timers, f"the offset of {name} is kept for ever"


def _sessions(records: Records) -> None:
    live = {id_ for id_, member in records.members.items() if member.is_live}
    for field in MEMBER_FIELDS:
        known = {name[2:] for name in records.scalars if name.startswith(f"{field}:")}
        assert known == live if field == "r" else known <= live, f"{field}: is kept for others than the living"
    kept = {id_ for id_, member in records.members.items() if member.status == "graced"}
    assert {name[2:] for name in records.scalars if name.startswith("g:")} == kept, "g: is not of those in their grace"
    assert records.scalars.get("coordinator", "") in {"", *live}, "the coordinator is no member"


def _instances(records: Records) -> None:
    for instance, id_ in records.instances.items():
        member = records.members.get(id_)
        assert member is not None, f"{instance} belongs to nobody"
        assert (member.instance, member.is_counted) == (instance, True), f"{instance} is a ghost"
    living = {id_: member for id_, member in records.members.items() if member.is_live}
    succeeded = {member.reason for member in living.values()}  # whose successor has not sent all its claims yet
    alive = Counter(member.instance for id_, member in living.items() if id_ not in succeeded)
    assert all(count == 1 or instance == "-" for instance, count in alive.items()), "an instance id lives twice"


def _subscriptions(records: Records) -> None:
    counted = Counter(member.subscription for member in records.members.values() if member.is_counted)
    written = dict(pair.rsplit("=", 1) for pair in records.scalars.get("subscriptions", "").split())
    assert {name: int(count) for name, count in written.items() if count != "0"} == counted, (
        "subscriptions are miscounted"
    )
    known = {entry.split(" ")[0] for entry in records.zsets["declared"]}
    assert known <= written.keys(), "a list is kept that is nobody's"
    for name, record in records.resources.items():
        owner = records.members.get(record.owner)
        if record.status == "granted" and owner is not None and owner.subscription != "-":
            assert f"{owner.subscription} {name}" in records.zsets["declared"], (
                f"{record.owner} was given {name} unasked"
            )


def _feed(records: Records) -> None:
    for entry in records.zsets["feed"]:
        id_, version, _ = entry.split(" ")
        assert int(version) <= records.number("version")
        assert records.members[id_].status != "ended", f"{id_} has ended and is still told things"


def _journal(records: Records) -> None:
    previous = None
    for entry in records.journal:
        seq = int(entry["seq"])
        assert previous is None or seq == previous + 1 or entry["kind"] == "incarnation", (
            f"the journal misses {seq - 1}"
        )
        previous = seq
    assert previous is None or previous == records.number("version"), "the version is not the journal's last seq"


RULES = (
    _names,
    _owned,
    _owners,
    _free,
    _load,
    _revoking,
    _deadlines,
    _sums,
    _counters,
    _timers,
    _sessions,
    _instances,
    _subscriptions,
    _feed,
    _journal,
)
