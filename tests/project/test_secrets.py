"""No password of a URL shows: in logs, reprs, tracebacks with their causes, the journal, or command output."""

from __future__ import annotations

import logging
import pprint
import traceback
import uuid
from collections.abc import Callable
from contextlib import closing
from urllib.parse import quote, urlsplit

import pytest
from tests.cli_process import cobalance_process
from tests.consumers import Place, new_topic, until
from tests.names import unique
from tests.redis_user import PASSWORD, as_published_user, published_user

from cobalance import BlockingGroup, ConsumerGroup, Delivery, Group, GroupSettings, Publisher, Topic, servers
from cobalance.admin import GroupAdmin
from cobalance.cli.app import run
from cobalance.cli.exits import FAILED
from cobalance.coordinator.open import open_transport
from cobalance.errors import CobalanceError
from cobalance.rabbitmq import list_topics
from cobalance.rabbitmq.wire.address import place
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.redact import has_stray_at, redact
from cobalance.servers.ports import free_port
from cobalance.threads import log_lines

pytestmark = pytest.mark.both_loops

PLAIN = "s3cret/p@ss:w0rd,;%"
SECRET = quote(PLAIN, safe="")
LASTING = GroupSettings(session_timeout_ms=20_000, heartbeat_interval_ms=100, revocation_timeout_ms=20_000)
"""A session outlives the restart of a Redis, also on a busy machine."""

REDIS_URLS = [
    "redis://:{secret}@127.0.0.1:{port}/0",
    "redis://user:{secret}@127.0.0.1:{port}",
    "redis://127.0.0.1:{port}?password={secret}",
    "rediss://user:{secret}@127.0.0.1:{port}/1",
    "unix://user:{secret}@/nowhere/{port}.sock",
    "redis+sentinel://:{secret}@127.0.0.1:{port},localhost:{port}/service/0",
    "redis+sentinel://127.0.0.1:{port}/service?sentinel_username=u&sentinel_password={secret}",
    "rediss+sentinel://u:{secret}@127.0.0.1:{port}/service?sentinel_password={secret}",
    "redis+cluster://user:{secret}@127.0.0.1:{port},localhost:{port}",
    "rediss+cluster://:{secret}@127.0.0.1:{port}",
    "redis://:{secret}@127.0.0.1:notaport",
    "redis://:{secret}@127.0.0.1:{port}?colour={secret}",
    "redis+sentinel://:{secret}@127.0.0.1:{port}",
    "redis+nonsense://:{secret}@127.0.0.1:{port}",
]
AMQP_URLS = [
    "amqp://user:{secret}@127.0.0.1:{port}/%2F",
    "amqps://user:{secret}@127.0.0.1:{port}/%2F?cacertfile=/nowhere.pem",
    "amqps://user:{secret}@127.0.0.1:{port}",
    "amqp://user:{secret}@127.0.0.1:{port},localhost:{port}/%2F",
    "amqp://user:{secret}@127.0.0.1:{port}/a;amqp://user:{secret}@localhost:{port}/a",
    "amqp://user:{secret}@127.0.0.1:{port}/a;amqp://user:{secret}@localhost:{port}/b",
    "amqp://user:{secret}@127.0.0.1:{port}?heartbeat={secret}",
    "amqp://user:{secret}@127.0.0.1:notaport/",
]
HTTP_URLS = [
    "http://user:{secret}@127.0.0.1:{port}",
    "https://user:{secret}@127.0.0.1:{port}",
    "ftp://u:{secret}@h",
    "http://user:s3cret/p@127.0.0.1:{port}",
    "http://user:{secret}@no host:{port}",
]


@pytest.fixture(scope="module")
def port() -> int:
    """A port without a listener."""
    return free_port()


def hidden(*shown: object) -> bool:
    """Neither in its encoded nor in its decoded form."""
    text = " ".join(map(str, shown))
    return not any(secret in text for secret in (SECRET, PLAIN, "s3cret", "w0rd"))


def everything_of(error: BaseException) -> str:
    """Everything that a logger or a debugger might show of it."""
    parts: list[str] = []
    chain: BaseException | None = error
    while chain is not None:
        parts += [*traceback.format_exception(chain), repr(chain), repr(chain.args), pprint.pformat(vars(chain))]
        chain = chain.__cause__ or chain.__context__
    return "\n".join(parts)


def ignore(delivery: Delivery) -> None: ...


def use_redis(url: str) -> object:
    """Everything that takes such a URL."""
    with closing(open_transport(url, call_timeout_ms=300)) as transport:
        assert hidden(repr(transport))
        transport.list_groups()
    return None


def enter_group(url: str) -> object:
    """As a member."""
    group = BlockingGroup("g", ["r"], redis_url=url)
    assert hidden(repr(group), repr(Group("g", ["r"], redis_url=url)))
    with group:
        return None


