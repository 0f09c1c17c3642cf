"""Servers are found or started, can be controlled, and are gone afterwards, however this process ends."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest
import redis
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from cobalance import servers
from cobalance.servers import apt, choose, docker, find, ports
from cobalance.servers import rabbitmq as rabbitmq_of_ours
from cobalance.servers import redis as redis_of_ours
from cobalance.servers.redis import PrivateRedis

EXIT_TIMEOUT_S = 30
KINDS = ["local", "docker"] if docker.engine_answers() else ["local"]


@pytest.fixture(autouse=True)
def _no_given_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests need private servers, even if the environment names others."""
    for name in (choose.REDIS_URL, choose.AMQP_URL, choose.MANAGEMENT_URL):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=KINDS)
def own_redis(request: pytest.FixtureRequest) -> Iterator[servers.OwnRedis]:
    """A Redis of each kind."""
    with docker.ContainerRedis() if request.param == "docker" else servers.private_redis() as server:
        yield server


@pytest.fixture(params=KINDS)
def own_rabbitmq(request: pytest.FixtureRequest) -> Iterator[servers.OwnRabbitMQ]:
    """A RabbitMQ of each kind."""
    with docker.ContainerRabbitMQ() if request.param == "docker" else servers.private_rabbitmq() as server:
        yield server


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary folders of this test; its path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def listens(url: str) -> bool:
    """Whether anything accepts connections there."""
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port), timeout=10).close()
    except OSError:
        return False
    return True


def exists(pid: int | None) -> bool:
    """Whether a process has this id."""
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def opened(url: str) -> Iterator[BlockingChannel]:
    """A channel on a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()


def waiting_messages(url: str) -> int:
    """Number of messages in the test's queue."""
    with opened(url) as channel:
        return channel.queue_declare("kept", passive=True).method.message_count or 0


def client(url: str, timeout_s: float = 60) -> redis.Redis:
    """A Redis client without retries."""
    return redis.Redis.from_url(url, socket_timeout=timeout_s, retry=None)


def test_redis_keeps_or_loses_its_data_over_a_restart(own_redis: servers.OwnRedis) -> None:
    """A restart keeps the address, and the data too unless an empty server is requested."""
    with client(own_redis.url) as asking:
        asking.set("kept", "yes")
        own_redis.restart()
        assert asking.get("kept") == b"yes"
        own_redis.restart(empty=True)
        assert asking.get("kept") is None


def test_redis_comes_back_after_a_kill_from_its_last_snapshot(own_redis: servers.OwnRedis) -> None:
    """A kill loses what was written after the snapshot, and nothing in it."""
    with client(own_redis.url) as asking:
        asking.set("old", "yes")
        own_redis.save()
        asking.set("new", "yes")
        own_redis.kill()
        assert not listens(own_redis.url)
        own_redis.start()
        assert asking.mget("old", "new") == [b"yes", None]


def test_a_paused_redis_does_not_answer_until_it_is_resumed(own_redis: servers.OwnRedis) -> None:
    """A freeze looks like a lost network, not like a stopped server."""
    own_redis.pause()
    with client(own_redis.url, timeout_s=0.2) as asking, pytest.raises(redis.TimeoutError):
        asking.ping()
    own_redis.resume()
    with client(own_redis.url) as asking:
        assert asking.ping()


def test_redis_listens_on_a_unix_socket_and_takes_options() -> None:
    """The socket leads to the same server, and options reach its command line."""
    program = find.find_redis()
    assert program is not None
    with (
        PrivateRedis(program, options=["--maxmemory-policy", "allkeys-lru"]) as server,
        client(server.socket_url) as asking,
    ):
        assert asking.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}


def test_a_redis_that_refuses_to_start_says_why_and_leaves_nothing(temporary: Path) -> None:
    """The error contains the end of the server's log, and the folder is gone."""
    program = find.find_redis()
    assert program is not None
    with pytest.raises(servers.ServerUnavailable, match=r"(?s)redis ended while it was starting.*no-such-option"):
        PrivateRedis(program, options=["--no-such-option", "1"])
    assert not list(temporary.iterdir())


