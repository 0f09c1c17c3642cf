"""The in-memory Redis answers like the real one, rejects what our scripts must not use, and can be restored."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cobalance
from cobalance import servers
from cobalance.coordinator.dump import dump_redis, load_redis
from cobalance.coordinator.memory import store as store_module
from cobalance.coordinator.memory.lua_engine import ENGINES
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.transport import Script
from cobalance.errors import ScriptFailed, UsageError

ANSWERS = {"EXISTS", "WAIT"}
"""Answers of our scripts that are also names of Redis commands."""

# Hypothesis runs one command at a time through this script, so that real Redis treats it as a script's command.
GENERIC = Script.of("generic", "return redis.call(ARGV[1], (table.unpack or unpack)(ARGV, 2))")

HASH, OTHER, ZSET, LEX, STREAM = KEYS = tuple(f"{{t}}:{name}" for name in ("hash", "other", "zset", "lex", "stream"))

names = st.sampled_from(["a", "b", "c", "ab", "B", "", "\x00", "b\x00c", "é", "z" * 70])
counts = st.integers(-3, 4).map(str)
whole = st.integers(-9, 9).map(str)
numbers = st.one_of(whole, st.sampled_from(["007", "1.0", " 1", "+1", "-0", "abc", "", "179519856849712"]))
scores = st.one_of(
    whole,
    st.sampled_from(
        ["0.25", "-2.5", "1e3", "inf", "-inf", "+inf", "x", "", " 1", "nan", "1e400", "0x10", "1795198568497123"]
    ),
    # Redis writes minus zero as 0 or -0, depending on how it happens to store the set; 7 and 8 write numbers with many
    # digits differently.
    st.integers(-(2**40), 2**40).filter(bool).map(lambda quarters: repr(quarters / 4)),
)
score_bounds = st.one_of(whole, whole.map("({}".format), st.sampled_from(["-inf", "+inf", "(inf", "x"]))
lex_bounds = st.one_of(st.sampled_from(["-", "+", "x", ""]), names.map("[{}".format), names.map("({}".format))
ids = st.one_of(
    st.sampled_from(["-", "+", "0", "x", "1-x", "0-0"]),
    st.builds("{}-{}".format, st.integers(0, 5), st.integers(0, 3)),
    st.integers(0, 5).map(str),
)
limits = st.one_of(st.just(()), st.tuples(st.just("LIMIT"), counts, counts))
with_scores = st.sampled_from([(), ("WITHSCORES",)])
counted = st.one_of(st.just(()), st.tuples(st.just("COUNT"), counts))
# Redis trims whole nodes, ours whole hundreds: with so few entries, neither drops any.
lengths = st.sampled_from(["-1", "1", "3", "x"])
trims = st.one_of(st.just(()), st.tuples(*map(st.just, ("MAXLEN", "~")), lengths, st.just("LIMIT"), counts))


def command(name: str, *parts: Any) -> st.SearchStrategy[tuple[str, ...]]:
    """A command made of a name and parts that are words, strategies of words, or strategies of lists of words."""
    strategies = [part if isinstance(part, st.SearchStrategy) else st.just(part) for part in parts]
    return st.tuples(*strategies).map(lambda found: (name, *_flat(found)))


def _flat(parts: tuple[Any, ...]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        else:
            yield from _flat(tuple(part))


def several(*parts: Any) -> st.SearchStrategy[list[Any]]:
    """One to three times these parts."""
    return st.lists(st.tuples(*parts), min_size=1, max_size=3)


zset_keys = st.sampled_from([ZSET, LEX])

COMMANDS = st.one_of(
    command("UNLINK", several(st.sampled_from(KEYS))),
    command("PEXPIREAT", st.sampled_from(KEYS), st.sampled_from(["-1", "0", "5000000000000", "x"])),
    command("PERSIST", st.sampled_from(KEYS)),
    command("HSET", st.sampled_from([HASH, OTHER]), several(names, numbers)),
    command("HSET", st.sampled_from([HASH, ZSET]), names),
    command("HGET", st.sampled_from([HASH, OTHER, STREAM]), names),
    command("HMGET", HASH, several(names)),
    command("HDEL", HASH, several(names)),
    command("HEXISTS", HASH, names),
    command("ZADD", ZSET, st.sampled_from([(), ("NX",), ("XX",)]), several(scores, names)),
    command("ZADD", st.sampled_from([ZSET, HASH]), whole, names),
    command("ZADD", LEX, several(st.just("0"), names)),
    command("ZREM", zset_keys, several(names)),
    command("ZSCORE", ZSET, names),
    command("ZCARD", zset_keys),
    command("ZCOUNT", ZSET, score_bounds, score_bounds),
    command("ZLEXCOUNT", LEX, lex_bounds, lex_bounds),
    command("ZRANGE", zset_keys, counts, counts, st.sampled_from([(), ("WITHSCORES",)])),
    command("ZRANGEBYSCORE", ZSET, score_bounds, score_bounds, limits, with_scores),
    command("ZREVRANGEBYSCORE", ZSET, score_bounds, score_bounds, with_scores, limits),
    command("ZRANGEBYLEX", LEX, lex_bounds, lex_bounds, limits),
    command("ZREVRANGEBYLEX", LEX, lex_bounds, lex_bounds, limits),
    command("ZREMRANGEBYLEX", LEX, lex_bounds, lex_bounds),
    command("XADD", STREAM, trims, ids, several(names, names)),
    command("XADD", STREAM, ids, names),
    command("XRANGE", STREAM, ids, ids, counted),
    command("XRANGE", STREAM, ids.map("({}".format), ids, counted),
    command("XREVRANGE", STREAM, ids, ids, counted),
    command("HGET"),
    command("ZADD", ZSET, "1"),
)


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    """A client of a Redis that this module may empty. Replies are left as bytes."""
    with servers.private_redis() as server, redis.Redis.from_url(server.url, protocol=2) as connection:
        yield connection


@pytest.fixture(scope="module")
def stores() -> list[MemoryStore]:
    """One store for each Lua."""
    return [MemoryStore(lua=name) for name in ENGINES]


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest) -> MemoryStore:
    """A store with a clock that a test sets: ``store.clock_us = lambda: ...``."""
    return MemoryStore(lua=request.param, clock_us=lambda: 1_700_000_000_123_456)


def run(store: MemoryStore, source: str, *args: str | int | bytes, keys: tuple[str, ...] = KEYS) -> Any:
    return store.run(Script.of("test", source), keys, args)


def on_redis(client: redis.Redis, source: str, *args: str) -> Any:
    """The reply of the real Redis, or the text of its error."""
    try:
        return client.eval(source, len(KEYS), *KEYS, *args)
    except redis.ResponseError as error:
        return without_name(str(error).partition(" script: ")[0])


def on_store(store: MemoryStore, source: str, *args: str) -> Any:
    """The same from a store."""
    try:
        return run(store, source, *args)
    except ScriptFailed as error:
        return without_name(str(error).removeprefix("The script test failed: ").removeprefix("ERR "))


def without_name(text: str) -> str:
    """Valkey omits Redis's name from its errors."""
    return re.sub(r"(?i)\b(lua )?redis (lib )?", "", text).lower()


