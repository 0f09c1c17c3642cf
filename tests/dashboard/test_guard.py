"""Who may look, and what is never shown."""

from __future__ import annotations

import base64
import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.cli_process import SECRET, cobalance, cobalance_process, running
from tests.dashboard.asking import ask
from tests.names import unique

from cobalance import GroupAdmin, servers
from cobalance.dashboard.app import dashboard_app
from cobalance.dashboard.guard import SECURITY_HEADERS
from cobalance.dashboard.server import DashboardServer
from cobalance.errors import UsageError
from cobalance.servers.ports import free_port

pytestmark = pytest.mark.both_loops

PASSWORD = "correct-horse-battery"


def basic(password: str, user: str = "me") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "path", ["/", "/groups/g", "/api/v1/groups", "/static/app.js", "/nowhere", "/api/v1/groups/nobody"]
)
def test_every_answer_has_the_headers(port: int, path: str) -> None:
    """Scripts and styles come from here alone, and nobody frames a page."""
    headers = ask(port, path).headers
    assert {name: headers.get(name.lower()) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert "unsafe" not in headers["content-security-policy"]
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_other_hosts_are_refused(port: int, host: str) -> None:
    """A page of the internet cannot ask under a name that it has made resolve to this machine."""
    for path in ("/", "/api/v1/groups", "/static/app.js"):
        assert ask(port, path, Host=host).status == 421


def test_hosts_that_are_named_are_known(admin: GroupAdmin) -> None:
    """As behind a reverse proxy."""
    with DashboardServer(admin, port=0, hosts=["groups.example"]) as server:
        assert ask(server.port, "/", Host="groups.example").status == 200
        assert ask(server.port, "/", Host=f"localhost:{server.port}").status == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "evil", "named"),
    [({}, 421, 421), ({"hosts": ["groups.example"]}, 421, 200), ({"hosts": None}, 200, 200)],
)
async def test_mounted_in_an_application_it_knows_its_hosts_too(
    admin: GroupAdmin, options: dict[str, Any], evil: int, named: int
) -> None:
    """Unless that is left to the application."""
    app = dashboard_app(admin, **options)

    async def status(host: str) -> int:
        sent = list[Any]()

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        headers = [(b"host", host.encode())]
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
        await app(scope, receive, send)
        return int(sent[0]["status"])

    hosts = ("evil.example", "groups.example", "localhost:80", "10.0.0.7", socket.gethostname())
    assert [await status(it) for it in hosts] == [evil, named, 200, 200, 200]


