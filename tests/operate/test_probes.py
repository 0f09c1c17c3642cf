"""Probes over HTTP, as Kubernetes and load balancers send them."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
from tests.cli_process import cobalance, cobalance_process, running
from tests.consumers import new_topic
from tests.faults.eventually import eventually
from tests.faults.management_api import OK, gateway, trickling
from tests.names import unique

from cobalance import BlockingGroup, ConsumerGroup, Group, Publisher, Tenure
from cobalance.cli import health
from cobalance.errors import UsageError
from cobalance.operate import ProbeServer, http_listener, probe_app
from cobalance.operate.http_listener import is_known
from cobalance.servers.ports import free_port
from cobalance.settings import GroupSettings

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=100, revocation_timeout_ms=10_000, gather_ms=0
)

_count = itertools.count()


def made(**options: Any) -> Group:
    """A group of its own, in this process."""
    return Group("billing", ["r"], redis_url=f"memory://probes-{next(_count)}", settings=SETTINGS, **options)


def ask(port: int, path: str, *, host: str | None = None, method: str = "GET") -> tuple[int, Any]:
    """Status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    return response.status, json.loads(body) if body else None


async def asked(port: int, path: str) -> tuple[int, Any]:
    return await anyio.to_thread.run_sync(ask, port, path)


async def test_a_process_answers_from_its_start_to_its_end() -> None:
    """Ready while it is a member, alive all the time, with reasons."""
    group = made()
    with ProbeServer(group, port=0) as server:
        assert await asked(server.port, "/livez") == (200, {"live": True, "groups": [shown(group)]})
        status, body = await asked(server.port, "/readyz")
        assert (status, body["ready"], body["groups"][0]["reasons"]) == (503, False, ["it is not entered yet"])
        async with group:
            await group.wait_held("r")
            status, body = await asked(server.port, "/readyz")
            assert (status, body["groups"][0]["state"], body["groups"][0]["held"]) == (200, "member", 1)
        assert (await asked(server.port, "/readyz"))[0] == 503
        assert (await asked(server.port, "/livez"))[0] == 200
    with pytest.raises(ConnectionRefusedError):
        await asked(server.port, "/livez")


def shown(group: Group) -> dict[str, Any]:
    """A group that is not entered."""
    common = {"member": None, "held": 0, "heard_at": None, "reasons": ["it is not entered yet"]}
    return {"group": group.name, "state": "new", "live": True, "ready": False, **common}


async def test_the_answer_is_that_of_all_groups() -> None:
    """A process with two groups is ready when both are."""
    one, two = made(), made()
    with ProbeServer(one, two, port=0) as server:
        async with one:
            status, body = await asked(server.port, "/readyz")
            assert (status, [it["ready"] for it in body["groups"]]) == (503, [True, False])
            async with two:
                assert (await asked(server.port, "/readyz"))[0] == 200


async def test_a_program_beside_a_failed_group_never_answers_that_it_is_ready() -> None:
    """It was started in a lifespan, failed, and the program has not noticed."""
    go = anyio.Event()

    async def work(_: Tenure) -> None:
        await go.wait()
        raise ValueError("secret")

    group = made(work=work)
    with ProbeServer(group, port=0) as server:
        await group.start()
        await group.wait_held("r")
        assert (await asked(server.port, "/readyz"))[0] == 200
        go.set()
        await eventually(lambda: group.failed)
        status, body = await asked(server.port, "/readyz")
        assert status == 503
        assert body["groups"][0]["reasons"] == ["it has failed: a ValueError in the program's code"]
        await eventually(lambda: not group.health.live)
        assert (await asked(server.port, "/livez"))[0] == 503
        with pytest.raises(ValueError, match="secret"):
            await group.stop()
        assert (await asked(server.port, "/readyz"))[0] == 503


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("10.1.2.3", 200),
        ("[::1]:8080", 200),
        ("localhost:99", 200),
        ("LOCALHOST", 200),
        ("probes.internal", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("[", 421),
    ],
)
def test_a_name_that_is_not_known_is_refused(host: str, status: int) -> None:
    """A page of the internet could have a browser ask under a name of its own."""
    with ProbeServer(made(), port=0, hosts=["Probes.internal"]) as server:
        assert ask(server.port, "/livez", host=host)[0] == status
    assert is_known(host, {"localhost", "probes.internal"}) is (status == 200)


def test_there_is_nothing_but_probes() -> None:
    """Other paths are not found, other methods not known, and HEAD has no body."""
    with ProbeServer(made(), port=0) as server:
        assert ask(server.port, "/")[0] == 404
        assert ask(server.port, "/livez?verbose")[0] == 200
        assert ask(server.port, "/livez", method="HEAD") == (200, None)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/livez")
        assert connection.getresponse().status == 501
        connection.close()