def undated(state: Any) -> Any:
    """A state without expiry times, which depend on when a test ran."""
    return [(key.key, key.kind, key.expires_at_ms is not None, key.contents) for key in state]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(sequence=st.lists(COMMANDS, min_size=1, max_size=30))
def test_commands_answer_as_redis_does(
    client: redis.Redis, stores: list[MemoryStore], sequence: list[tuple[str, ...]]
) -> None:
    """Any sequence of commands gets the same replies and errors as on a real Redis, and leaves the same data."""
    client.flushdb()
    for store in stores:
        store.flush()
    for words in sequence:
        expected = on_redis(client, GENERIC.source, *words)
        for store in stores:
            assert on_store(store, GENERIC.source, *words) == expected, (store.engine, words)
    expected_state = undated(dump_redis(client))
    for store in stores:
        assert undated(store.dump()) == expected_state, store.engine


@settings(max_examples=300, deadline=None)
@given(number=st.one_of(st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_become_text_as_in_redis(client: redis.Redis, stores: list[MemoryStore], number: float) -> None:
    """A number passed to redis.call, or used as a score, is written as Redis writes it."""
    source = (
        f"redis.call('HSET', KEYS[1], 'f', {number!r}) redis.call('ZADD', KEYS[3], {number!r}, 'm') "
        "return {redis.call('HGET', KEYS[1], 'f'), redis.call('ZSCORE', KEYS[3], 'm')}"
    )
    client.flushdb()
    expected = on_redis(client, source)
    for store in stores:
        store.flush()
        found = on_store(store, source)
        if isinstance(number, int):  # all that our scripts pass
            assert found == expected, store.engine
        else:  # Redis 8 writes 0.1 and 1e17 with other digits than Redis 7
            assert [float(text) for text in found] == [float(text) for text in expected], store.engine


@pytest.mark.parametrize(
    "source",
    [
        "return 1795198568497123",
        "return -2.9",
        "return {1, 2.9, 'x', false, true, {3, {4}}}",
        "return {1, nil, 3}",
        "return nil",
        "return {ok = 'FINE'}",
        "return {err = 'MY fault'}",
        "return redis.error_reply('MY fault')",
        "return redis.pcall('HGET', KEYS[3], 'f')",
        "local r = redis.pcall('ZADD', KEYS[3], 'x', 'm') return r.err",
        "return {redis.call('HGET', KEYS[1], 'f') == false, redis.call('HMGET', KEYS[1], 'f')[1] == false}",
        "return redis.call('hget', KEYS[2], 'f')",
        "return redis.call()",
        "return redis.call('HGET', {}, 'f')",
        "return redis.call('HGET', nil, 'f')",
        "error('boom')",
        "error({err = 'MY boom'})",
        "return nil + 1",
        "x = 1",
        "return x",
        "KEYS = {}",
        "redis.foo = 1",
        "string.foo = 1",
        "KEYS[1] = 'other' return KEYS[1]",
        "return #KEYS .. ',' .. #ARGV",
    ],
)
def test_scripts_end_as_in_redis(client: redis.Redis, stores: list[MemoryStore], source: str) -> None:
    """Replies are converted, and mistakes reported, as by Redis."""
    client.flushdb()
    client.zadd(ZSET, {"m": 1})
    expected = on_redis(client, source, "1", "2")
    for store in stores:
        store.flush()
        run(store, "redis.call('ZADD', KEYS[3], 1, 'm')")
        assert on_store(store, source, "1", "2") == expected, store.engine


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("return redis.call('HGET', '{t}:another', 'f')", "not in KEYS: {t}:another"),
        ("return redis.call('LPUSH', KEYS[1], 'x')", "does not know the command LPUSH"),
        ("return redis.call('ZRANGE', KEYS[3], 0, 1, 'REV')", "option REV"),
        ("return redis.call('ZRANGEBYLEX', KEYS[4], '-', '+', 'WITHSCORES')", "option WITHSCORES"),
        ("return redis.call('XADD', KEYS[5], 'NOMKSTREAM', '1-1', 'a', 'b')", "not NOMKSTREAM"),
        ("return redis.call('XADD', KEYS[5], 'MAXLEN', 5, '1-1', 'a', 'b')", "nothing but MAXLEN ~ length LIMIT most"),
        ("return redis.call('XADD', KEYS[5], '7-*', 'a', 'b')", "the id 7-*"),
        ("return redis.call('PUBLISH', 'untagged', 'x')", "does not carry the hash tag"),
        ("return redis.call('PUBSUB', 'NUMSUB', 'untagged')", "does not carry the hash tag"),
        ("return redis.call('PUBSUB', 'CHANNELS')", "does not know PUBSUB CHANNELS"),
        ("return 0/0", "no integer"),
    ],
)
def test_rules_are_enforced(store: MemoryStore, source: str, rule: str) -> None:
    """What Redis would tolerate here, but some server or cluster would not, ends the call."""
    with pytest.raises(ScriptFailed, match="broke a rule") as caught:
        run(store, source)
    assert rule in str(caught.value)


