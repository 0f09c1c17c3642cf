"""Each rule of the consistency checker notices what it is for."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from tests.harness import World, names

from proof.consistency import broken_rule
from proof.records import Records


@pytest.fixture(scope="module")
def sound() -> Records:
    """The records of a group of two that has settled."""
    world = World()
    world.start("A", names(3))
    world.start("B", names(3))
    world.settle()
    return world.records()


def put(part: str, **entries: Any) -> Any:
    """Changes entries of one of the dictionaries."""
    return lambda it: attrs.evolve(it, **{part: getattr(it, part) | entries})


def put_in(index: str, entry: str, score: float = 0) -> Any:
    return lambda it: attrs.evolve(it, zsets=it.zsets | {index: it.zsets[index] | {entry: score}})


def change(part: str, name: str, **fields: Any) -> Any:
    return lambda it: put(part, **{name: attrs.evolve(getattr(it, part)[name], **fields)})(it)


def without_line(it: Records) -> Records:
    return attrs.evolve(it, journal=[entry for entry in it.journal if entry["kind"] != "added"])


BREAKS = [
    ("names are not the resources", put_in("names", "r9")),
    ("owned does not agree with the records", put_in("owned", "A.1 k10000000000000001 r9")),
    ("owned does not agree with the records", change("resources", "r0", token=1)),
    ("a resource has no owner, or one that has ended", change("members", "A.1", status="ended")),
    ("free does not agree with the records", put_in("free", "r0")),
    ("load does not agree with what is kept", put_in("load", "A.1", 1)),
    ("load does not agree with what is kept", put_in("loose", "C.1", 1)),
    ("ids are not the members", put_in("ids", "C.1")),
    ("revoking does not agree with what could be cancelled", put_in("revoking", "A.1")),
    ("deadlines do not agree with the records", put_in("deadlines", "r0", 1)),
    ("a counter is wrong", put("scalars", total="4")),
    ("a counter is wrong", put("scalars", classes="1=3")),
    ("a counter is wrong", put("scalars", ceilings="7")),
    ("a sum of tokens is not that of what is held", put("scalars", **{"k:A.1": "5"})),
    ("something that must end has no timer", change("resources", "r0", avoid="B.1@5@1")),
    ("something that must end has no timer", put("offsets", r9=1)),
    ("sessions are not those of the living", put("scalars", **{"r:C.1": "1 1"})),
    ("sessions are not those of the living", put("scalars", coordinator="C.1")),
    ("subscriptions are miscounted, or a list is nobody's", put("scalars", subscriptions="-=7")),
    ("subscriptions are miscounted, or a list is nobody's", put_in("declared", "other r0")),
    ("an instance id is not its living member's", put("instances", i0="A.1")),
    ("somebody who has ended is still told things", put_in("feed", "C.1 0000000000000001 r0")),
    ("news is newer than the group", put_in("feed", "A.1 0000000000009999 r0")),
    ("the journal misses something", without_line),
    ("the journal misses something", put("scalars", version="9999")),
    ("a token is above the highest", put("scalars", token="1")),
]


@pytest.mark.parametrize(("rule", "breaks"), BREAKS)
def test_a_broken_rule_is_named(sound: Records, rule: str, breaks: Any) -> None:
    assert broken_rule(sound) == ("", [])
    found, _ = broken_rule(breaks(sound))
    assert found == rule


def test_a_grant_must_be_named_by_its_owners_list(sound: Records) -> None:
    """B has a list of its own by now, which does not name what it was granted."""
    given = next(name for name, it in sound.resources.items() if it.owner == "B.1")
    broken = change("members", "B.1", subscription="own")(change("resources", given, status="granted")(sound))
    broken = put("scalars", subscriptions="-=1 own=1")(broken)
    assert broken_rule(broken) == ("a member was given what it does not name", [given])


def test_canonical_data_has_a_stand_in_for_the_highest_token(sound: Records) -> None:
    assert broken_rule(put("scalars", token="1")(sound), stand_in=1) == ("", [])
    assert broken_rule(put("scalars", token="1")(sound), stand_in=2) != ("", [])
