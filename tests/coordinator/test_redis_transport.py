"""What only a real Redis can do: restart, hang, refuse, fill up, or turn out to be something else."""

from __future__ import annotations

import http.server
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis as redis_py
from redis import exceptions as redis_errors
from tests.coordinator.redis_calls import INCR, KEYS, PUBLISH, QUICK, SECRET, WAIT_S, failure, freeze
from tests.interruptions import interrupted
from tests.redis_user import as_published_user

from cobalance import GroupSettings, errors, servers
from cobalance.coordinator import client as client_module
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import EVERYBODY
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.redis import transport as transport_module
from cobalance.coordinator.redis.address import RedisAddress
from cobalance.coordinator.redis.failures import call_failure, connect_failure
from cobalance.coordinator.redis.transport import RedisTransport
from cobalance.coordinator.requests import Header, Join, Request, SetResources
from cobalance.coordinator.transport import LISTENING, RESYNC, Listener, Script, Transport

IDENTITY = Script.of("identity", "return ARGV[1]")


@pytest.fixture
def transport(private_redis: servers.OwnRedis) -> Iterator[Transport]:
    """A transport to the test's own Redis."""
    with closing(open_transport(private_redis.url, call_timeout_ms=500)) as opened:
        yield opened


@contextmanager
def a_server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A TCP server that handles each connection with `answer`, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"redis://:{SECRET}@127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)


def with_user(server: servers.OwnRedis, rules: str) -> str:
    """Creates a user with these ACL rules, and returns the URL that logs it in."""
    with redis_py.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "limited", "reset", "on", f">{SECRET}", *rules.split())
    return server.url.replace("redis://", f"redis://limited:{SECRET}@")


def test_a_restarted_server_gives_its_new_identity_at_once(
    transport: Transport, private_redis: servers.OwnRedis, admin: redis_py.Redis
) -> None:
    """The first call after a restart carries the new run id, and its script is loaded again."""
    for _ in range(3):
        info = admin.info()
        assert transport.call(IDENTITY, KEYS, []) == (info["run_id"][:20] + info["master_replid"][:20]).encode()
        private_redis.restart(empty=True)
        admin.connection_pool.disconnect()


def test_a_flushed_script_is_loaded_again(transport: Transport, admin: redis_py.Redis) -> None:
    """NOSCRIPT is handled internally, and the script runs once."""
    assert transport.call(INCR, KEYS, []) == 1
    admin.script_flush()
    assert transport.call(INCR, KEYS, []) == 2
    assert transport.call(INCR, KEYS, []) == 3