def test_what_nobody_uses_is_refused(client: redis.Redis, store: MemoryStore) -> None:
    """The store knows just the commands that our scripts call: a script that needs another one has to add it here."""
    texts = [file.read_text() for file in Path(cobalance.__file__).parent.rglob("coordinator/lua/**/*.lua")]
    used = {name for text in texts for name in re.findall(r"'([A-Z]{3,})'", text)} - ANSWERS | {"XRANGE"}
    names = [str(name).upper() for name in client.command()]
    known = set()
    for name in names:
        try:
            run(store, "return redis.call(ARGV[1])", name)
        except ScriptFailed as error:
            known |= set() if f"does not know the command {name}" in str(error) else {name}
        else:
            known.add(name)
    assert known == used & set(names)
    assert len(known) < 30


def test_a_hash_is_visited_page_by_page(store: MemoryStore) -> None:
    """Fields that exist throughout are visited, whatever changes meanwhile; pages are not much longer than requested."""
    run(store, "for i = 1, 200 do redis.call('HSET', KEYS[1], 'f' .. i, i) end")
    seen: set[bytes] = set()
    cursor: Any = b"0"
    for taken in range(200):
        cursor, found = run(store, "return redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', '10')", cursor.decode())
        assert len(found) // 2 < 15
        seen.update(found[::2])
        run(
            store,
            "redis.call('HSET', KEYS[1], ARGV[1], '') redis.call('HDEL', KEYS[1], ARGV[2])",
            f"g{taken}",
            f"g{taken - 1}",
        )
        if cursor == b"0":
            break
    assert {b"f%d" % number for number in range(1, 201)} <= seen


