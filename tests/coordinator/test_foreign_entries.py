"""Entries of somebody else in the group's indices, and values that we never write, do not stop the group."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import redis
from tests.coordinator.backends import Backend
from tests.coordinator.driver import Group, names

from cobalance.coordinator.client import ResourceRow
from cobalance.coordinator.keys import NAMES, group_keys
from cobalance.coordinator.requests import Header, Repair, Request
from cobalance.coordinator.transport import Script
from cobalance.errors import ScriptFailed

KEYS = dict(zip(NAMES, group_keys("g"), strict=True))


def do(backend: Backend, command: str, key: str, *words: str | int) -> object:
    """One command, as somebody with redis-cli would give it."""
    script = Script.of(command, f"return redis.call('{command}', KEYS[1], (table.unpack or unpack)(ARGV, 2))")
    return backend.call(script, (KEYS[key],), words)


@pytest.mark.parametrize("entry", ["junk", "", "Z:1", "s", "o:", "e:nobody", "a:nothing", "l:nothing", "h:nobody"])
@pytest.mark.parametrize("score", ["-inf", "0", "17.5"])
def test_a_timer_of_somebody_else_is_removed(group: Group, entry: str, score: str) -> None:
    """The others fire: who is silent has crashed."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    do(group.backend, "ZADD", "timers", score, entry)
    b.silent = True
    group.run(8_000)
    assert do(group.backend, "ZSCORE", "timers", entry) is None
    assert set(group.holders().values()) == {"a"}


@pytest.mark.parametrize("entry", ["r000", "r:x", "restart", "r"])
def test_a_timer_of_somebody_else_ends_no_recovery(group: Group, entry: str) -> None:
    """Nor does a real one before its time: nothing is given out that another member may still work."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    group.lose_data()
    b.heartbeat()
    again = b.rejoin("b2")
    do(group.backend, "ZADD", "timers", 0, entry)
    group.set_resources(again, names(4))
    for _ in range(5):
        group.backend.now_ms += 100
        assert group.tick().recovering_ms > 0
    assert set(again.holds) == set(b.holds)


@pytest.mark.parametrize("entry", ["y:something", "y"])
def test_a_timer_of_a_later_release_is_left_to_it(group: Group, entry: str) -> None:
    """It is put off by a session timeout, so that nobody has to call for it all the time."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    do(group.backend, "ZADD", "timers", 0, entry)
    reply = group.tick()
    assert reply.due_ms > reply.now_ms
    at = do(group.backend, "ZSCORE", "timers", entry)
    assert at == str(reply.now_ms + group.settings.session_timeout_ms).encode()
    b.silent = True
    group.run(8_000)
    assert do(group.backend, "ZSCORE", "timers", entry) is not None
    assert set(group.holders().values()) == {"a"}
    do(group.backend, "ZREM", "timers", entry)


@pytest.mark.parametrize("entry", ["nothing", "r000"])
def test_a_deadline_of_somebody_else_is_removed(group: Group, entry: str) -> None:
    """Of a resource that there is not, or that nobody was asked for."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    before = group.holders()
    do(group.backend, "ZADD", "deadlines", 1, entry)
    group.tick()
    assert do(group.backend, "ZSCORE", "deadlines", entry) is None
    assert group.holders() == before
    b.silent = True
    group.run(8_000)
    assert set(group.holders().values()) == {"a"}


NO_NUMBERS = ("10.0", "1e3", "0x10", "nan", "-inf", "", " 7", "9" * 17, "9" * 400)
"""Lua takes most of them for numbers, Python's int() none but the last two, of which Lua keeps not every digit."""


class Looked(Group):
    """Its data is not checked, which needs it to be readable."""

    def check(self) -> None: ...


def looks(group: Group) -> list[Callable[[], object]]:
    """What people do."""
    one = group.coordinator
    return [
        one.tick,
        one.state,
        one.settings,
        lambda: list(one.members()),
        lambda: list(one.resources()),
        lambda: list(one.kept_offsets()),
        one.subscriptions,
        lambda: one.resume("r000"),
        lambda: one.execute(Request(Header("-", 0), Repair())),
    ]