def test_a_script_that_is_flushed_before_it_runs_is_loaded_once_more(
    transport: Transport, admin: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again, and the script runs once; not for ever."""
    exchange, flushes = transport_module._exchange, 0

    def exchange_and_flush(connection: Any, *words: Any) -> Any:
        nonlocal flushes
        reply = exchange(connection, *words)
        if words[0] == "SCRIPT" and words[2] == INCR.source and flushes:
            admin.script_flush()
            flushes -= 1
        return reply

    monkeypatch.setattr(transport_module, "_exchange", exchange_and_flush)
    for count in (1, 2):
        admin.script_flush()
        flushes = 9
        assert transport.call(INCR, KEYS, []) == count
    admin.script_flush()
    flushes = 1_000
    with pytest.raises(errors.ScriptFailed):
        transport.call(INCR, KEYS, [])
    flushes = 0
    assert transport.call(INCR, KEYS, []) == 3


def test_a_killed_connection_is_replaced(transport: Transport, admin: redis_py.Redis) -> None:
    """A connection that was closed while idle is noticed before a call uses it."""
    assert transport.call(INCR, KEYS, []) == 1
    admin.client_kill_filter(_type="normal", skipme=True)
    assert transport.call(INCR, KEYS, []) == 2


def test_a_frozen_server_times_out_and_replies_stay_in_step(
    transport: Transport, private_redis: servers.OwnRedis, admin: redis_py.Redis
) -> None:
    """The outcome is unknown; the late reply is discarded, and the script ran once at most."""
    assert transport.call(INCR, KEYS, []) == 1
    freeze(private_redis)
    started = time.monotonic()
    with pytest.raises(errors.Unreachable, match=r"no answer in time.*may or may not") as caught:
        transport.call(INCR, KEYS, [])
    assert 0.4 < time.monotonic() - started < 15
    assert caught.value.outcome == "unknown"
    with pytest.raises(errors.Unreachable) as caught:
        transport.call(INCR, KEYS, [])
    assert caught.value.outcome == "not_executed"
    private_redis.resume()
    reply = transport.call(INCR, KEYS, [])
    assert reply == 3
    assert admin.get(KEYS[0]) == b"3"


def test_a_posted_call_is_answered_in_its_turn(transport: RedisTransport, admin: redis_py.Redis) -> None:
    """Whatever comes between is answered, too; what cannot be answered may be called in the usual way."""
    assert transport.post(INCR, KEYS, ())() is None  # not connected yet
    transport.call(INCR, KEYS, ())
    first = transport.post(INCR, KEYS, ())
    assert transport.call(INCR, KEYS, ()) == 3
    second = transport.post(INCR, KEYS, ())
    third = transport.post(INCR, KEYS, ())
    assert [third(), first(), second(), second()] == [5, 2, 4, 4]
    admin.script_flush()
    assert transport.post(INCR, KEYS, ())() is None
    assert transport.call(INCR, KEYS, ()) == 6
    lost = transport.post(INCR, KEYS, ())
    admin.client_kill_filter(_type="normal", skipme=True)
    assert lost() in {7, None}
    count = transport.call(INCR, KEYS, ())
    transport.set_call_timeout(400)
    assert transport.post(INCR, KEYS, ())() is None
    assert transport.call(INCR, KEYS, ()) == int(str(count)) + 1
    unread = transport.post(INCR, KEYS, ())
    transport.close()
    assert unread() is None
    assert transport.post(INCR, KEYS, ())() is None


def test_a_posted_call_that_is_interrupted_is_not_the_answer_to_the_next_one(private_redis: servers.OwnRedis) -> None:
    """Wherever a signal handler raises, also between sending it and reading its answer, which comes late."""
    turn = "local t = redis.call('TIME') return t[1] * 1000000 + t[2] end "
    late = Script.of(
        "late", f"local function now() {turn}local till = now() + 3000 while now() < till do end return 'late'"
    )
    own = Script.of("own", "return 'own'")
    moment, is_interrupted = 0, True
    while is_interrupted:
        with closing(RedisTransport(RedisAddress.parse(private_redis.url))) as transport:
            transport.call(late, KEYS, ())
            is_interrupted = interrupted(lambda it=transport: it.post(late, KEYS, ())(), moment)  # type: ignore[misc]
            assert [transport.call(own, KEYS, ()) for _ in range(2)] == [b"own"] * 2
        moment += 1
    assert moment > 30


def test_a_listing_goes_on_where_its_connection_was_lost(
    transport: Transport, admin: redis_py.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next page is under way while the last is read."""
    monkeypatch.setitem(client_module._PAGES, "resources", 2)
    group = Coordinator(transport, "g")
    group.create(GroupSettings())
    joined = group.execute(Request(Header("m", 1), Join(settings=GroupSettings())))
    header = Header("m", 2, joined.incarnation, joined.version, joined.cursor)
    group.execute(Request(header, SetResources(version=1, digest="d", names=("a", "b", "c", "d", "e"))))
    found = list[str]()
    for row in group.resources():
        found.append(row.name)
        admin.client_kill_filter(_type="normal", skipme=True)
    assert found == ["a", "b", "c", "d", "e"]


def test_a_server_that_dies_during_a_call(transport: Transport, private_redis: servers.OwnRedis) -> None:
    """Whether the script ran is unknown; afterwards the connection is refused, and that is known."""
    slow = Script.of("slow", "local i = 0 while true do i = i + 1 end")
    transport.call(INCR, KEYS, [])
    timer = threading.Timer(0.1, private_redis.kill)
    timer.start()
    with pytest.raises(errors.Unreachable) as caught:
        transport.call(slow, KEYS, [])
    timer.join()
    assert caught.value.outcome == "unknown"
    with pytest.raises(errors.Unreachable, match="connection refused") as caught:
        transport.call(INCR, KEYS, [])
    assert caught.value.outcome == "not_executed"


def test_nobody_there() -> None:
    """A refused connection, an unknown host and a missing socket are distinguished, and nothing ran."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url, reason in [
        (f"redis://:{SECRET}@127.0.0.1:{port}", "connection refused"),
        (f"redis://:{SECRET}@no-such-host.invalid", "no such host|cannot be resolved"),
        (f"unix://:{SECRET}@/nowhere/redis.sock", "no such socket"),
    ]:
        error = failure(url)
        assert isinstance(error, errors.Unreachable)
        assert error.outcome == "not_executed"
        assert re.search(reason, str(error))


def test_passwords(private_redis: servers.OwnRedis, admin: redis_py.Redis) -> None:
    """A wrong one, a missing one and a needless one each say what to do; the right one works, escaped if necessary."""
    plain = private_redis.url
    needless = plain.replace("redis://", f"redis://:{SECRET}@")
    assert "has no password" in str(failure(needless))
    admin.config_set("requirepass", f"{SECRET}/@:#")
    assert "wants a password" in str(failure(plain))
    assert "refused the user name or password" in str(failure(needless))
    assert isinstance(failure(needless.replace(":s3cret", f"nobody:{SECRET}")), errors.AuthenticationRefused)
    with closing(open_transport(needless.replace(SECRET, f"{SECRET}%2F%40%3A%23"))) as transport:
        assert transport.call(INCR, KEYS, []) == 1
        assert SECRET not in f"{transport!r} {vars(transport)}"


def test_an_acl_user_with_all_it_needs(
    private_redis: servers.OwnRedis, admin: redis_py.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """A user limited to our keys, channels and commands works without a warning, and without entries in Redis's own
    log.
    """
    rules = "~{t}:* resetchannels &{t}:* -@all +evalsha +script|load +info +incr +publish +subscribe +unsubscribe +ping"
    with closing(open_transport(with_user(private_redis, rules))) as transport:
        assert transport.call(INCR, KEYS, []) == 1
        heard: queue.Queue[tuple[str, int]] = queue.Queue()
        with closing(transport.listen(lambda *hint: heard.put(hint))) as listener:
            listener.subscribe("{t}:n")
            assert heard.get(timeout=WAIT_S) == ("{t}:n", LISTENING)
    assert not caplog.records
    assert not admin.acl_log()


@pytest.mark.parametrize(
    ("rules", "command", "words"),
    [
        ("~* &* +@all -evalsha", "evalsha", "the command evalsha"),
        ("~* &* +@all -script|load", "script|load", "the command script|load"),
        ("~* &* +@all -incr", "incr", "the command incr"),
        ("~other &* +@all", "", "the keys cobalance:*"),
    ],
)
def test_missing_permissions(private_redis: servers.OwnRedis, rules: str, command: str, words: str) -> None:
    """The error names what is missing and where the complete line is."""
    error = failure(with_user(private_redis, rules))
    assert isinstance(error, errors.PermissionMissing)
    assert error.command == command
    assert words in str(error)
    assert '"Redis ACL" in cobalance/coordinator/redis/README.md' in str(error)


def test_missing_channel_permission_in_a_script(private_redis: servers.OwnRedis) -> None:
    """Publishing needs the channel."""
    error = failure(with_user(private_redis, "~* +@all resetchannels"), PUBLISH)
    assert isinstance(error, errors.PermissionMissing)
    assert "the channels cobalance:*" in str(error)


@pytest.mark.parametrize("command", ["zadd", "hdel", "xadd", "unlink", "hscan"])
def test_a_missing_command_is_found_before_anything_is_written(
    private_redis: servers.OwnRedis, admin: redis_py.Redis, command: str
) -> None:
    """Although the script would reach it only between its writes, or later."""
    url = with_user(private_redis, f"~cobalance:* &* +@all -{command}")
    with closing(open_transport(url)) as transport, pytest.raises(errors.PermissionMissing) as caught:
        Coordinator(transport, "g").create(QUICK)
    assert (caught.value.command, caught.value.outcome) == (command, "not_executed")
    assert admin.keys() == []


def test_who_may_not_publish_is_warned_once(
    private_redis: servers.OwnRedis, admin: redis_py.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """The default of a Redis 7 user: only hints are missing."""
    with closing(open_transport(with_user(private_redis, "resetchannels ~cobalance:* +@all"))) as transport:
        coordinator = Coordinator(transport, "g")
        coordinator.create(QUICK)
        admin.client_kill_filter(_type="normal", skipme=True)
        coordinator.tick()
        for member in "ab":
            coordinator.execute(Request(Header(member, 1), Join(settings=QUICK)))
        assert coordinator.state()["classes"] == "1=2"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "hints cannot be published" in caplog.text


def in_database(number: int, url: str) -> str:
    assert url.endswith("/0")
    return f"{url[:-1]}{number}"


def listening_member(transport: Transport, group: str = "g") -> tuple[Coordinator, Listener, queue.Queue[int]]:
    """A process that listens for a group of this name."""
    coordinator, heard = Coordinator(transport, group), queue.Queue[int]()
    listener = transport.listen(lambda _, version: heard.put(version))
    listener.subscribe(coordinator.channel(EVERYBODY))
    assert heard.get(timeout=WAIT_S) == LISTENING
    return coordinator, listener, heard


def test_a_pattern_is_no_listening_member(
    private_redis: servers.OwnRedis, admin: redis_py.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """A monitoring tool has PSUBSCRIBE *: the group is new all the same. Where NUMSUB is not permitted it counts, which
    one warning says.
    """
    with closing(admin.pubsub()) as monitor:  # type: ignore[no-untyped-call]
        monitor.psubscribe("*")
        monitor.get_message(timeout=WAIT_S)
        url = with_user(private_redis, "~* &* +@all -pubsub|numsub")
        with closing(open_transport(url)) as limited:
            for name in ("g", "h"):
                with pytest.raises(errors.GroupActive):
                    Coordinator(limited, name).create(QUICK)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "PSUBSCRIBE" in caplog.text
        assert "pubsub|numsub" in caplog.text
        with closing(open_transport(as_published_user(private_redis.url))) as permitted:
            Coordinator(permitted, "g").create(QUICK)
            _, listener, _ = listening_member(permitted, "h")
            with closing(listener), pytest.raises(errors.GroupActive):
                Coordinator(permitted, "h").create(QUICK)


@pytest.mark.parametrize("rules", ["~* &* +@all", "~* &* +@all -info"])
def test_databases_do_not_hear_each_other(private_redis: servers.OwnRedis, rules: str) -> None:
    """Though Redis has one set of channels for all of them: groups of one name are two groups, and who listens for one
    does not keep the other from being created and deleted.
    """
    url = with_user(private_redis, rules)
    with closing(open_transport(url)) as first, closing(open_transport(in_database(3, url))) as second:
        for here, there in ((first, second), (second, first)):
            mine, listener, heard = listening_member(here)
            with closing(listener):
                other = Coordinator(there, "g")
                other.create(QUICK)
                other.delete()
                with pytest.raises(errors.GroupActive):
                    mine.create(QUICK)
                assert heard.get(timeout=WAIT_S) == RESYNC
                assert heard.empty()


def test_a_database_of_another_number_works_with_quiet_heartbeats(private_redis: servers.OwnRedis) -> None:
    """The number is no part of the server's identity."""
    with closing(open_transport(in_database(3, as_published_user(private_redis.url)))) as transport:
        coordinator = Coordinator(transport, "g")
        coordinator.create(QUICK)
        coordinator.execute(Request(Header("a", 1), Join(settings=QUICK)))
        assert "/" not in coordinator.state()["server"]
        assert coordinator.state()["pulse"].startswith(coordinator.state()["server"])


def test_a_posted_call_says_the_same_of_its_server(private_redis: servers.OwnRedis) -> None:
    """What a page of a listing settles on its way is published in its own database."""
    read = Script.of("read", "return ARGV[1]")
    with closing(open_transport(in_database(3, private_redis.url))) as transport:
        assert isinstance(transport, RedisTransport)
        said = transport.call(read, KEYS, ())
        assert transport.post(read, KEYS, ())() == said


def test_without_info_there_is_no_identity_and_one_warning(
    private_redis: servers.OwnRedis, admin: redis_py.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """It still works, and says once for all its connections what it cannot do."""
    with closing(open_transport(with_user(private_redis, "~* &* +@all -info"))) as transport:
        assert transport.call(IDENTITY, KEYS, []) == b""
        admin.client_kill_filter(_type="normal", skipme=True)
        assert transport.call(IDENTITY, KEYS, []) == b""
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "INFO is not permitted" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("rules", ["~* &* +@all -subscribe", "~* +@all resetchannels"])
def test_without_pubsub_there_are_no_hints_and_one_warning(
    private_redis: servers.OwnRedis,
    admin: redis_py.Redis,
    caplog: pytest.LogCaptureFixture,
    rules: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heartbeats are authoritative, so this is not an error. Hints begin once they are permitted."""
    monkeypatch.setattr("cobalance.coordinator.redis.listener.REFUSED_S", 0.05)
    hints: queue.Queue[tuple[str, int]] = queue.Queue()
    url = with_user(private_redis, rules)
    with closing(open_transport(url)) as transport:
        listener = transport.listen(lambda *hint: hints.put(hint))
        listener.subscribe("{t}:n")
        entries: Any = []
        while sum(entry["count"] for entry in entries) < 3:
            entries = admin.acl_log()
        assert transport.call(INCR, KEYS, []) == 1
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        with_user(private_redis, "~* &* +@all")
        assert hints.get(timeout=WAIT_S) == ("{t}:n", LISTENING)
        listener.close()
    assert '"Redis ACL" in cobalance/coordinator/redis/README.md' in caplog.text
    assert SECRET not in caplog.text


class Website(http.server.BaseHTTPRequestHandler):
    """Answers like any web server, quietly."""

    def log_message(self, *_: object) -> None: ...


def test_a_web_server_is_not_a_redis() -> None:
    """With and without a password in the greeting."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Website) as website:
        thread = threading.Thread(target=website.serve_forever)
        thread.start()
        for secret in ("", f":{SECRET}@"):
            error = failure(f"redis://{secret}127.0.0.1:{website.server_port}")
            assert isinstance(error, errors.NotRedis)
            assert "check host and port" in str(error)
        website.shutdown()
        thread.join()


def test_a_rabbitmq_is_not_a_redis(amqp_url: str) -> None:
    """RabbitMQ closes the connection so quickly that its reply may be lost; it is recognised every time."""
    address = amqp_url.rpartition("@")[2].partition("/")[0]
    for secret in ("", f":{SECRET}@") * 5:
        assert isinstance(failure(f"redis://{secret}{address}", timeout_ms=2000), errors.NotRedis)


@pytest.mark.parametrize(
    "banner", [b"SSH-2.0-OpenSSH_9.2\r\n", b"220 mail ESMTP\r\n", b"+OK POP3 ready\r\n+OK\r\n+OK\r\n+OK\r\n"]
)
def test_servers_that_speak_first_are_not_a_redis(banner: bytes) -> None:
    """Even one whose first bytes look like Redis."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(banner)
        while connection.recv(4096):
            pass

    with a_server(answer) as url:
        assert isinstance(failure(url), errors.NotRedis)


def test_a_silent_server_does_not_hang_us() -> None:
    """It may be a Redis in trouble, so retrying is worthwhile."""

    def answer(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with a_server(answer) as url:
        error = failure(url)
        assert isinstance(error, errors.Unreachable)
        assert "no answer in time" in str(error)


def test_a_server_that_hangs_up_is_unreachable() -> None:
    """A proxy without a Redis behind it does this; retrying may help."""
    with a_server(lambda _: None) as url:
        error = failure(url)
        assert isinstance(error, errors.Unreachable)
        assert "closed the connection" in str(error)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
@pytest.mark.server
def test_an_evicting_redis_is_refused(policy: str) -> None:
    """It could drop parts of a group, including keys with a time to live."""
    with closing(servers.private_redis(("--maxmemory", "50mb", "--maxmemory-policy", policy))) as server:
        error = failure(server.url)
        assert isinstance(error, errors.EvictingPolicy)
        assert policy in str(error)
        assert "noeviction" in str(error)


@pytest.mark.server
def test_an_evicting_policy_without_a_limit_is_harmless() -> None:
    """Without maxmemory nothing is ever evicted."""
    with (
        closing(servers.private_redis(("--maxmemory-policy", "allkeys-lru"))) as server,
        closing(open_transport(server.url)) as transport,
    ):
        assert transport.call(INCR, KEYS, []) == 1


def test_a_full_redis_refuses_before_it_wrote(private_redis: servers.OwnRedis, admin: redis_py.Redis) -> None:
    """Out of memory is a clear error, and nothing was done."""
    admin.config_set("maxmemory", 1)
    error = failure(private_redis.url)
    assert isinstance(error, errors.OutOfMemory)
    assert error.outcome == "not_executed"
    assert admin.get(KEYS[0]) is None


def test_a_replica_is_unreachable_for_writing(private_redis: servers.OwnRedis) -> None:
    """A failover may be under way, so retrying is worthwhile; nothing was done."""
    options = ("--replicaof", "127.0.0.1", str(urlsplit(private_redis.url).port), "--replica-serve-stale-data", "yes")
    with closing(servers.private_redis(options)) as replica:
        error = failure(replica.url)
    assert isinstance(error, errors.Unreachable)
    assert "read-only replica" in str(error)
    assert error.outcome == "not_executed"


@pytest.mark.server
def test_a_replica_without_its_master_is_unreachable() -> None:
    """MASTERDOWN is temporary."""
    with closing(servers.private_redis()) as server, redis_py.Redis.from_url(server.url) as client:
        client.config_set("replica-serve-stale-data", "no")
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        error = failure(server.url)
    assert isinstance(error, errors.Unreachable)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (redis_errors.BusyLoadingError("Redis is loading the dataset in memory"), "still loading"),
        (redis_errors.ResponseError("BUSY Redis is busy running a script."), "busy with another script"),
        (redis_errors.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "MISCONF"),
        (redis_errors.ResponseError("NOREPLICAS Not enough good replicas to write."), "too few replicas"),
        (redis_errors.ConnectionError("max number of clients reached"), "maxclients"),
    ],
)
def test_a_redis_that_cannot_serve_now(error: Exception, words: str) -> None:
    """Temporary problems are Unreachable, whether they show at the greeting or at a call, and nothing was done."""
    for failed in (connect_failure(error, "redis://h"), call_failure(error, "redis://h", "the script join")):
        assert isinstance(failed, errors.Unreachable)
        assert failed.outcome == "not_executed"
        assert words in str(failed)


def test_a_cluster_is_not_supported() -> None:
    """The redirection of a node is reported in our words."""
    failed = call_failure(redis_errors.MovedError("1 127.0.0.1:7000"), "redis://h", "the script join")
    assert "cluster" in str(failed)
    assert failed.outcome == "not_executed"


def test_a_cluster_s_url_for_a_redis_that_is_none(private_redis: servers.OwnRedis) -> None:
    """It is not a bug to report: the URL has to be changed."""
    transport = open_transport(private_redis.url.replace("redis://", "redis+cluster://"))
    with pytest.raises(errors.ServerError, match=r"is not a cluster: give its URL as redis://HOST:PORT") as caught:
        transport.call(INCR, KEYS, [])
    transport.close()
    assert "bug" not in str(caught.value)
    assert not isinstance(caught.value, errors.Unreachable)


def test_a_database_that_does_not_exist(private_redis: servers.OwnRedis) -> None:
    """It will not appear later, so nobody waits for it."""
    transport = open_transport(urlsplit(private_redis.url)._replace(path="/99").geturl())
    with pytest.raises(errors.ServerError, match=r"has no database of that number.*`databases`") as caught:
        transport.list_groups()
    transport.close()
    assert not isinstance(caught.value, errors.Unreachable)


def test_unknown_options_of_the_url() -> None:
    """It is not named, since it may be a part of a password."""
    with pytest.raises(errors.UsageError, match="unknown option") as caught:
        open_transport(f"redis://:{SECRET}@h?colour={SECRET}")
    assert SECRET not in str(caught.value)
    assert "colour" not in str(caught.value)
    assert caught.value.__context__ is None


def test_our_own_settings_win_over_the_url(private_redis: servers.OwnRedis) -> None:
    """A URL cannot bring back retries, long timeouts or another protocol, which would run scripts twice."""
    url = f"{private_redis.url}?socket_timeout=60&retry_on_timeout=true&max_connections=5&protocol=3&decode_responses=true"
    with closing(open_transport(url, call_timeout_ms=300)) as transport:
        assert transport.call(INCR, KEYS, []) == 1
        freeze(private_redis)
        started = time.monotonic()
        with pytest.raises(errors.Unreachable):
            transport.call(INCR, KEYS, [])
        assert time.monotonic() - started < 30
        private_redis.resume()


def test_another_timeout_holds_from_the_next_call_on(private_redis: servers.OwnRedis) -> None:
    """Also for the connection that is open."""
    with closing(
        RedisTransport(RedisAddress.parse(private_redis.url), call_timeout_ms=10 * WAIT_S * 1000)
    ) as transport:
        assert transport.call(INCR, KEYS, []) == 1
        transport.set_call_timeout(100)
        freeze(private_redis)
        with pytest.raises(errors.Unreachable):
            transport.call(INCR, KEYS, [])
        private_redis.resume()
        transport.set_call_timeout(10 * WAIT_S * 1000)
        assert isinstance(transport.call(INCR, KEYS, []), int)
