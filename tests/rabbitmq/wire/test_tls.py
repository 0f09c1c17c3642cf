"""amqps:// is verified: against the authority that the URL names, and for the host name; nothing less is accepted."""

from __future__ import annotations

import http.server
import ssl
import threading
import traceback
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.faults.certificates import Certificates
from tests.faults.consuming import Received, a_topic, consuming, create_group, publish
from tests.faults.proxy import FaultProxy
from tests.faults.secured import Secured

from cobalance.errors import NotRabbitMQ, Unreachable, UsageError
from cobalance.rabbitmq import list_topics
from cobalance.rabbitmq.topics import management
from cobalance.rabbitmq.topics.broker import read_topic
from cobalance.rabbitmq.wire.connection import BrokerConnection

SECRET = "s3cret-p4ssword"


def refusal(url: str) -> str:
    """Why a URL is refused, after checking that nothing shows its password."""
    with pytest.raises((Unreachable, UsageError, NotRabbitMQ)) as caught:
        BrokerConnection(url, "group/member").connect()
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    return str(caught.value)


@pytest.mark.anyio
async def test_a_group_and_a_publisher_over_tls(secured_rabbitmq: Secured, redis_url: str) -> None:
    """With the authority named in the URL, everything works as without TLS."""
    received, url = Received(), secured_rabbitmq.url()
    with a_topic(url) as topic:
        assert read_topic(url, topic.name).partitions == topic.partitions
        async with consuming(create_group(redis_url), topic, url, redis_url, received):
            publish(url, topic, "one", "two")
            await received.wait("one", "two")


def test_a_connection_that_is_cut(secured_rabbitmq: Secured) -> None:
    """It had TLS, so nothing says that there is none."""
    url, lost = secured_rabbitmq.url(), Future[str]()
    with FaultProxy(int(urlsplit(url).port or 0)) as proxy:
        connection = BrokerConnection(proxy.through(url), "g/m", on_lost=lost.set_result)
        connection.connect()
        proxy.cut_after(10)
        connection.submit(lambda: connection.open_channel(lambda _: None))
        assert lost.result(60) == "it closed the connection"
        connection.close()


def test_an_unknown_authority_is_refused(secured_rabbitmq: Secured) -> None:
    """The system's own authorities do not know it, and another private one has not signed it."""
    user = f"guest:{SECRET}"
    for url in (
        secured_rabbitmq.url(user=user, authority=secured_rabbitmq.files.stranger),
        secured_rabbitmq.url(user=user).partition("?")[0],
    ):
        assert "certificate is not trusted" in refusal(url)
        assert "cacertfile" in refusal(url)


def test_a_certificate_for_another_name_is_refused(secured_rabbitmq: Secured) -> None:
    """It was issued to localhost; by IP address, the same server does not match it."""
    assert "certificate is for another host name" in refusal(
        secured_rabbitmq.url(host="127.0.0.1", user=f"guest:{SECRET}")
    )


def test_another_name_can_be_expected(secured_rabbitmq: Secured) -> None:
    """RabbitMQ's own option, for servers reached by an address."""
    connection = BrokerConnection(f"{secured_rabbitmq.url(host='127.0.0.1')}&server_name_indication=localhost", "g/m")
    connection.connect()
    connection.close()


@pytest.mark.filterwarnings("ignore:ssl.PROTOCOL_TLS:DeprecationWarning")  # the very thing that is refused
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("verify=verify_none", "without verification"),
        ("cacertfile=/nowhere.pem", "No such file"),
        ("ssl_options={'protocol':2,'ca_certs':'AUTHORITY'}", "without verification"),
    ],
)
def test_less_than_verification_is_refused(secured_rabbitmq: Secured, options: str, words: str) -> None:
    """There is no easy way to trust everyone; pika's own is refused, too."""
    options = options.replace("AUTHORITY", str(secured_rabbitmq.files.authority))
    assert words in refusal(f"amqps://guest:{SECRET}@localhost:{secured_rabbitmq.port}/?{options}")


def test_tls_options_need_tls(secured_rabbitmq: Secured) -> None:
    """Otherwise a user would wrongly believe to be protected."""
    assert "amqps://" in refusal(secured_rabbitmq.url(user=f"guest:{SECRET}").replace("amqps", "amqp"))


class Lists(http.server.BaseHTTPRequestHandler):
    """A minimal management API."""

    def do_GET(self) -> None:
        """There are no exchanges."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        """Does not log."""


def test_the_management_api_is_verified_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its URL names an authority in the same way; an amqps URL implies TLS there, by the same authority.

    This is about TLS alone, so any web server will do.
    """
    files, context = Certificates.make(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lists) as website:
        website.socket = context.wrap_socket(website.socket, server_side=True)
        thread = threading.Thread(target=website.serve_forever)
        thread.start()
        url = f"https://u:{SECRET}@localhost:{website.server_port}"
        monkeypatch.setitem(management.DEFAULT_PORTS, "https", website.server_port)
        try:
            assert list_topics("amqp://localhost", f"{url}?cacertfile={files.authority}") == []
            assert list_topics(f"amqps://u:{SECRET}@localhost/?cacertfile={files.authority}") == []
            for untrusted in (url, f"{url}?cacertfile={files.stranger}"):
                with pytest.raises(Unreachable, match="SSLCertVerificationError"):
                    list_topics("amqp://localhost", untrusted)
            with pytest.raises(UsageError, match="cannot be used"):
                list_topics("amqp://localhost", f"{url}?cacertfile=/nowhere.pem")
        finally:
            website.shutdown()
            thread.join()


def test_without_a_management_url_every_host_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts of the AMQP URL, until one answers; if none does, all are named."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lists) as website:
        thread = threading.Thread(target=website.serve_forever)
        thread.start()
        monkeypatch.setitem(management.DEFAULT_PORTS, "http", website.server_port)
        try:
            for hosts in ("127.9.9.9,127.0.0.1", "127.0.0.1,127.9.9.9"):
                assert list_topics(f"amqp://u:{SECRET}@{hosts}") == []
            with pytest.raises(Unreachable, match="None of the 2 hosts") as raised:
                list_topics(f"amqp://u:{SECRET}@127.9.9.9,127.8.8.8")
        finally:
            website.shutdown()
            thread.join()
    for host in ("127.9.9.9", "127.8.8.8"):
        assert f"{host}:{website.server_port}" in str(raised.value)