def use_rabbitmq(url: str) -> object:
    """As a member's connection, a publisher and a consumer."""
    assert hidden(repr(Publisher(url, Topic("t", 1))), repr(ConsumerGroup("g", "t", ignore, amqp_url=url)))
    connection = BrokerConnection(url, "g/m")
    assert hidden(repr(connection), connection.place)
    connection.connect(300)
    return None


def publish(url: str) -> object:
    """The first call of a program."""
    with Publisher(url, Topic("t", 1)):
        return None


def manage(url: str) -> object:
    """Uses the management API."""
    return list_topics("amqp://127.0.0.1", url, timeout_ms=300)


CASES = [
    *((use, url) for url in REDIS_URLS for use in (use_redis, enter_group)),
    *((use, url) for url in AMQP_URLS for use in (use_rabbitmq, publish)),
    *((manage, url) for url in HTTP_URLS),
]


@pytest.mark.parametrize(("use", "url"), CASES)
def test_what_fails_does_not_tell_the_password(
    use: Callable[[str], object], url: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Checks the error, all its causes, and every log, with pika at its most verbose."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(CobalanceError) as caught:
        use(url.format(secret=SECRET, port=port))
    assert hidden(everything_of(caught.value))
    assert hidden(caplog.text)


@pytest.mark.parametrize(
    "url",
    [url for url in (*REDIS_URLS, *AMQP_URLS, *HTTP_URLS) if "colour" not in url and "heartbeat" not in url],
)
def test_one_redactor_knows_all_forms(url: str, port: int) -> None:
    """Alone, in a sentence, in a mapping's repr."""
    whole = url.format(secret=SECRET, port=port)
    for text in (whole, f"cannot reach {whole}, giving up", repr({"url": whole})):
        assert hidden(redact(text))


@pytest.mark.parametrize(
    ("option", "url", "command"),
    [
        ("--redis-url", REDIS_URLS[2], ("group", "list")),
        ("--redis-url", REDIS_URLS[6], ("group", "list")),
        ("--redis-url", REDIS_URLS[8], ("group", "list")),
        ("--redis-url", REDIS_URLS[-1], ("group", "list")),
        ("--amqp-url", AMQP_URLS[5], ("publish", "t", "x")),
        ("--management-url", HTTP_URLS[0], ("topic", "list")),
    ],
)
def test_commands_do_not_print_it(option: str, url: str, command: tuple[str, ...], port: int) -> None:
    """Nor does a traceback, when one is asked for."""
    outcome = cobalance_process(
        *command, option, url.format(secret=SECRET, port=port), environment={"COBALANCE_TRACEBACK": "1"}
    )
    assert outcome.code != 0
    assert hidden(outcome.out, outcome.err)


AS_TYPED = [  # by people who do not percent-encode
    *("{s}", "{s}@x", "x@{s}", "7?{s}==", "{s}?x", "7?a=1&{s}=2", "7/{s}", "{s}/7", "7#{s}", "{s}#7", "x:{s}"),
    *("x&{s}==", "x%zz{s}", "x[{s}", "]{s}", "x,{s}", "7;{s}", "'{s}", "x {s}", "x\\{s}", "7/x?{s}=1", "7?x/{s}"),
    *("//{s}", "7?db=1&{s}", "\udc80{s}"),
]
PLACES = [
    "redis://:{p}@127.0.0.1:1",
    "redis://{p}@127.0.0.1:1",
    "rediss://u:{p}@127.0.0.1:1/0",
    "redis://u:{p}@[::1]:1?db=1",
    "redis://127.0.0.1:1/0?password={p}",
    "redis://127.0.0.1:1?username=u&password={p}&db=1",
    "redis://u:x@127.0.0.1:1?{p}=1",
    "unix://u:{p}@/nowhere/redis.sock",
    "unix://{p}@/nowhere/redis.sock",
    "unix:///nowhere/redis.sock?password={p}",
    "redis+sentinel://u:{p}@127.0.0.1:1,127.0.0.1:2/m",
    "redis+sentinel://127.0.0.1:1/m?sentinel_password={p}",
    "redis+cluster://u:{p}@127.0.0.1:1,127.0.0.1:2",
    "redis+cluster://127.0.0.1:1?password={p}",
    "amqp://u:{p}@127.0.0.1:1",
    "amqp://{p}@127.0.0.1:1/%2F",
    "amqps://u:{p}@127.0.0.1:1,127.0.0.1:2/v?heartbeat=5",
    "amqp://127.0.0.1:1?password={p}",
    "amqp://127.0.0.1:1?heartbeat=5&{p}=1",
    "amqp://u:{p}@127.0.0.1:1/a;amqp://u:{p}@127.0.0.1:2/b",
    "http://u:{p}@127.0.0.1:1",
    "http://{p}@127.0.0.1:1",
    "https://u:{p}@127.0.0.1:1/api",
]


def use(url: str) -> list[object]:
    """Everything that can be seen of it, whatever happens."""
    seen: list[object] = []
    try:
        if url.startswith("http"):
            manage(url)
        elif url.startswith("amqp"):
            seen += [connection := BrokerConnection(url, "g/m"), connection.place, place(url)]
            connection.connect(300)
        else:
            group = BlockingGroup("g", ["r"], redis_url=url)
            with (
                GroupAdmin(url, amqp_url=None) as admin,
                closing(open_transport(url, call_timeout_ms=300)) as transport,
            ):
                seen += [group, admin, transport]
                transport.list_groups()
    except CobalanceError as error:
        seen.append(everything_of(error))
    return seen


@pytest.mark.parametrize("url", PLACES)
def test_a_password_that_was_not_percent_encoded_does_not_show(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not even a part of it that looks like an option, a path, a virtual host or a host."""
    caplog.set_level(logging.DEBUG)
    shown = {typed: use(url.format(p=typed.format(s="s3cret"))) for typed in AS_TYPED}
    assert [typed for typed, seen in shown.items() if not hidden(*seen)] == []
    assert hidden(caplog.text)


@pytest.mark.parametrize("option", ["--redis-url", "--amqp-url", "--management-url"])
def test_commands_say_how_to_write_it(option: str) -> None:
    """Whatever follows such a password is taken for a path, and its beginning for a host."""
    scheme = {"--redis-url": "redis", "--amqp-url": "amqp", "--management-url": "http"}[option]
    command = ("group", "list") if option == "--redis-url" else ("topic", "list")
    outcome = cobalance_process(*command, option, f"{scheme}://:7?s3cret==@127.0.0.1")
    assert outcome.code != 0
    assert "%3F" in outcome.err
    assert hidden(outcome.out, outcome.err)


@pytest.mark.parametrize(
    "url",
    ["redis://u:p%40%2F@h:1/0?client_name=a%40b", "unix:///run/a%40b.sock", "amqp://u:p@ss@h,i/v%40w?cacertfile=%40"],
)
def test_at_signs_that_are_unambiguous(url: str) -> None:
    """Those of the login, and encoded ones."""
    assert not has_stray_at(url)


def fail(*_: object, **__: object) -> None:
    """The program's own code, whose exceptions and their causes may quote anything."""
    try:
        raise ConnectionError(f"cannot reach postgres://app:{SECRET}@db/x")
    except ConnectionError as error:
        raise RuntimeError(f"password={SECRET}") from error


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """What log handlers are given: the lines as they are formatted, and what others make of their exceptions."""
    log_lines.flush()
    raised = [traceback.format_exception(*it.exc_info) for it in caplog.records if it.exc_info]
    return caplog.text + str(raised)


def test_a_traceback_of_failed_work_shows_no_password(caplog: pytest.LogCaptureFixture) -> None:
    """The traceback itself is logged, with its causes."""
    with (
        pytest.raises(RuntimeError),
        BlockingGroup("g", ["r"], work=fail, redis_url=f"memory://{unique('g')}") as group,
    ):
        group.wait_left()
    assert "Traceback" in caplog.text
    assert "ConnectionError" in caplog.text
    assert hidden(logged(caplog))


@pytest.mark.anyio
async def test_a_traceback_of_a_handler_shows_no_password(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Nor does that of ``on_failure``, or the log line."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        async with here.member(topic, fail, retries=0, on_error="halt", on_failure=fail):
            await until(lambda: here.resources()[topic.queue_names[0]].halted)
    assert "on_failure failed" in caplog.text
    assert "Traceback" in caplog.text
    assert hidden(logged(caplog))


def test_a_command_that_fails_unexpectedly_shows_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The traceback that is asked for has none, either."""
    monkeypatch.setattr("cobalance.cli.app.app", fail)
    monkeypatch.setenv("COBALANCE_TRACEBACK", "1")
    assert run(["group", "list"]) == FAILED
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert hidden(shown)


def test_a_member_at_work_writes_no_password_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    """Neither its logs, through an outage and back, nor anything in Redis, including the journal."""
    caplog.set_level(logging.DEBUG)
    with servers.private_redis(published_user()) as server:
        url = as_published_user(server.url)
        with BlockingGroup(f"g-{uuid.uuid4().hex[:8]}", ["r"], redis_url=url, settings=LASTING) as group:
            (tenure,) = group.wait_held()
            tenure.commit(1)
            server.restart()
            tenure.commit(2)
            server.save()
            dump = (server.process.folder / "dump.rdb").read_bytes()  # type: ignore[union-attr]
    assert "cannot be reached" in caplog.text or "did not answer" in caplog.text
    assert PASSWORD not in caplog.text.replace(urlsplit(url).netloc, "")
    assert PASSWORD.encode() not in dump