def test_a_script_dies_where_it_is_told_to(store: MemoryStore) -> None:
    """Its earlier writes remain, as in Redis; the count starts over with the next script."""
    source = "redis.call('HSET', KEYS[1], 'a', 1) redis.call('HGET', KEYS[1], 'a') redis.call('ZADD', KEYS[3], 1, 'm')"
    store.die_at(2)
    with pytest.raises(ScriptFailed, match="can't run this command"):
        run(store, source)
    assert store.writes == 2
    assert run(store, "return {redis.call('HEXISTS', KEYS[1], 'a'), redis.call('ZCARD', KEYS[3])}") == [1, 0]
    run(store, source)
    assert run(store, "return redis.call('ZCARD', KEYS[3])") == 1


def test_rules_cannot_be_caught(store: MemoryStore) -> None:
    """A script that swallows the error of a broken rule fails all the same."""
    with pytest.raises(ScriptFailed, match="not in KEYS"):
        run(store, "pcall(redis.call, 'ZCARD', 'q') return redis.pcall('ZCARD', 'q') and 1")


def test_keys_of_two_slots_are_refused(store: MemoryStore) -> None:
    """A cluster would not run such a script."""
    with pytest.raises(ScriptFailed, match="several cluster slots") as caught:
        run(store, "return 1", keys=("{a}:x", "{b}:x"))
    assert caught.value.outcome == "not_executed"


@pytest.mark.parametrize(
    "name", ["pairs", "next", "os", "io", "math.random", "load", "require", "python", "cjson", "_G"]
)
def test_what_is_not_portable_is_missing(store: MemoryStore, name: str) -> None:
    """Scripts cannot reach what differs between servers, or leaves the sandbox."""
    with pytest.raises(ScriptFailed):
        run(store, f"return {name}(1)")


def test_counting_ends_where_doubles_do(store: MemoryStore) -> None:
    """Above 2^53, where Lua would count almost correctly, the command fails instead."""
    read = "return redis.call('ZRANGE', KEYS[3], 0, ARGV[1])"
    assert run(store, read, "9007199254740991") == []
    with pytest.raises(ScriptFailed, match="only below 2\\^53"):
        run(store, read, "9007199254740993")


def test_a_script_that_does_not_compile(store: MemoryStore) -> None:
    """A syntax error names the script and its line, and nothing ran."""
    with pytest.raises(ScriptFailed, match="test does not compile: user_script:1") as caught:
        run(store, "return return")
    assert caught.value.outcome == "not_executed"


