"""Bad input at the command line: one clear line with what, where and what to do; the right exit code; no traceback, no
secret.
"""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import pika
import pytest
import redis
from tests.cli_process import SECRET, Outcome, cobalance, cobalance_process, running
from tests.consumers import new_topic
from tests.names import unique

from cobalance import servers
from cobalance.rabbitmq import Topic

FAILED, USAGE, UNREACHABLE = 1, 2, 3

TIMEOUTS = ("--session-timeout", "3s", "--heartbeat-interval", "200ms", "--revocation-timeout", "3s")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A local port without a listener; it is bound, so that it stays that way."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@attrs.frozen
class Places:
    """Addresses of servers, working and not."""

    redis: str
    amqp: str
    closed: int

    @property
    def environment(self) -> dict[str, str]:
        """The environment with the working servers."""
        return {"COBALANCE_REDIS_URL": self.redis, "COBALANCE_AMQP_URL": self.amqp}

    def fill(self, text: str) -> str:
        """Inserts the addresses into an argument."""
        redis_at, amqp_at = urlsplit(self.redis), urlsplit(self.amqp)
        return text.format(
            closed=f"127.0.0.1:{self.closed}",
            redis=f"{redis_at.hostname}:{redis_at.port}",
            amqp=f"{amqp_at.hostname}:{amqp_at.port}",
            secret=SECRET,
        )


@pytest.fixture
def places(redis_url: str, amqp_url: str, closed_port: int) -> Places:
    return Places(redis_url, amqp_url, closed_port)


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, 4) as it:
        yield it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a handler."""
    (tmp_path / "shop.py").write_text("def handle(delivery): pass\n")
    (tmp_path / "broken.py").write_text("import nonesuch\n")
    return tmp_path


def check(outcome: Outcome, code: int, *words: str) -> None:
    """One line on stderr with these words, nothing on stdout, no traceback, no secret."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1, outcome.err
    check_words(outcome, *words)


