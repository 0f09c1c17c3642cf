"""The common behaviour of all transports: the same tests on a real Redis, over TCP and a Unix socket, and in memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from cobalance import servers
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import LISTENING, PRESENT, REPORT, RESYNC, SETTINGS, Listener, Script, Transport
from cobalance.errors import ScriptFailed, Unreachable, UsageError
from cobalance.servers.redis import PrivateRedis

KEYS = ("{t}:counter", "{t}:stream")

ECHO = Script.of("echo", "return {ARGV[1], ARGV[2], ARGV[3], #ARGV, KEYS[1]}")
COUNT = "local n = (redis.call('HGET', KEYS[1], 'n') or 0) + 1 redis.call('HSET', KEYS[1], 'n', n) "
INCR = Script.of("incr", f"{COUNT} return n")
PUBLISH = Script.of("publish", "return redis.call('PUBLISH', ARGV[2], ARGV[3])")
APPEND = Script.of("append", "return redis.call('XADD', KEYS[2], ARGV[2], 'kind', ARGV[3], 'seq', '1')")

Hints = queue.Queue[tuple[str, int]]

WAIT_S = 60
"""Long enough for a busy machine; a passing test never waits that long."""


@pytest.fixture(scope="module")
def redis() -> Iterator[PrivateRedis]:
    """A Redis that this module may empty, on this machine because of its Unix socket."""
    with closing(servers.private_redis()) as server:
        assert isinstance(server, PrivateRedis)
        yield server


@pytest.fixture(params=["tcp", "unix", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty coordinator."""
    if request.param == "memory":
        return f"memory://{request.node.nodeid}"
    server: PrivateRedis = request.getfixturevalue("redis")
    address = server.url if request.param == "tcp" else server.socket_url
    with closing(open_transport(address)) as transport:
        transport.call(Script.of("clear", "return redis.call('UNLINK', KEYS[1], KEYS[2])"), KEYS, [])
    return address


@pytest.fixture
def transport(url: str) -> Iterator[Transport]:
    with closing(open_transport(url)) as opened:
        yield opened


@pytest.fixture
def hints() -> Hints:
    """The hints that a listener received."""
    return queue.Queue()


@pytest.fixture
def listener(transport: Transport, hints: Hints) -> Iterator[Listener]:
    """A listener that records its hints."""
    with closing(transport.listen(lambda channel, version: hints.put((channel, version)))) as listening:
        yield listening


def test_the_identity_comes_first(transport: Transport) -> None:
    """ARGV starts with the server's identity, which is the same on every call; then come our arguments, as text."""
    identity, *rest = transport.call(ECHO, KEYS, ["text é", 2**60])  # type: ignore[misc]
    assert isinstance(identity, bytes)
    assert len(identity) == 40
    assert rest == ["text é".encode(), b"1152921504606846976", 3, b"{t}:counter"]
    assert transport.call(ECHO, KEYS, ["", b"\xff\x00"]) == [identity, b"", b"\xff\x00", 3, b"{t}:counter"]


def test_replies_of_every_kind(transport: Transport) -> None:
    """Integers, bytes, nil, status and nested lists arrive alike."""
    script = Script.of("kinds", "return {1, 'a', false, {}, {2, {'b'}}, {ok = 'OK'}, 1795198568497123}")
    assert transport.call(script, KEYS, []) == [1, b"a", None, [], [2, [b"b"]], b"OK", 1795198568497123]


def test_transports_to_one_url_share_the_data(transport: Transport, url: str) -> None:
    """What one writes, the other reads; both see the same server."""
    with closing(open_transport(url)) as other:
        assert [transport.call(INCR, KEYS, []), other.call(INCR, KEYS, [])] == [1, 2]
        assert transport.call(ECHO, KEYS, []) == other.call(ECHO, KEYS, [])


def test_memory_stores_are_told_apart_by_name() -> None:
    """Another name is another store, with another identity."""
    with closing(open_transport("memory://one")) as one, closing(open_transport("memory://two")) as two:
        assert one.call(INCR, KEYS, []) == two.call(INCR, KEYS, []) == 1
        assert one.call(ECHO, KEYS, []) != two.call(ECHO, KEYS, [])


def test_a_failing_script_says_which_and_why(transport: Transport) -> None:
    """The error names the script and contains Redis's message; the next call works."""
    with pytest.raises(ScriptFailed, match=r"[Tt]he script bad .*boom") as caught:
        transport.call(Script.of("bad", f"{COUNT} error('boom')"), KEYS, [])
    assert caught.value.outcome == "unknown"
    assert transport.call(INCR, KEYS, []) == 2