def test_a_port_that_another_process_took_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is started once more, on another one."""
    with socket.create_server((ports.HOST, ports.free_port())) as quicker:
        taken = quicker.getsockname()[1]
        chosen = iter([taken])
        monkeypatch.setattr(redis_of_ours, "free_port", lambda: next(chosen, None) or ports.free_port())
        nodes, others = iter([rabbitmq_of_ours.Ports(amqp=taken)]), rabbitmq_of_ours.Ports
        monkeypatch.setattr(rabbitmq_of_ours, "Ports", lambda: next(nodes, None) or others())
        with servers.private_redis() as store, servers.private_rabbitmq() as node:
            assert client(store.url).ping()
            with opened(node.url) as it:
                it.queue_declare("q")
            assert str(taken) not in store.url + node.url


def test_rabbitmq_keeps_durable_messages_until_it_is_emptied(own_rabbitmq: servers.OwnRabbitMQ) -> None:
    """A durable queue survives a restart and its message a kill, at the same address; an empty restart removes both."""
    with opened(own_rabbitmq.url) as channel:
        channel.queue_declare("kept", durable=True)
    own_rabbitmq.restart()
    with opened(own_rabbitmq.url) as channel:
        channel.confirm_delivery()
        channel.basic_publish("", "kept", b"hello", pika.BasicProperties(delivery_mode=2))
    own_rabbitmq.kill()
    assert not listens(own_rabbitmq.url)
    own_rabbitmq.start()
    assert waiting_messages(own_rabbitmq.url) == 1
    own_rabbitmq.restart(empty=True)
    with pytest.raises(ChannelClosedByBroker, match="404"):
        waiting_messages(own_rabbitmq.url)


@pytest.mark.thorough
def test_rabbitmq_offers_its_management_api_when_asked() -> None:
    """The management URL contains credentials for the API."""
    with servers.private_rabbitmq(management=True) as server:
        assert server.management_url is not None
        assert b"rabbitmq_version" in fetched(server.management_url, "/api/overview")


def fetched(url: str, path: str) -> bytes:
    """The management API's answer for the user and password in its URL."""
    address = urlsplit(url)
    base = f"http://{address.hostname}:{address.port}"
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, base, address.username or "", address.password or "")
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    with opener.open(base + path, timeout=60) as answer:
        return bytes(answer.read())


@pytest.mark.thorough
def test_running_leaves_no_process_and_no_folder(temporary: Path) -> None:
    """What was started for the block is gone after it: nothing listens, nothing is on disk."""
    with servers.running() as found:
        assert listens(found.redis_url)
        assert listens(found.amqp_url)
        assert found.management_url is None
        assert len(list(temporary.iterdir())) == 3, "Redis, RabbitMQ and Erlang's port mapper"
    assert not listens(found.redis_url)
    assert not listens(found.amqp_url)
    assert not list(temporary.iterdir())


def test_close_ends_every_process_of_a_node() -> None:
    """The process ids of the server and its guardian no longer exist."""
    with servers.private_redis() as server:
        assert isinstance(server, PrivateRedis)
        pids = [server.process.pid, server.process.guardian_pid]
        assert all(exists(pid) for pid in pids)
    assert not any(exists(pid) for pid in pids)


@pytest.mark.usefixtures("rabbitmq_elsewhere")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_servers_end_with_ctrl_c_and_with_a_polite_end(number: signal.Signals, temporary: Path) -> None:
    """The exit code names the signal, stderr is empty and nothing is left behind."""
    assert code_after(number) == 128 + number
    assert not list(temporary.iterdir())


def test_servers_end_with_a_process_that_is_killed(temporary: Path) -> None:
    """SIGKILL leaves its victim no time to clean up, and still neither Redis nor RabbitMQ stays behind."""
    assert code_after(signal.SIGKILL) == -signal.SIGKILL
    assert not list(temporary.iterdir())