@pytest.mark.parametrize("lua", ENGINES)
def test_a_later_store_runs_what_an_earlier_one_has_parsed(lua: str) -> None:
    """Within the same limits, on data of its own, and its errors name the same lines."""
    script = Script.of("parsed once", f"local by = '{lua}'\nredis.call('HSET', KEYS[1], by, 1)\nreturn os")
    for _ in range(2):
        later = MemoryStore(lua=lua)
        assert run(later, "return redis.call('HGET', KEYS[1], ARGV[1])", lua) is None
        with pytest.raises(ScriptFailed, match="user_script:3: Script attempted to access nonexistent global variable"):
            later.run(script, KEYS, ())
        assert run(later, "return redis.call('HGET', KEYS[1], ARGV[1])", lua) == b"1"
    assert store_module._BYTECODE[lua, script.sha]


def test_what_was_written_before_an_error_remains(store: MemoryStore) -> None:
    """There is no rollback, as in Redis."""
    with pytest.raises(ScriptFailed) as caught:
        run(store, "redis.call('HSET', KEYS[1], 'f', 'x') error('late')")
    assert caught.value.outcome == "unknown"
    assert run(store, "return redis.call('HGET', KEYS[1], 'f')") == b"x"


def test_unordered_replies_are_shuffled_by_the_seed(store: MemoryStore) -> None:
    """The order of a hash changes with every reply, and is the same for the same seed on every Lua."""
    store.seed(7)
    run(store, "for i = 1, 9 do redis.call('HSET', KEYS[1], i, '') end")
    listed = [b"".join(run(store, "return redis.call('HSCAN', KEYS[1], '0', 'COUNT', '9')")[1]) for _ in range(3)]
    assert listed == [b"734281695", b"643521897", b"278563149"]


def test_time_stands_still_in_a_script(store: MemoryStore) -> None:
    """TIME is the injected clock, read once per call."""
    ticking = iter(range(1_700_000_000_123_456, 1_700_000_009_999_999))
    store.clock_us = lambda: next(ticking)
    source = "local a, b = redis.call('TIME'), redis.call('TIME') return {a[1], a[2], b[2]}"
    assert run(store, source) == [b"1700000000", b"123456", b"123456"]
    assert run(store, source) == [b"1700000000", b"123457", b"123457"]


def test_keys_expire_by_the_injected_clock(store: MemoryStore) -> None:
    """A key is there until its time has come, and then in no reply and no dump."""
    run(store, "redis.call('HSET', KEYS[1], 'f', 'x') redis.call('PEXPIREAT', KEYS[1], '1700000000128')")
    store.clock_us = lambda: 1_700_000_000_127_999
    assert run(store, "return redis.call('HEXISTS', KEYS[1], 'f')") == 1
    store.clock_us = lambda: 1_700_000_000_128_000
    assert store.dump() == ()
    assert run(store, "return redis.call('HEXISTS', KEYS[1], 'f')") == 0


def entries(store: MemoryStore) -> int:
    """Length of the stream."""
    return len(run(store, "return redis.call('XRANGE', KEYS[5], '-', '+')"))


def test_stream_ids_rise_even_when_the_clock_falls(store: MemoryStore) -> None:
    """``*`` takes the clock's millisecond, or counts on from the last id."""
    add = "return redis.call('XADD', KEYS[5], '*', 'f', 'v')"
    first = [run(store, add), run(store, add)]
    store.clock_us = lambda: 1_600_000_000_000_000
    assert [*first, run(store, add)] == [b"1700000000123-0", b"1700000000123-1", b"1700000000123-2"]


def test_streams_are_trimmed_about_to_a_length(store: MemoryStore) -> None:
    """An approximate limit drops whole hundreds, never too much, and this many entries per call at most; 0 is no limit."""
    add = "redis.call('XADD', KEYS[5], 'MAXLEN', '~', 100, 'LIMIT', ARGV[1], '*', 'i', 'n')"
    run(store, f"for i = 1, 350 do {add} end", "100")
    assert entries(store) == 150
    run(store, "for i = 1, 850 do redis.call('XADD', KEYS[5], '*', 'i', i) end")
    found = []
    for limit in ("1", "250", "0"):
        run(store, add, limit)
        found.append(entries(store))
    assert found == [1_001, 802, 103]