def test_calls_of_several_threads_queue_up(transport: Transport) -> None:
    """Every call gets its own reply."""
    replies: list[object] = []
    threads = [
        threading.Thread(target=lambda: replies.extend(transport.call(INCR, KEYS, []) for _ in range(100)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(replies, key=str) == sorted(range(1, 401), key=str)


def test_a_closed_transport_says_so(transport: Transport) -> None:
    """Closing twice is fine; calling afterwards is not."""
    transport.close()
    transport.close()
    with pytest.raises(Unreachable, match="was closed") as caught:
        transport.call(INCR, KEYS, [])
    assert caught.value.outcome == "not_executed"


def test_streams_are_read_after_an_id(transport: Transport) -> None:
    """Oldest first, at most as many as requested, starting after the given id."""
    for number in range(1, 5):
        transport.call(APPEND, KEYS, [f"{number}-0", f"kind é {number}"])
    first = transport.read_stream(KEYS[1], "0", 2)
    assert first == [("1-0", {"kind": "kind é 1", "seq": "1"}), ("2-0", {"kind": "kind é 2", "seq": "1"})]
    assert [entry for entry, _ in transport.read_stream(KEYS[1], first[-1][0], 10)] == ["3-0", "4-0"]
    assert transport.read_stream(KEYS[1], "4-0", 10) == []
    assert transport.read_stream("{t}:nothing", "0", 10) == []


def test_a_subscription_begins_with_a_resync(listener: Listener, hints: Hints) -> None:
    """Messages from before may have been missed."""
    listener.subscribe("{t}:n:a")
    assert hints.get(timeout=WAIT_S) == ("{t}:n:a", LISTENING)


def test_hints_carry_the_version(listener: Listener, hints: Hints, transport: Transport) -> None:
    """A published decimal number is the version, or an errand's; anything else means resync. Nobody can publish what
    says that the subscription has begun.
    """
    listener.subscribe("{t}:n:a")
    hints.get(timeout=WAIT_S)
    said = {"1795198568497123": 1795198568497123, "7": 7, "nonsense": RESYNC, "-99": -99, str(LISTENING): RESYNC}
    said |= {str(it): it for it in (RESYNC, REPORT, SETTINGS, PRESENT)}
    for message in said:
        transport.call(PUBLISH, KEYS, ["{t}:n:a", message])
    assert [hints.get(timeout=WAIT_S) for _ in said] == [("{t}:n:a", version) for version in said.values()]


def test_only_subscribed_channels_are_heard(listener: Listener, hints: Hints, transport: Transport) -> None:
    """Channels are added and removed while listening, from any thread."""
    for channel in ("{t}:n:a", "{t}:n:b"):
        threading.Thread(target=listener.subscribe, args=(channel,)).start()
    assert sorted([hints.get(timeout=WAIT_S), hints.get(timeout=WAIT_S)]) == [
        ("{t}:n:a", LISTENING),
        ("{t}:n:b", LISTENING),
    ]
    listener.unsubscribe("{t}:n:a")
    listener.subscribe("{t}:n:c")
    assert hints.get(timeout=WAIT_S) == ("{t}:n:c", LISTENING)
    for channel in ("{t}:n:a", "{t}:n:x", "{t}:n:b"):
        transport.call(PUBLISH, KEYS, [channel, "5"])
    assert hints.get(timeout=WAIT_S) == ("{t}:n:b", 5)


def test_a_receiver_that_calls_back_does_not_lock_up(transport: Transport, hints: Hints) -> None:
    """The coordinator may be called from within a hint."""

    def call_and_tell(channel: str, version: int) -> None:
        transport.call(INCR, KEYS, [])
        hints.put((channel, version))

    with closing(transport.listen(call_and_tell)) as listening:
        listening.subscribe("{t}:n:a")
        assert hints.get(timeout=WAIT_S) == ("{t}:n:a", LISTENING)
        transport.call(PUBLISH, KEYS, ["{t}:n:a", "1"])
        assert hints.get(timeout=WAIT_S) == ("{t}:n:a", 1)


def test_a_closed_listener_is_silent(listener: Listener, hints: Hints, transport: Transport) -> None:
    """No more hints arrive, and closing twice is fine."""
    listener.subscribe("{t}:n:a")
    hints.get(timeout=WAIT_S)
    listener.close()
    listener.close()
    assert transport.call(PUBLISH, KEYS, ["{t}:n:a", "1"]) == 0
    assert hints.empty()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "amqp://guest:s3cret@localhost",
        "redis://:s3cr/et@localhost:6379",
        "redis://user:s3cret@localhost:port",
        "redis://:s3cret@localhost/name",
        "redis://:s3cret@localhost:99999",
        "redis://:s3cret@localhost?db=x",
        "rediss://:s3cret@[::1",
        "unix://",
    ],
)
def test_urls_that_cannot_be_read(url: str) -> None:
    """The error lists the valid forms, and repeats nothing of a URL that may contain a password anywhere."""
    with pytest.raises(UsageError, match="rediss://") as caught:
        open_transport(url)
    assert "s3cr" not in str(caught.value)
    assert caught.value.__context__ is None
