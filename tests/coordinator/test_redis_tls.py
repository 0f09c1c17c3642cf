"""Redis over TLS: whom the client trusts, and what it says otherwise."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.coordinator.redis_calls import INCR, KEYS, PUBLISH, QUICK, SECRET, WAIT_S, failure
from tests.faults.certificates import Certificates
from tests.redis_user import as_published_user, published_user

from cobalance import BlockingGroup, errors, servers
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import LISTENING
from cobalance.servers.ports import free_port


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of a Redis with TLS, and the authority to trust."""
    files = Certificates.make(tmp_path_factory.mktemp("tls"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ("--tls-port", str(port), "--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.key))
    options = (*server, "--tls-ca-cert-file", str(files.authority), "--tls-auth-clients", "no")
    with closing(servers.private_redis((*published_user(), *options))):
        yield port, files.authority


def test_tls_with_a_trusted_certificate(tls: tuple[int, Path]) -> None:
    """Calls and hints work, with the authority named in the URL."""
    port, certificate = tls
    heard: queue.Queue[tuple[str, int]] = queue.Queue()
    with (
        closing(open_transport(f"rediss://localhost:{port}?ssl_ca_certs={certificate}")) as transport,
        closing(transport.listen(lambda *hint: heard.put(hint))) as listener,
    ):
        assert transport.call(INCR, KEYS, []) == 1
        listener.subscribe("{t}:n")
        assert heard.get(timeout=WAIT_S) == ("{t}:n", LISTENING)
        for _ in range(20):
            transport.call(PUBLISH, KEYS, [])
        assert [heard.get(timeout=WAIT_S) for _ in range(20)] == [("{t}:n", 5)] * 20


def test_a_group_over_tls(tls: tuple[int, Path]) -> None:
    """As the published user, whose password TLS protects."""
    port, authority = tls
    url = as_published_user(f"redis://localhost:{port}").replace("redis://", "rediss://")
    with BlockingGroup("g", ["r"], redis_url=f"{url}?ssl_ca_certs={authority}", settings=QUICK) as group:
        (tenure,) = group.wait_held()
        tenure.commit(1)


def test_tls_is_verified(tls: tuple[int, Path]) -> None:
    """An untrusted certificate, or one for another name, is refused."""
    port, certificate = tls
    unknown = failure(f"rediss://:{SECRET}@localhost:{port}")
    misnamed = failure(f"rediss://:{SECRET}@127.0.0.1:{port}?ssl_ca_certs={certificate}")
    assert isinstance(unknown, errors.Unreachable)
    assert "certificate is not trusted; ?ssl_ca_certs=" in str(unknown)
    assert isinstance(misnamed, errors.Unreachable)
    assert "certificate is for another host name" in str(misnamed)


def test_tls_for_clients_with_a_certificate_only(tmp_path: Path) -> None:
    """The error does not say that there is no TLS."""
    files, port = Certificates.make(tmp_path), free_port()
    served = ("--tls-port", str(port), "--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.key))
    with closing(servers.private_redis((*served, "--tls-ca-cert-file", str(files.authority)))):
        url = f"rediss://:{SECRET}@localhost:{port}?ssl_ca_certs={files.authority}"
        with closing(open_transport(url)) as transport:
            for _ in range(2):  # the refusal may arrive before or after something was sent
                with pytest.raises(errors.Unreachable, match=r"certificate of its clients.*ssl_certfile"):
                    transport.list_groups()


def test_tls_without_verification_must_be_asked_for(tls: tuple[int, Path]) -> None:
    """Only a URL that says so trusts any certificate."""
    with closing(open_transport(f"rediss://127.0.0.1:{tls[0]}?ssl_cert_reqs=none")) as transport:
        assert transport.call(INCR, KEYS, [])


def test_tls_where_there_is_none_and_none_where_there_is(
    tls: tuple[int, Path], private_redis: servers.OwnRedis
) -> None:
    """Confusing redis:// and rediss:// is reported in time."""
    without = failure(f"redis://:{SECRET}@127.0.0.1:{tls[0]}")
    assert "rediss://" in str(without) or isinstance(without, errors.NotRedis)
    with_tls = failure(private_redis.url.replace("redis://", f"rediss://:{SECRET}@"))
    assert isinstance(with_tls, errors.Unreachable)