def test_a_request_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of it has one time limit, however often something comes."""
    monkeypatch.setattr(http_listener, "PATIENCE_S", 1.0)
    with ProbeServer(made(), port=0) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nX-A: ")
        for _ in range(100):
            if select.select([client], [], [], 0.1)[0]:
                break
            client.sendall(b"a")
        else:
            pytest.fail("it is still served")
        assert ended(client)
        assert ask(server.port, "/livez")[0] == 200


async def test_only_so_many_connections_are_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """More are closed at once, until one of the others ends."""
    monkeypatch.setattr(http_listener, "PATIENCE_S", 1_000.0)
    monkeypatch.setattr(http_listener, "MOST_CONNECTIONS", 2)
    with ProbeServer(made(), port=0) as server:
        first, second, third = (socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(3))
        with first, second, third:
            assert await anyio.to_thread.run_sync(ended, third)
            first.close()
            listening = server._server
            assert listening is not None
            await eventually(lambda: len(listening.serving) == 1)
            assert (await asked(server.port, "/livez"))[0] == 200
            second.sendall(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert second.recv(12) == b"HTTP/1.0 200"


def ended(client: socket.socket) -> bool:
    """Waits for the server to say or end something."""
    try:
        return not client.recv(1)
    except ConnectionResetError:  # there was something unread
        return True


def test_it_listens_on_this_machine_only_and_says_if_it_cannot() -> None:
    """Two cannot have one port; and what it is asked about has to be a group."""
    with ProbeServer(made(), port=0) as server:
        assert server._server is not None
        assert server._server.server_address[0] == "127.0.0.1"
        with pytest.raises(UsageError, match=f"cannot listen at 127.0.0.1, port {server.port}"):
            ProbeServer(made(), port=server.port).start()
        with pytest.raises(UsageError, match="listens already"):
            server.start()
    with pytest.raises(UsageError, match="at least one group"):
        ProbeServer()
    with pytest.raises(UsageError, match="an object of type str"):
        ProbeServer("billing")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="port is -1"):
        ProbeServer(made(), port=-1)


async def test_the_same_as_an_application_of_ones_own_server() -> None:
    """Mounted below a path, as FastAPI and Starlette do; the host is theirs to check unless names are given."""
    group = made()
    async with group:
        assert await through(probe_app(group), "/probes/readyz") == 200
        assert await through(probe_app(group, hosts=["billing"]), "/probes/readyz", "billing:80") == 200
        assert await through(probe_app(group, hosts=["billing"]), "/probes/readyz", "evil.example") == 421
        assert await through(probe_app(group), "/probes/secrets") == 404
    assert await through(probe_app(group), "/probes/readyz") == 503


async def through(app: Any, path: str, host: str = "any.example") -> int:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "root_path": "/probes", "headers": [(b"host", host.encode())]}
    await app(scope, None, send)
    assert json.loads(sent[1]["body"]) is not None
    return int(sent[0]["status"])


def test_the_command_is_a_probe_too() -> None:
    """0 if it is, 1 if it is not, 3 if nobody answers; wrong usage is 2."""
    group = BlockingGroup("billing", ["r"], redis_url=f"memory://probes-{next(_count)}", settings=SETTINGS)
    with ProbeServer(group, port=0) as server:
        where = ("--port", str(server.port))
        assert cobalance("health", "--live", *where).code == 0
        outcome = cobalance("health", "--ready", *where)
        assert (outcome.code, outcome.out) == (1, "billing: new; it is not entered yet\n")
        with group:
            assert cobalance("health", "--ready", *where).code == 0
            assert json.loads(cobalance("health", "--ready", "--json", *where).out)["ready"] is True
        assert cobalance("health", *where).code == 2
    gone = cobalance("health", "--live", *where)
    assert (gone.code, "No member answers probes" in gone.err) == (3, True)


def test_what_is_no_member_is_not_taken_for_one() -> None:
    """Another program may have the port."""
    folder = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port := free_port()))
    with subprocess.Popen(folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            while "No member answers" in (outcome := cobalance("health", "--live", "--port", str(port))).err:
                assert other.poll() is None
        finally:
            other.kill()
    assert (outcome.code, "is no member" in outcome.err) == (3, True)


def at(url: str) -> tuple[str, str]:
    """The options of `cobalance health` for what listens at this URL."""
    return "--port", str(urlsplit(url).port)


@pytest.mark.parametrize(
    "answer",
    [
        *(b'{"live": true}', b'{"live": "no", "groups": []}', b'{"live": 1, "groups": []}', b'{"groups": []}'),
        *(b'{"live": true, "groups": %s}' % groups for groups in (b"7", b"{}", b"null", b"[7]", b"[{}]", b'["group"]')),
        b'{"live": true, "groups": [{"group": 7, "state": "member", "reasons": []}]}',
        b'{"live": true, "groups": [{"group": "g", "state": null, "reasons": []}]}',
        b'{"live": true, "groups": [{"group": "g", "state": "member", "reasons": "none"}]}',
        b'{"live": true, "groups": [{"group": "g", "state": "member", "reasons": [7]}]}',
    ],
)
def test_json_of_another_shape_is_no_members(answer: bytes) -> None:
    """Nor is it an unexpected error, or a member that is well."""
    with gateway(answer=answer) as (_, url):
        outcome = cobalance("health", "--live", *at(url))
    assert (outcome.code, outcome.out, "is no member" in outcome.err) == (3, "", True)


def test_what_is_answered_does_not_steer_the_terminal() -> None:
    """Another program may have the port."""
    group = {"group": "\x1b[31mg", "state": "\x1b[2J", "reasons": ["a\nb"]}
    with gateway(answer=json.dumps({"live": True, "groups": [group]}).encode()) as (_, url):
        outcome = cobalance("health", "--live", *at(url))
    assert (outcome.code, outcome.out) == (0, "\\x1b[31mg: \\x1b[2J; a\\nb\n")


@pytest.mark.parametrize("beginning", [b"", OK + b"X: ", OK + b"Content-Length: 10000\r\n\r\n", OK + b"\r\n"])
def test_a_probe_that_is_answered_without_end_ends(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is for all of the answer, instead of for each byte."""
    monkeypatch.setattr(health, "TIMEOUT_S", 0.3)
    with ThreadPoolExecutor(1) as pool, trickling(beginning) as url:
        outcome = pool.submit(cobalance, "health", "--live", *at(url)).result(20)
    assert (outcome.code, "No member answers probes" in outcome.err) == (3, True)