def test_long_replies_cross_in_pieces(store: MemoryStore) -> None:
    """A reply may be longer than Lua's stack."""
    reply = run(store, "local t = {} for i = 1, 30000 do t[i] = {i} end return t")
    assert reply == [[i] for i in range(1, 30_001)]


def test_arguments_arrive_as_text(store: MemoryStore) -> None:
    """Integers of any size, text and bytes are all strings in ARGV, and the identity comes first if requested."""
    store.identity = "me"
    source = "return {ARGV[1], ARGV[2], ARGV[3], ARGV[4], type(ARGV[2])}"
    reply = store.run(Script.of("test", source), KEYS, [2**62, "é", b"\xff\x00"], identify=True)
    assert reply == [b"me", b"4611686018427387904", "é".encode(), b"\xff\x00", b"string"]


BUILD = """
redis.call('HSET', KEYS[1], 'f', 'v', 'g', 'w')
redis.call('HSET', KEYS[2], 'f', '5') redis.call('PEXPIREAT', KEYS[2], '5000000000000')
redis.call('ZADD', KEYS[3], 1.5, 'a', -2, 'b')
for i = 1, 300 do redis.call('ZADD', KEYS[4], 0, 'member' .. i) end
redis.call('XADD', KEYS[5], '5-1', 'f', 'v', 'g', 'w') redis.call('XADD', KEYS[5], '5-2', 'f', 'v')
"""

CHANGE = """
redis.call('HSET', KEYS[1], 'f', 'changed') redis.call('HDEL', KEYS[1], 'g') redis.call('PERSIST', KEYS[2])
redis.call('ZADD', KEYS[3], 9, 'a') redis.call('ZREMRANGEBYLEX', KEYS[4], '[member100', '(member3')
redis.call('XADD', KEYS[5], '6-1', 'a', 'b')
"""


def test_a_snapshot_is_a_moment(store: MemoryStore) -> None:
    """Later changes do not affect a snapshot, and each can be restored repeatedly."""
    run(store, BUILD)
    before, moment = store.dump(), store.snapshot()
    run(store, CHANGE)
    after, later = store.dump(), store.snapshot()
    assert before != after
    for state, snapshot in [(before, moment), (after, later), (before, moment)]:
        store.restore(snapshot)
        assert store.dump() == state
        run(store, CHANGE.replace("6-1", "7-1"))
        assert store.dump() != state


def test_a_dump_can_be_restored_anywhere(store: MemoryStore) -> None:
    """A dump rebuilds the state in another store with another Lua, where it continues in the same way."""
    run(store, BUILD)
    for engine in ENGINES:
        other = MemoryStore(lua=engine, clock_us=store.clock_us)
        other.restore(store.dump())
        assert other.dump() == store.dump()
        run(other, CHANGE)
        first = other.dump()
        other.restore(store.snapshot() if other is store else store.dump())
        run(other, CHANGE)
        assert other.dump() == first


def test_a_dump_travels_to_a_real_redis_and_back(client: redis.Redis, stores: list[MemoryStore]) -> None:
    """The canonical form is the same on both sides, including expiry and stream ids."""
    client.flushdb()
    for store in stores:
        store.flush()
        run(store, BUILD)
        load_redis(client, store.dump())
        assert dump_redis(client) == store.dump()
        store.restore(dump_redis(client))
        assert dump_redis(client) == store.dump()