def test_other_origins_are_refused(port: int) -> None:
    """Also where a browser only says that the site is another one; a link from elsewhere is all right."""
    assert ask(port, "/api/v1/groups", Origin="https://evil.example").status == 403
    assert ask(port, "/api/v1/groups", Origin="null").status == 403
    assert ask(port, "/api/v1/groups", Origin=f"http://127.0.0.1:{port}").status == 200
    assert ask(port, "/api/v1/groups", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert ask(port, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://[x]", "["])
def test_an_origin_that_is_none_is_refused(port: int, origin: str, caplog: pytest.LogCaptureFixture) -> None:
    """With all the headers, as any other, and without a word in the log."""
    found = ask(port, "/api/v1/groups", Origin=origin)
    assert found.status == 403
    assert {name: found.headers.get(name.lower()) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert not [it for it in caplog.records if it.levelname in {"WARNING", "ERROR"}]


def test_a_password_guards_everything(admin: GroupAdmin) -> None:
    """Pages, files and the API; wrong ones of any form are refused."""
    with DashboardServer(admin, port=0, password=PASSWORD) as server:
        for path in ("/", "/api/v1/groups", "/static/app.js"):
            refused = ask(server.port, path)
            assert (refused.status, refused.headers["www-authenticate"][:5]) == (401, "Basic")
            assert ask(server.port, path, Authorization=basic(PASSWORD)).status == 200
        for wrong in (
            basic("wrong"),
            basic(""),
            "Basic",
            "Basic ???",
            f"Bearer {PASSWORD}",
            basic(PASSWORD)[:-3],
            "Basic é",
        ):
            assert ask(server.port, "/api/v1/groups", Authorization=wrong).status == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104
def test_other_machines_need_a_password(admin: GroupAdmin, host: str) -> None:
    """Before anything listens there."""
    with pytest.raises(UsageError, match="password"):
        DashboardServer(admin, host=host, port=0)


def test_names_are_text(port: int) -> None:
    """Whatever a path says, a page has no other script than its own."""
    page = ask(port, "/groups/%3Cscript%3Ealert(1)%3C%2Fscript%3E%22").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&quot;" in page
    assert ask(port, "/groups/%7B%7Bbase%7D%7D").text.count("{{base}}") == 1


def test_files_are_those_of_the_dashboard(port: int) -> None:
    """No path leads out of their folder."""
    for path in ("/static/../guard.py", "/static/%2e%2e/guard.py", "/static/..%2fguard.py", "/static//etc/passwd"):
        assert ask(port, path).status == 404, path


def test_an_error_that_nobody_foresaw_is_told_without_secrets(
    admin: GroupAdmin, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the answer nor the log has what it quotes."""

    def fail() -> tuple[str, ...]:
        raise RuntimeError(f"redis://me:{SECRET}@127.0.0.1")

    monkeypatch.setattr(admin, "list", fail)
    with DashboardServer(admin, port=0) as server:
        found = ask(server.port, "/api/v1/groups")
    assert found.status == 500
    assert SECRET not in found.text
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    return file


def test_the_command_serves_until_it_is_stopped(redis_url: str, tmp_path: Path, password_file: Path) -> None:
    """With the groups of that Redis; nothing that it writes or answers has a password."""
    group, port = unique("dashboard"), free_port()
    with GroupAdmin(redis_url) as admin:
        admin.create(group)
    words = ["--redis-url", redis_url, "--amqp-url", f"amqp://me:{SECRET}@127.0.0.1:1", "--port", str(port)]
    with running("dashboard", *words, "--password-file", str(password_file), folder=tmp_path) as command:
        command.wait_for(f"dashboard at http://127.0.0.1:{port}/")
        answers = [
            ask(port, path, Authorization=basic(PASSWORD)) for path in ("/api/v1/groups", f"/api/v1/groups/{group}")
        ]
        ended = command.end(signal.SIGTERM)
    assert [it.status for it in answers] == [200, 200]
    for secret in (SECRET, PASSWORD, "published"):
        assert secret not in "".join([*(it.text for it in answers), ended.out, ended.err])
    assert ended.code == 0


def test_the_command_says_who_changed_what(redis_url: str, tmp_path: Path) -> None:
    """What is done by an action; and Ctrl-C is a normal end."""
    group = unique("dashboard")
    with GroupAdmin(redis_url) as admin:
        admin.create(group)
    words = ["--redis-url", redis_url, "--amqp-url", "amqp://127.0.0.1:1", "--port", "0", "--allow-actions"]
    with running("dashboard", *words, folder=tmp_path) as command:
        command.wait_for("dashboard at http://127.0.0.1:")
        port = int(command.err[-1].rpartition(":")[2].strip("/\n"))
        headers, path = (
            {"Origin": f"http://127.0.0.1:{port}", "Content_Type": "application/json"},
            f"/api/v1/groups/{group}",
        )
        wanted = json.dumps({"action": "settings", "settings": {"gather_ms": "5"}})
        plan = ask(port, f"{path}/dry-runs", "POST", wanted, **headers)
        headers["Cookie"] = plan.headers["set-cookie"].partition(";")[0]
        ask(port, f"{path}/actions", "POST", json.dumps({"token": plan.json["token"]}), **headers)
        command.wait_for(f"group {group}: settings by dashboard@{socket.gethostname()}: gather_ms is 5 ms.")
        ended = command.end(signal.SIGINT)
    assert (ended.code, len(ended.err.splitlines())) == (0, 2)


def test_a_certificate_makes_it_https(admin: GroupAdmin, tmp_path: Path) -> None:
    """And a malformed one is refused."""
    file = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    with DashboardServer(admin, port=0, certificate=file) as server:
        assert server.url.startswith("https://127.0.0.1:")
    file.write_text("nothing")
    with pytest.raises(UsageError, match="certificate"):
        DashboardServer(admin, port=0, certificate=file)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--host", "0.0.0.0"], "give a password file"),  # noqa: S104
        (["--password-file", "/nowhere"], "cannot read the password file /nowhere"),
        (["--port", "70000"], "port"),
        (["--host", "192.0.2.1", "--password-file", "{file}"], "cannot listen at 192.0.2.1"),
    ],
)
def test_wrong_usage_is_explained(words: list[str], error: str, password_file: Path) -> None:
    """With exit code 2."""
    given = [word.format(file=password_file) for word in words]
    found = cobalance("dashboard", "--redis-url", f"memory://{unique('dashboard')}", *given)
    assert found.code == 2, found
    assert error in found.err


def test_a_short_password_is_refused(tmp_path: Path) -> None:
    """An empty file is one, too."""
    for text in ("", "\n\n", "short\n"):
        (tmp_path / "short").write_text(text)
        found = cobalance("dashboard", "--password-file", str(tmp_path / "short"))
        assert found.code == 2
        assert "fewer than 12 characters" in found.err


def test_an_unreachable_redis_is_reported_at_once() -> None:
    """Without its password."""
    found = cobalance("dashboard", "--redis-url", f"redis://:{SECRET}@127.0.0.1:{free_port()}")
    assert found.code == 3
    assert SECRET not in found.err


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """And how to install it."""
    for package in ("starlette", "uvicorn"):
        (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError({package!r}, name={package!r})\n")
    found = cobalance_process("dashboard", environment={"PYTHONPATH": str(tmp_path)})
    assert found.code == 1
    assert "pip install 'cobalance[dashboard]'" in found.err


def test_servers_that_fail_meanwhile_are_said(private_redis: servers.OwnRedis) -> None:
    """With status 503, without the password, and it goes on once they are back."""
    with GroupAdmin(private_redis.url, amqp_url="memory://dashboard") as admin:
        admin.create("g")
        with DashboardServer(admin, port=0) as server:
            assert ask(server.port, "/api/v1/groups/g").status == 200
            private_redis.stop()
            failed = ask(server.port, "/api/v1/groups/other")
            assert failed.status == 503
            assert "@" not in failed.text
            private_redis.start()
            assert ask(server.port, "/api/v1/groups/other").status == 404