@pytest.mark.parametrize("host", ["a b", "a" * 70, ""])
def test_a_host_that_cannot_be_one_does_not_answer(host: str) -> None:
    """As any other where nothing listens."""
    outcome = cobalance("health", "--live", "--host", host)
    assert (outcome.code, "No member answers probes" in outcome.err) == (3, True)


def test_a_probe_does_not_read_more_than_a_member_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory of the container."""
    monkeypatch.setattr(health, "TIMEOUT_S", 20.0)
    monkeypatch.setattr(health, "MOST_BYTES", 100_000)
    with trickling(OK + b"\r\n", b" " * 10_000, 0) as url:
        outcome = cobalance("health", "--live", *at(url))
    assert (outcome.code, "is no member" in outcome.err) == (3, True)


HANDLER = """
def hang(delivery):
    print("began", flush=True)
    open("gate").read()  # a pipe that nobody writes to yet
"""


@pytest.mark.thorough
def test_a_consumer_is_not_ready_while_it_drains(redis_url: str, amqp_url: str, tmp_path: Path) -> None:
    """SIGTERM with a message in flight: not ready at once, alive until it ends, and it ends with 0."""
    (tmp_path / "shop.py").write_text(HANDLER)
    os.mkfifo(tmp_path / "gate")
    port, group = str(free_port()), unique("probes")
    urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url, "COBALANCE_PROBE_PORT": port}
    assert cobalance("group", "create", group, environment=urls).code == 0
    with new_topic(amqp_url) as topic:
        command = ("consume", topic.name, "--group", group, "--handler", "shop:hang")
        with running(*command, folder=tmp_path, environment=urls) as consumer:
            consumer.wait_for("joined group")
            assert cobalance("health", "--ready", environment=urls).code == 0
            with Publisher(amqp_url, topic) as publisher:
                publisher.publish(None, b"x", partition=0)
            consumer.wait_for("began")
            consumer.process.send_signal(signal.SIGTERM)
            consumer.wait_for("finishing what has begun")
            ended = cobalance_process("health", "--ready", environment=urls)
            assert (ended.code, "draining" in ended.out) == (1, True)
            assert cobalance("health", "--live", environment=urls).code == 0
            (tmp_path / "gate").write_text("go on")
            assert consumer.wait().code == 0


async def test_a_member_that_waits_for_its_servers_is_alive_and_not_ready(redis_url: str) -> None:
    """A startup probe waits; restarting it would not help."""
    nowhere = f"amqp://127.0.0.1:{free_port()}"
    group = ConsumerGroup(
        unique("probes"), "t", lambda _: None, amqp_url=nowhere, redis_url=redis_url, connect_timeout_s=60
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(group.start)
        await eventually(lambda: group.health.state == "joining")
        assert (group.health.live, group.health.ready) == (True, False)
        tasks.cancel_scope.cancel()