def code_after(number: signal.Signals) -> int:
    """The exit code of `python -m cobalance.servers` after this signal, once everything it started has ended."""
    command = [sys.executable, "-m", "cobalance.servers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        urls = [process.stdout.readline().strip().partition("=")[2] for _ in range(2)]
        assert listens(urls[0])
        process.send_signal(number)
        # The guardians keep their end of our stderr open, so its end is the end of the last of them.
        _, errors = process.communicate(timeout=EXIT_TIMEOUT_S)
    assert not errors
    assert not any(listens(url) for url in urls)
    return process.returncode


@pytest.fixture
def rabbitmq_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves a test that only needs Redis the seconds that a RabbitMQ takes."""
    monkeypatch.setenv(choose.AMQP_URL, "amqp://127.0.0.1:1/")


@pytest.mark.usefixtures("rabbitmq_elsewhere")
def test_a_command_is_run_with_the_servers_and_its_exit_code_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    """The command finds both URLs in its environment."""
    program = (
        "import os; print(os.environ['COBALANCE_REDIS_URL'], os.environ['COBALANCE_AMQP_URL']); raise SystemExit(7)"
    )
    assert servers_main("--", sys.executable, "-c", program) == 7
    redis_url, amqp_url = capfd.readouterr().out.split()
    assert redis_url.startswith("redis://127.0.0.1:")
    assert amqp_url.startswith("amqp://")
    assert not listens(redis_url)


def servers_main(*arguments: str) -> int:
    """The exit code of `python -m cobalance.servers`."""
    command = [sys.executable, "-m", "cobalance.servers", *arguments]
    return subprocess.run(command, timeout=EXIT_TIMEOUT_S, check=False).returncode


def test_urls_in_the_environment_win_and_stay_secret(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """Nothing is started in addition to named servers, and no repr shows their passwords."""
    monkeypatch.setenv(choose.REDIS_URL, "redis://:hidden@redis.example/0")
    monkeypatch.setenv(choose.AMQP_URL, "amqp://me:hidden@rabbit.example/")
    monkeypatch.setenv(choose.MANAGEMENT_URL, "https://me:hidden@rabbit.example:15671")
    with servers.running() as found:
        assert not list(temporary.iterdir())
        assert found.environment() == {
            "COBALANCE_REDIS_URL": "redis://:hidden@redis.example/0",
            "COBALANCE_AMQP_URL": "amqp://me:hidden@rabbit.example/",
            "COBALANCE_MANAGEMENT_URL": "https://me:hidden@rabbit.example:15671",
        }
        assert (found.redis_origin, found.rabbitmq_origin) == ("environment", "environment")
        assert "hidden" not in repr(found) + repr(servers.redis_server()) + repr(servers.rabbitmq_server())


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without server programs, without a Docker engine, and without the right to install any."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setattr(find, "USUAL_FOLDERS", ())
    monkeypatch.setattr(find, "DEBIAN_RABBITMQ_SCRIPTS", "/nowhere")


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(
    ("start", "package", "variable"),
    [
        (servers.redis_server, "redis-server", choose.REDIS_URL),
        (servers.rabbitmq_server, "rabbitmq-server", choose.AMQP_URL),
    ],
)
def test_nothing_available_says_what_to_install(start: Callable[[], object], package: str, variable: str) -> None:
    """The message names the program, the command that installs it and the variable that replaces it."""
    with pytest.raises(servers.ServerUnavailable) as caught:
        start()
    message = str(caught.value)
    assert message.startswith(f"{package} is missing")
    assert "brew install" in message or f"apt-get install {package}" in message
    assert variable in message


def test_a_wrapper_that_switches_users_is_not_taken_for_rabbitmq(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only a rabbitmq-server next to its rabbitmq-env can be run as a private node."""
    monkeypatch.setattr(find, "USUAL_FOLDERS", ())
    monkeypatch.setattr(find, "DEBIAN_RABBITMQ_SCRIPTS", "/nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("rabbitmq-server", "epmd"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find.find_rabbitmq() is None
    (tmp_path / "rabbitmq-env").touch()
    assert find.find_rabbitmq() == find.RabbitMQProgram(server=tmp_path / "rabbitmq-server", epmd=tmp_path / "epmd")


def test_packages_may_not_start_services_while_they_are_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Our policy is in place during the installation, even if a killed installer left one behind."""
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(apt, "POLICY", policy)
    for left_behind in (False, True):
        if left_behind:
            policy.write_text(apt.OUR_POLICY)
        with apt.services_forbidden():
            assert subprocess.run([policy], check=False).returncode == 101
        assert not policy.exists()


def test_the_machines_own_service_policy_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine's administrator has already decided about its services."""
    policy = tmp_path / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n")
    monkeypatch.setattr(apt, "POLICY", policy)
    with apt.services_forbidden():
        assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert policy.exists()