def outcomes(group: Group) -> set[str]:
    """The errors of all of these; what is no error of ours passes through. RedisBackend raises what Redis says."""
    said = set()
    for look in looks(group):
        try:
            look()
        except (ScriptFailed, redis.ResponseError) as error:
            said.add(re.sub(r".*(UNREADABLE \w+ \S+).*", r"\1", str(error)))
    return said


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_an_offset_that_only_lua_takes_for_a_number_is_named(backend: Backend, text: str) -> None:
    """By all that read it; holders of something else go on. Once it is set right all is well."""
    group = Looked(backend)
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    damaged = min(a.holds)
    do(group.backend, "HSET", "offsets", damaged, text)
    assert outcomes(group) == {f"UNREADABLE offsets {damaged}"}
    assert b.commit(min(b.holds), 5) == "OK"
    with pytest.raises((ScriptFailed, redis.ResponseError), match=f"UNREADABLE offsets {damaged}"):
        a.commit(damaged, 5)
    with pytest.raises((ScriptFailed, redis.ResponseError), match=f"UNREADABLE offsets {damaged}"):
        a.release(damaged)
    do(group.backend, "HSET", "offsets", damaged, 7)
    assert not outcomes(group)
    assert a.commit(damaged, 8) == "OK"


STATE = (
    "session_ms", "version", "incarnation", "due", "heard", "skew", "total", "live", "token", "expires",
    "r:a", "k:a", "u:~other", "classes", "subscriptions",
)  # fmt: skip
PACKED = {"r:a": "1 {}", "u:~other": "{} x 1 - 1 0", "classes": "1={}", "subscriptions": "-={}"}
"""How some of them hold it."""


@pytest.mark.parametrize("field", STATE)
@pytest.mark.parametrize("text", ["nan", "inf", "mine", "9" * 400])
def test_a_scalar_that_is_no_whole_number_is_named(backend: Backend, field: str, text: str) -> None:
    """To everybody who reads it, members included; put back, all is well."""
    group = Looked(backend)
    a, b = group.join("a"), group.join("b", subscription="~other")
    group.set_resources(a, names(4), version=1)
    group.set_resources(b, names(6), version=1)
    group.drain()
    before = backend.dump()
    do(backend, "HSET", "state", field, PACKED.get(field, "{}").format(text))
    said = set()
    for deed in (
        a.heartbeat,
        lambda: a.heartbeat(("r000", 1, True)),
        lambda: a.release(*a.holds),
        lambda: group.set_resources(b, names(7), version=2),
        lambda: group.join("c"),
        *looks(group),
    ):
        try:
            deed()
        except (ScriptFailed, redis.ResponseError) as error:
            said.add(re.sub(r".*(UNREADABLE \w+ \S+).*", r"\1", str(error)))
    assert said == {f"UNREADABLE state {field}"}
    group.restore(before)
    assert not outcomes(group)


@pytest.mark.parametrize(("key", "field"), [("resources", "r000"), ("members", "a")])
@pytest.mark.parametrize("text", ["9" * 17, "9" * 400])
def test_a_record_with_a_number_beyond_count_is_named(backend: Backend, key: str, field: str, text: str) -> None:
    group = Looked(backend)
    (a,) = group.joined("a")
    group.set_resources(a, names(4))
    group.drain()
    before = do(backend, "HGET", key, field)
    assert isinstance(before, bytes)
    words = before.decode().split(" ")
    words[3] = text
    do(group.backend, "HSET", key, field, " ".join(words))
    assert outcomes(group) == {f"UNREADABLE {key} {field}"}
    do(group.backend, "HSET", key, field, before.decode())
    assert not outcomes(group)


def test_what_a_member_told_is_left_out_if_it_is_nonsense(group: Group) -> None:
    """It is only for people."""
    group.joined("a")
    do(group.backend, "HSET", "state", "w:a", "12.5 all r000 x y")
    assert [it.in_flight for it in group.coordinator.members()] == [None]


def test_a_pause_of_no_number_is_none() -> None:
    row = ResourceRow("r", "halted", None, 1, 1, 0, "2", False, "halted:a=x@soon@1", None)
    assert row.paused_until_ms == 0