def check_words(outcome: Outcome, *words: str) -> None:
    """The last line on stderr has these words; no traceback, no secret anywhere."""
    last = outcome.err.splitlines()[-1]
    assert last.startswith("error: ")
    for word in words:
        assert word in last
    assert "Traceback" not in outcome.err
    assert SECRET not in outcome.err + outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ("group", "list", "--redis-url", "redis://:{secret}@{closed}/0"),
            UNREACHABLE,
            ("cannot be reached", "{closed}"),
        ),
        (
            ("group", "describe", "g", "--redis-url", "redis://:{secret}@{closed}"),
            UNREACHABLE,
            ("cannot be reached", "{closed}"),
        ),
        (("group", "history", "g", "--redis-url", "redis://{closed}"), UNREACHABLE, ("cannot be reached", "{closed}")),
        (("group", "create", "g", "--redis-url", "redis://{closed}"), UNREACHABLE, ("cannot be reached", "{closed}")),
        (("group", "list", "--redis-url", "redis://u:{secret}@{redis}"), FAILED, ("{redis}", "user name or password")),
        (("group", "list", "--redis-url", "redis://:{secret}@{amqp}"), UNREACHABLE, ("{amqp}", "not a Redis")),
        (
            ("topic", "create", "t", "--partitions", "1", "--amqp-url", "amqp://u:{secret}@{closed}"),
            UNREACHABLE,
            ("cannot be reached", "{closed}"),
        ),
        (
            ("publish", "t", "x", "--amqp-url", "amqp://guest:{secret}@{amqp}"),
            FAILED,
            ("{amqp}", "user name or password"),
        ),
        pytest.param(
            *(("publish", "t", "x", "--amqp-url", "amqp://u:{secret}@{redis}"), UNREACHABLE),
            ("{redis}", "is that its AMQP port"),
            marks=pytest.mark.thorough,  # Redis says nothing, and is waited for half a minute
        ),
        (
            ("publish", "t", "x", "--amqp-url", "amqp://guest:guest@{amqp}/nonesuch"),
            FAILED,
            ("'nonesuch'", "virtual host"),
        ),
        (
            ("topic", "list", "--management-url", "http://u:{secret}@{closed}"),
            UNREACHABLE,
            ("management API", "{closed}"),
        ),
        (("group", "list", "--redis-url", "http://:{secret}@{redis}"), USAGE, ("coordinator URL", "redis://")),
        (("publish", "t", "x", "--amqp-url", "http://u:{secret}@{amqp}"), USAGE, ("AMQP URL", "amqp://")),
        (("group", "list", "--redis-url", "redis://:{secret}\udce9@{redis}"), USAGE, ("coordinator URL", "not valid")),
        (("publish", "t", "x", "--amqp-url", "amqp://u:{secret}\udce9@{amqp}"), USAGE, ("AMQP URL", "not valid")),
        (("topic", "list", "--management-url", "http://u:{secret}\udce9@{closed}"), USAGE, ("management URL",)),
        (("group", "list", "--redis-ur", "redis://:{secret}@{redis}"), USAGE, ("Unknown option",)),
    ],
)
def test_servers_that_cannot_be_used(
    places: Places, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    """Unreachable, wrong password, another kind of server, or not a URL at all."""
    outcome = cobalance(*map(places.fill, arguments), environment=places.environment)

    check(outcome, code, *map(places.fill, words))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("group", "list", "--redis-url", "redis://:{secret}@{closed}/0"), UNREACHABLE, ("cannot be reached",)),
        (("publish", "t", "x", "--amqp-url", "amqp://guest:{secret}@{amqp}"), FAILED, ("user name or password",)),
        (("group", "list", "--redis-url", "http://:{secret}@{redis}"), USAGE, ("coordinator URL",)),
    ],
)
def test_a_process_ends_so(places: Places, arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """As users run it: the code is the process's, and the line is all that it writes."""
    check(cobalance_process(*map(places.fill, arguments), environment=places.environment), code, *words)


@pytest.mark.parametrize("server", ["redis", "rabbitmq"])
@pytest.mark.thorough
def test_a_consumer_whose_server_is_gone(places: Places, topic: Topic, folder: Path, server: str) -> None:
    """It says so and ends, rather than hanging."""
    url = places.fill("redis://:{secret}@{closed}" if server == "redis" else "amqp://u:{secret}@{closed}")
    command = ("consume", topic.name, "--group", unique("bad"), "--handler", "shop:handle")
    option = "--redis-url" if server == "redis" else "--amqp-url"
    with running(*command, option, url, folder=folder, environment=places.environment) as consumer:
        check(consumer.wait(), UNREACHABLE, "cannot be reached", places.fill("{closed}"))


@pytest.mark.parametrize("name", ["a{b}", "a b", "a*", "a?", "a[b]", "a\\b", "a^b", "a#b", "", "x" * 201, "a\nb"])
@pytest.mark.parametrize(
    "command",
    [
        ("topic", "create", "NAME", "--partitions", "2"),
        ("topic", "delete", "NAME"),
        ("publish", "NAME", "body"),
        ("group", "describe", "NAME"),
        ("group", "create", "NAME"),
        ("group", "configure", "NAME", "--gather", "1s"),
        ("group", "history", "NAME"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_names_that_cannot_be(places: Places, command: tuple[str, ...], name: str) -> None:
    """Braces, blanks, glob characters, control characters; empty or too long."""
    arguments = [name if word == "NAME" else word for word in command]

    check(
        cobalance(*arguments, environment=places.environment),
        USAGE,
        "name",
        command[0] if command[0] != "publish" else "topic",
    )


@pytest.mark.thorough
def test_names_that_cannot_be_of_a_consumer(places: Places, topic: Topic, folder: Path) -> None:
    """Those of its group and its instance."""
    for options in (("--group", "a{b}"), ("--group", "g", "--instance-id", "a b")):
        command = ("consume", topic.name, *options, "--handler", "shop:handle")
        with running(*command, folder=folder, environment=places.environment) as consumer:
            check(consumer.wait(), USAGE, "name", options[-1])


@pytest.mark.parametrize(
    "command", [("publish", "NAME", "x"), ("topic", "delete", "NAME")], ids=lambda command: command[0]
)
def test_a_topic_that_does_not_exist(places: Places, command: tuple[str, ...]) -> None:
    """It is named, with the command that creates it."""
    name = unique("nonesuch")
    outcome = cobalance(*(name if word == "NAME" else word for word in command), environment=places.environment)

    check(outcome, FAILED, repr(name), "virtual host", f"cobalance topic create {name}")


def test_a_consumer_of_a_topic_that_does_not_exist(places: Places, folder: Path) -> None:
    """The same, before it joins anything."""
    name = unique("nonesuch")
    command = ("consume", name, "--group", "g", "--handler", "shop:handle")
    with running(*command, folder=folder, environment=places.environment) as consumer:
        check(consumer.wait(), FAILED, repr(name), f"cobalance topic create {name}")


def test_a_queue_that_is_missing(places: Places, topic: Topic, folder: Path) -> None:
    """A topic with a missing queue is not treated as a smaller one: keys would go to the wrong queues."""
    with pika.BlockingConnection(pika.URLParameters(places.amqp)) as connection:
        connection.channel().queue_delete(f"{topic.name}-1")
    words = (f"{topic.name}-1", "was deleted", "cobalance topic create")

    check(cobalance("publish", topic.name, "x", environment=places.environment), FAILED, *words)
    command = ("consume", topic.name, "--group", unique("bad"), "--handler", "shop:handle")
    with running(*command, folder=folder, environment=places.environment) as consumer:
        check(consumer.wait(), FAILED, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--partitions", "4", "--type", "quorum"), ("other arguments", "x-single-active-consumer")),
        (("--partitions", "4", "--no-dead-letter"), ("-0", "other arguments", "x-dead-letter-exchange")),
        (("--partitions", "2"), ("has 4 partitions, not 2", "topic grow")),
    ],
)
def test_queues_with_other_arguments(
    places: Places, topic: Topic, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """RabbitMQ cannot change a queue; the difference is named."""
    outcome = cobalance("topic", "create", topic.name, *options, environment=places.environment)

    check(outcome, FAILED, topic.name, *words)


@pytest.mark.parametrize("command", [("group", "create"), ("consume", "t", "--group", "g", "--handler", "os:getpid")])
def test_a_revocation_timeout_below_the_session_timeout(places: Places, command: tuple[str, ...]) -> None:
    """Both are named, with their values and the reason."""
    name = (unique("bad"),) if command[0] == "group" else ()
    outcome = cobalance(
        *command, *name, "--session-timeout", "9s", "--revocation-timeout", "8s", environment=places.environment
    )

    check(outcome, USAGE, "revocation_timeout_ms (8000)", "session_timeout_ms (9000)", "raise the first")


def test_configuring_a_revocation_timeout_below_the_session_timeout(places: Places) -> None:
    """The unchanged setting counts as well."""
    name = unique("bad")
    assert cobalance("group", "create", name, environment=places.environment).code == 0

    outcome = cobalance("group", "configure", name, "--revocation-timeout", "4s", environment=places.environment)

    check(outcome, USAGE, "revocation_timeout_ms (4000)", "session_timeout_ms (5000)")


@pytest.mark.parametrize("command", ["describe", "history", "configure"])
def test_a_group_that_does_not_exist(places: Places, command: str) -> None:
    """Reading or configuring does not create it."""
    name = unique("nonesuch")

    check(cobalance("group", command, name, environment=places.environment), FAILED, repr(name), "does not exist")


def test_a_group_that_exists_already(places: Places) -> None:
    """Creating a group declares that it is new, so it must be."""
    name = unique("bad")
    assert cobalance("group", "create", name, environment=places.environment).code == 0

    check(cobalance("group", "create", name, environment=places.environment), FAILED, repr(name), "exists already")


@pytest.mark.thorough
def test_an_instance_id_that_is_in_use(places: Places, topic: Topic, folder: Path) -> None:
    """The second live process with that id gives up after waiting in vain for the first one's session to end."""
    group = unique("bad")
    command = ("consume", topic.name, "--group", group, "--handler", "shop:handle", "--instance-id", "pod-1", *TIMEOUTS)
    with running(*command, folder=folder, environment=places.environment) as first:
        first.wait_for("joined group")
        with running(*command, folder=folder, environment=places.environment) as second:
            outcome = second.wait()

    assert outcome.code == FAILED
    check_words(outcome, "'pod-1'", "another live process", "stop that one")


@pytest.mark.thorough
def test_an_instance_id_of_a_process_that_hangs(places: Places, topic: Topic, folder: Path) -> None:
    """It is waited for as long as the group says, not as long as the command would."""
    group = unique("bad")
    environment = places.environment
    settings = ("--session-timeout", "6s", "--heartbeat-interval", "500ms", "--revocation-timeout", "6s")
    assert cobalance("group", "create", group, *settings, environment=environment).code == 0
    own = ("--session-timeout", "2s", "--heartbeat-interval", "500ms", "--revocation-timeout", "2s")
    command = ("consume", topic.name, "--group", group, "--handler", "shop:handle", "--instance-id", "pod-1", *own)
    with running(*command, folder=folder, environment=environment) as first:
        first.wait_for("joined group")
        first.process.send_signal(signal.SIGSTOP)
        with running(*command, folder=folder, environment=environment) as second:
            second.wait_for("joined group")
            first.process.kill()
            assert second.end(signal.SIGTERM).code == 0


def test_a_redis_that_evicts() -> None:
    """It could drop parts of a group."""
    server = servers.private_redis(("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
    try:
        outcome = cobalance("group", "create", "g", "--redis-url", server.url)
    finally:
        server.close()

    check(outcome, FAILED, urlsplit(server.url).netloc, "allkeys-lru", "set maxmemory-policy noeviction")


@pytest.mark.parametrize("command", ["evalsha", "xadd", "scan"])
def test_a_command_that_is_not_permitted(private_redis: servers.OwnRedis, command: str) -> None:
    """The error names it, with the ACL line that is needed."""
    with redis.Redis.from_url(private_redis.url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", f">{SECRET}", "~*", "&*", "+@all", f"-{command}")
    url = private_redis.url.replace("redis://", f"redis://app:{SECRET}@")
    arguments = ("list",) if command == "scan" else ("create", "g")

    outcome = cobalance("group", *arguments, "--redis-url", url)

    check(outcome, FAILED, f"command {command}", urlsplit(private_redis.url).netloc, "ACL")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonesuch",), ("nonesuch",)),
        (("topic", "create", "t"), ("--partitions",)),
        (("topic", "create", "t", "--partitions", "many"), ("--partitions", "many")),
        (("topic", "create", "t", "--partitions", "0"), ("1 to 2000",)),
        (("topic", "create", "t", "--partitions", "2", "--type", "lazy"), ("--type", "lazy")),
        (("topic", "create", "t", "--partitions", "2", "--bogus"), ("--bogus",)),
        (("group", "configure", "g", "--revocation-timeout", "soon"), ("soon", "30s")),
        (("group", "create", "g", "--session-timeout", "1ms"), ("session_timeout_ms", "200")),
        (("group", "describe", "g", "--members", "--state"), ("--members", "--state")),
        (("consume", "t", "--group", "g", "--handler", "handle"), ("package.module:function",)),
        (("consume", "t", "--group", "g", "--handler", "nonesuch:handle"), ("nonesuch", "ModuleNotFoundError")),
        (("consume", "t", "--group", "g", "--handler", "os:nonesuch"), ("'nonesuch'",)),
        (("demo", "--messages", "3"), ("--messages",)),
        (("demo", "--partitions", "2"), ("--partitions",)),
        (("demo", "--json", "/nonesuch/verdict.json"), ("/nonesuch/verdict.json", "folder")),
    ],
    ids=" ".join,
)
def test_wrong_usage(places: Places, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    """The wrong argument is named."""
    check(cobalance(*arguments, environment=places.environment), USAGE, *words)
