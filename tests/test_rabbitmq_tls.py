"""amqps:// is verified: by the authority that the URL names, and for the name that it says; nothing less is accepted."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.faults.certificates import Certificates
from tests.faults.consuming import Received, a_topic, consuming, create_group, publish

from cobalance import servers
from cobalance.errors import NotRabbitMQ, Unreachable, UsageError
from cobalance.rabbitmq.broker import read_topic
from cobalance.rabbitmq.connection import BrokerConnection
from cobalance.servers.ports import free_port

SECRET = "s3cret-p4ssword"


class Secured:
    """A RabbitMQ with a TLS listener, and URLs to it."""

    def __init__(self, folder: Path) -> None:
        self.files, self.port = Certificates.make(folder), free_port()
        settings = {
            "listeners.ssl.default": f"127.0.0.1:{self.port}",
            "ssl_options.cacertfile": str(self.files.authority),
            "ssl_options.certfile": str(self.files.certificate),
            "ssl_options.keyfile": str(self.files.key),
        }
        self.server = servers.private_rabbitmq(settings=settings)

    def url(self, *, host: str = "localhost", authority: Path | None = None, user: str = "guest:guest") -> str:
        """By default one that works."""
        return f"amqps://{user}@{host}:{self.port}/%2F?cacertfile={quote(str(authority or self.files.authority))}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """For this module."""
    made = Secured(tmp_path_factory.mktemp("tls"))
    yield made
    made.server.close()


@pytest.fixture
def anyio_backend() -> str:
    """One event loop will do."""
    return "asyncio"


def refusal(url: str) -> str:
    """Why a URL is refused, once it has been made sure that nothing shows its password."""
    with pytest.raises((Unreachable, UsageError, NotRabbitMQ)) as caught:
        BrokerConnection(url, "group/member").connect()
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    return str(caught.value)


@pytest.mark.anyio
async def test_a_group_and_a_publisher_over_tls(secured: Secured, redis_url: str) -> None:
    """With the authority named in the URL, everything works as it does without TLS."""
    received, url = Received(), secured.url()
    with a_topic(url) as topic:
        assert read_topic(url, topic.name).partitions == topic.partitions
        async with consuming(create_group(redis_url), topic, url, redis_url, received):
            publish(url, topic, "one", "two")
            await received.wait("one", "two")


def test_an_unknown_authority_is_refused(secured: Secured) -> None:
    """The system's own authorities do not know it, and another private one has not signed it."""
    user = f"guest:{SECRET}"
    for url in (
        secured.url(user=user, authority=secured.files.stranger),
        secured.url(user=user).partition("?")[0],
    ):
        assert "certificate is not trusted" in refusal(url)
        assert "cacertfile" in refusal(url)


def test_a_certificate_for_another_name_is_refused(secured: Secured) -> None:
    """It was issued to localhost; by its number the same server is somebody else."""
    assert "certificate is not trusted" in refusal(secured.url(host="127.0.0.1", user=f"guest:{SECRET}"))


def test_another_name_can_be_expected(secured: Secured) -> None:
    """RabbitMQ's own option, for servers reached by an address."""
    connection = BrokerConnection(f"{secured.url(host='127.0.0.1')}&server_name_indication=localhost", "g/m")
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
def test_less_than_verification_is_refused(secured: Secured, options: str, words: str) -> None:
    """There is no easy way to trust everybody, pika's own included."""
    options = options.replace("AUTHORITY", str(secured.files.authority))
    assert words in refusal(f"amqps://guest:{SECRET}@localhost:{secured.port}/?{options}")


def test_tls_options_need_tls(secured: Secured) -> None:
    """Or somebody would believe to be safe who is not."""
    assert "amqps://" in refusal(secured.url(user=f"guest:{SECRET}").replace("amqps", "amqp"))
