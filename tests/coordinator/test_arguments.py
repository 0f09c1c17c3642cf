"""Scripts check their arguments before they write anything: a Lua error does not roll back."""

from __future__ import annotations

import pytest
import redis
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.requests import (
    Claim,
    Commit,
    CommitItem,
    Configure,
    Delete,
    Describe,
    Effort,
    Header,
    Heartbeat,
    Join,
    Leave,
    Payload,
    Release,
    ReleaseItem,
    Repair,
    Report,
    Request,
    ResetOffsets,
    Resume,
    SetResources,
    Suspect,
    Tick,
    Vouch,
)
from cobalance.coordinator.scripts import load
from cobalance.errors import ScriptFailed

GARBAGE = ("", "x", "1.5", "0x1", "1e3", " 1", "nan", "9" * 18, "9" * 17, str(2**53), "-")
"""Invalid as a number."""

PAYLOADS = (
    Join(settings=SETTINGS, claims=(Claim("r", 1, 2),)),
    Heartbeat((("r", 1, True),)),
    Commit((CommitItem("r000", 1, 2),)),
    Release((ReleaseItem(resource="r000", token=1, offset=3, effort=Effort(1, 2)),)),
    Leave(),
    Tick(),
    SetResources(version=2, digest="d", names=("a", "b")),
    Configure(create=False, values=(("session_ms", "3000"),)),
    ResetOffsets((("r000", 1),)),
    Resume(("r000",)),
    Describe("members"),
    Describe("resources"),
    Repair(),
    Delete(),
    Report("all r000 1 2"),
    Vouch("amqp"),
    Suspect(member="a", connection="amqp", seen="1/2/3", last_look_ms=1, within_ms=1),
)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda it: type(it).__name__)
def test_malformed_arguments_change_nothing(backend: Backend, payload: Payload) -> None:
    """Each argument in turn, while a session is due to end: a verb checks all of them before it settles anything."""
    group = Group(backend)
    a, _ = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.backend.now_ms += 4_000
    before, script = group.backend.dump(), load(payload.verb)
    good = Request(Header("a", 99, a.incarnation, 0, 0), payload).args()
    broken = [[*good[:at], word, *good[at + 1 :]] for at in range(1, len(good)) for word in GARBAGE]
    broken += [good[:-1], [*good, "more"], [*good, "a b"]]
    refused, wrong = 0, []
    for args in broken:
        try:
            backend.call(script, group_keys("g"), args)
        except (ScriptFailed, redis.ResponseError) as problem:
            told = str(problem), getattr(problem, "outcome", "not_executed"), backend.dump() == before
            refused += told[1:] == ("not_executed", True) and "INVALID" in told[0]
            wrong += [told] if not told[2] else []
        else:
            group.restore(before)
    assert not wrong
    assert refused >= 4 * len(GARBAGE)


def test_no_number_is_so_large_that_the_next_token_would_be_the_same(group: Group) -> None:
    """Lua counts exactly up to 2^53: tokens reported by members are below half of that."""
    with pytest.raises((ScriptFailed, redis.ResponseError), match="INVALID argument"):
        group.join("a", floor_token=2**52)
    b = group.join("b", floor_token=2**52 - 1)
    group.set_resources(b, names(4))
    group.drain()
    assert sorted(it.token for it in b.holds.values()) == [2**52 + number for number in range(4)]