def test_an_emptied_stream_keeps_its_last_id(client: redis.Redis, stores: list[MemoryStore]) -> None:
    """A stream without entries exists, and its next id is above its last one."""
    client.flushdb()
    client.xadd(STREAM, {"a": "b"}, id="9-9")
    client.xtrim(STREAM, maxlen=0, approximate=False)
    emptied = dump_redis(client)
    for store in stores:
        store.restore(emptied)
        assert store.dump() == emptied
        load_redis(client, store.dump())
        assert dump_redis(client) == emptied


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(st.tuples(st.integers(0, 400), st.integers(-50, 50), st.booleans()), max_size=600),
)
def test_large_sorted_sets_stay_sorted(stores: list[MemoryStore], moves: list[tuple[int, int, bool]]) -> None:
    """While chunks split and merge, a sorted set equals a dictionary that is sorted on every read."""
    source = """
    for i = 1, #ARGV, 3 do
      if ARGV[i + 2] == '1' then redis.call('ZADD', KEYS[3], ARGV[i + 1], ARGV[i]) else redis.call('ZREM', KEYS[3], ARGV[i]) end
    end
    """
    model: dict[bytes, int] = {}
    words: list[str | int | bytes] = []
    for number, score, add in [(n, 0, True) for n in range(400)] + moves:
        member = b"m%d" % number
        words += [member, score, int(add)]
        if add:
            model[member] = score
        else:
            model.pop(member, None)
    expected = sorted(model, key=lambda member: (model[member], member))
    for store in stores:
        store.flush()
        run(store, source, *words)
        assert run(store, "return redis.call('ZRANGE', KEYS[3], 0, -1)") == expected
        assert run(store, "return redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '-inf')") == expected[::-1]
        middle = len(expected) // 2
        assert run(store, f"return redis.call('ZRANGE', KEYS[3], {middle}, {middle})") == expected[middle : middle + 1]


def test_threads_take_turns(store: MemoryStore) -> None:
    """Scripts of several threads do not interleave."""
    source = "redis.call('HSET', KEYS[1], 'n', (redis.call('HGET', KEYS[1], 'n') or 0) + 1)"
    threads = [threading.Thread(target=lambda: [run(store, source) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run(store, "return redis.call('HGET', KEYS[1], 'n')") == b"2000"


@given(steps=st.lists(st.tuples(st.sampled_from(["on", "off", "publish"]), st.integers(0, 2), st.integers(0, 1))))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_messages_go_to_whoever_listens_then(store: MemoryStore, steps: list[tuple[str, int, int]]) -> None:
    """As often as it subscribed, in that order; unsubscribing ends all of them; PUBLISH and NUMSUB return the same count."""
    heard: list[tuple[int, str, bytes]] = []
    receivers = [lambda channel, message, who=who: heard.append((who, channel, message)) for who in range(3)]
    listening: dict[str, list[int]] = {channel: [] for channel in ("{t}:é", "{t}:n")}
    for step, who, number in [*steps, *(("off", who, number) for who in range(3) for number in range(2))]:
        channel = sorted(listening)[number]
        heard.clear()
        if step == "on":
            store.subscribe(channel, receivers[who])
            listening[channel].append(who)
        elif step == "off":
            store.unsubscribe(channel, receivers[who])
            listening[channel] = [it for it in listening[channel] if it != who]
        count = run(store, "return redis.call('PUBLISH', ARGV[1], ARGV[2])", channel, "é")
        assert count == len(listening[channel])
        assert run(store, "return redis.call('PUBSUB', 'NUMSUB', ARGV[1])", channel) == [channel.encode(), count]
        assert heard == [(it, channel, "é".encode()) for it in listening[channel]]


def test_listening_may_end_while_a_message_is_delivered(store: MemoryStore) -> None:
    """Receivers at the time of publishing get the message, but not the next one."""
    heard: list[bytes] = []

    def first(channel: str, message: bytes) -> None:
        heard.append(message)
        store.unsubscribe(channel, first)
        store.unsubscribe(channel, second)

    def second(_: str, message: bytes) -> None:
        heard.append(message)

    store.subscribe("{t}:n", first)
    store.subscribe("{t}:n", second)
    for message, receivers in (("1", 2), ("2", 0)):
        assert run(store, "return redis.call('PUBLISH', ARGV[1], ARGV[2])", "{t}:n", message) == receivers
    assert heard == [b"1", b"1"]


def test_the_lua_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By argument or by COBALANCE_LUA. The error for an unknown name lists the known ones."""
    monkeypatch.setenv("COBALANCE_LUA", "lua54")
    assert MemoryStore().engine == "lua54"
    assert MemoryStore(lua="lua51").engine == "lua51"
    with pytest.raises(UsageError, match="luajit21, lua51, lua54"):
        MemoryStore(lua="lua99")
