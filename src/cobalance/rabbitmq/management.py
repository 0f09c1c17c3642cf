"""What only RabbitMQ's management API can tell: AMQP itself cannot list anything."""

import base64
import http.client
import json
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import attrs

from cobalance.errors import AuthenticationRefused, Unreachable, UsageError
from cobalance.rabbitmq.broker import PARTITIONS_ARGUMENT
from cobalance.rabbitmq.parameters import virtual_host

DEFAULT_PORT = 15_672


@attrs.frozen
class ListedTopic:
    """A line of `topic list`."""

    name: str
    partitions: int


def list_topics(amqp_url: str, management_url: str | None = None, *, timeout_ms: int = 5_000) -> list[ListedTopic]:
    """The topics of the AMQP URL's virtual host, by name.

    Without a management URL (http://user:password@host:15672) the AMQP URL's host, user and password are used. A topic is an exchange
    that `create_topic` marked as one.
    """
    exchanges = _get(amqp_url, management_url, f"/api/exchanges/{quote(virtual_host(amqp_url), safe='')}", timeout_ms)
    found = ((x["name"], x["arguments"].get(PARTITIONS_ARGUMENT)) for x in exchanges)
    return sorted(
        (ListedTopic(name, partitions) for name, partitions in found if partitions), key=lambda topic: topic.name
    )


def _get(amqp_url: str, management_url: str | None, path: str, timeout_ms: int) -> Any:
    amqp, api = urlsplit(amqp_url), urlsplit(management_url or "")
    if api.scheme not in {"", "http", "https"}:
        raise UsageError("The management URL must begin with http:// or https://.")
    host, port = api.hostname or amqp.hostname or "localhost", api.port or DEFAULT_PORT
    giver = api if api.username else amqp
    user, password = unquote(giver.username or "guest"), unquote(giver.password or "guest")
    connect = http.client.HTTPSConnection if api.scheme == "https" else http.client.HTTPConnection
    connection = connect(host, port, timeout=timeout_ms / 1000)
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    try:
        connection.request("GET", api.path.rstrip("/") + path, headers={"Authorization": f"Basic {token}"})
        response = connection.getresponse()
        status, body = response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        status, body = 0, type(error).__name__.encode()
    finally:
        connection.close()
    return _decode(f"{host}:{port}", status, body)


def _decode(place: str, status: int, body: bytes) -> Any:
    if status == http.HTTPStatus.OK:
        return json.loads(body)
    if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
        raise AuthenticationRefused(
            f"RabbitMQ's management API at {place} refused the user: it needs the right password and the tag 'management' "
            "(rabbitmqctl set_user_tags USER management)."
        )
    what = f"answers with status {status}" if status else f"cannot be reached ({body.decode()})"
    raise Unreachable(
        f"RabbitMQ's management API at {place} {what}. Listing needs it: run rabbitmq-plugins enable rabbitmq_management, or set "
        "COBALANCE_MANAGEMENT_URL to where it listens."
    )
