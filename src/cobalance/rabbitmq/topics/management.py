"""What only RabbitMQ's management API can tell, since AMQP cannot list anything."""

import base64
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import attrs

from cobalance.errors import AuthenticationRefused, TopicMissing, Unreachable, UsageError, counted
from cobalance.http_call import NoAnswerError, call_http
from cobalance.limits import parse_json
from cobalance.rabbitmq.topics.admin import LOCK_SUFFIX
from cobalance.rabbitmq.topics.broker import LAYOUT_ARGUMENT, PARTITIONS_ARGUMENT
from cobalance.rabbitmq.wire.address import ENCODED, is_memory, single_urls, virtual_host
from cobalance.rabbitmq.wire.hosts import first_that_works
from cobalance.redact import has_stray_at

DEFAULT_PORTS = {"http": 15_672, "https": 15_671}

T = TypeVar("T")

PAGE = 500
"""Queues per request."""

MOST_PAGES = 2_000
"""A million queues: more than RabbitMQ can have."""

MOST_BYTES = 64 * 2**20
"""How long an answer may be: a hundred thousand bindings or connections are shorter."""


@attrs.frozen
class ListedTopic:
    """A line of `topic list`."""

    name: str
    partitions: int


def list_topics(amqp_url: str, management_url: str | None = None, *, timeout_ms: int = 5_000) -> list[ListedTopic]:
    """Lists the topics of the AMQP URL's virtual host, by name.

    Without a management URL (http://user:password@host:15672), the AMQP URL's user and password are used at each of its
    hosts until one answers; over TLS if the AMQP URL says amqps. A topic is an exchange marked as one by
    `create_topic`.
    """
    layouts = _get(amqp_url, management_url, f"/api/exchanges/{_vhost(amqp_url)}", timeout_ms, _layouts)
    return [ListedTopic(name, max(found)[1]) for name, found in sorted(layouts.items())]


def _layouts(exchanges: Any) -> dict[str, list[tuple[int, int]]]:
    """Topic → number and partitions of each layout."""
    layouts: dict[str, list[tuple[int, int]]] = {}
    for exchange in _rows(exchanges):
        name, arguments = _of(str, exchange["name"]), _of(dict, exchange["arguments"] or {})
        partitions, layout = arguments.get(PARTITIONS_ARGUMENT), arguments.get(LAYOUT_ARGUMENT, 1)
        if isinstance(partitions, int) and isinstance(layout, int) and partitions:
            topic = name.removesuffix(f".v{layout}") if LAYOUT_ARGUMENT in arguments else name
            layouts.setdefault(topic, []).append((layout, partitions))
    return layouts


def bound_queues(
    amqp_url: str, exchange: str, management_url: str | None = None, *, timeout_ms: int = 5_000
) -> set[str]:
    """The queues bound to an exchange; raises TopicMissing if the exchange does not exist."""
    path = f"/api/exchanges/{_vhost(amqp_url)}/{quote(exchange, safe='')}"
    bindings = _get(amqp_url, management_url, f"{path}/bindings/source", timeout_ms, _destinations)
    if not bindings:
        is_there = partial(_of, dict)
        _get(amqp_url, management_url, path, timeout_ms, is_there, missing=f"There is no exchange {exchange!r}.")
    return {name for kind, name in bindings if kind == "queue"}


def _destinations(bindings: Any) -> set[tuple[str, str]]:
    return {(_of(str, it["destination_type"]), _of(str, it["destination"])) for it in _rows(bindings)}


def bindings_of(
    amqp_url: str, exchange: str, management_url: str | None = None, *, timeout_ms: int = 5_000
) -> set[tuple[str, str]]:
    """The names of the queues and exchanges bound to an exchange, each with its routing key."""
    path = f"/api/exchanges/{_vhost(amqp_url)}/{quote(exchange, safe='')}/bindings/source"
    return _get(amqp_url, management_url, path, timeout_ms, _keyed_destinations)


def _keyed_destinations(bindings: Any) -> set[tuple[str, str]]:
    return {(_of(str, it["destination"]), _of(str, it["routing_key"])) for it in _rows(bindings)}


def unacknowledged_counts(
    amqp_url: str, management_url: str | None = None, *, timeout_ms: int = 5_000
) -> dict[str, int]:
    """Queue → number of unacknowledged messages, some seconds old; queues not counted yet are left out."""
    counts = _counts(amqp_url, management_url, "messages_unacknowledged", timeout_ms)
    return {name: count for name, count in counts.items() if count is not None}


def message_counts(amqp_url: str, management_url: str | None = None, *, timeout_ms: int = 10_000) -> dict[str, int]:
    """Queue → number of messages, unacknowledged ones included, some seconds old; 1 where not counted yet."""
    counts = _counts(amqp_url, management_url, "messages", timeout_ms)
    return {name: 1 if count is None else count for name, count in counts.items()}


def exact_counts(
    amqp_url: str, management_url: str | None, pattern: str, *, timeout_ms: int = 10_000
) -> dict[str, int | None]:
    """Queue → number of messages, unacknowledged ones included; None where RabbitMQ does not say. Of those whose names match.

    Each classic queue counts them when it is asked, in place of the statistics; what is said of the others is some seconds old.
    """
    only = f"&disable_stats=true&enable_queue_totals=true&use_regex=true&name={quote(pattern, safe='')}"
    return _counts(amqp_url, management_url, "messages", timeout_ms, only, with_locks=True)


def _counts(
    amqp_url: str, management_url: str | None, column: str, timeout_ms: int, only: str = "", *, with_locks: bool = False
) -> dict[str, int | None]:
    """Queue → what it has in this column; None where not counted yet. The locks of topics are left out, unless asked for."""

    def read(found: Any) -> tuple[dict[str, int | None], int]:
        rows = {_of(str, it["name"]): it for it in _rows(_of(dict, found)["items"])}
        counted = {name: it.get(column) for name, it in rows.items() if with_locks or not _is_lock(name, it)}
        numbers = {name: None if it is None else _of(int, it) for name, it in counted.items()}
        if _of(int, found["page_count"]) > MOST_PAGES:
            raise LookupError
        return numbers, found["page_count"]

    counts: dict[str, int | None] = {}
    page, pages = 1, 1
    while page <= pages:
        query = f"?page={page}&page_size={PAGE}&columns=name,exclusive,{column}{only}"
        rows, pages = _get(amqp_url, management_url, f"/api/queues/{_vhost(amqp_url)}{query}", timeout_ms, read)
        counts |= rows
        page += 1
    return counts


def _is_lock(name: str, row: dict[str, Any]) -> bool:
    return name.endswith(LOCK_SUFFIX) and row.get("exclusive") is True


def connection_names(
    amqp_url: str, management_url: str | None = None, *, timeout_ms: int = 5_000
) -> list[tuple[str, str]]:
    """RabbitMQ's own name of each connection to the virtual host, and the name given by its client, or ""."""
    path = f"/api/vhosts/{_vhost(amqp_url)}/connections?columns=name,user_provided_name"
    return _get(amqp_url, management_url, path, timeout_ms, _both_names)


def _both_names(connections: Any) -> list[tuple[str, str]]:
    return [(_of(str, it["name"]), str(it.get("user_provided_name", ""))) for it in _rows(connections) if "name" in it]


def close_connection(
    amqp_url: str, management_url: str | None, name: str, reason: str, *, timeout_ms: int = 5_000
) -> None:
    """Has RabbitMQ close a connection, given by RabbitMQ's own name; does nothing if it is gone."""
    path = f"/api/connections/{quote(name, safe='')}"

    def check(place: str, status: int, body: bytes) -> None:
        if status not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}:
            _decode(place, status, body)
            raise _unusable(place, "has not said that it closed a connection")

    _ask(_Request("DELETE", path, {"X-Reason": reason}), amqp_url, management_url, timeout_ms, check)


@attrs.frozen
class _Request:
    method: str
    path: str
    headers: dict[str, str] = attrs.field(factory=dict)


def _vhost(amqp_url: str) -> str:
    return quote(virtual_host(amqp_url), safe="")


def _get(
    amqp_url: str,
    management_url: str | None,
    path: str,
    timeout_ms: int,
    understand: Callable[[Any], T],
    *,
    missing: str = "",
) -> T:
    """Returns what `understand` makes of the JSON. What raises there is not RabbitMQ's."""

    def read(place: str, status: int, body: bytes) -> T:
        if missing and status == HTTPStatus.NOT_FOUND:
            raise TopicMissing(missing)
        found = _decode(place, status, body)
        try:
            return understand(found)
        except (LookupError, TypeError):
            raise _unusable(place, f"answers with JSON that is not RabbitMQ's ({_shape(found)})") from None

    return _ask(_Request("GET", path), amqp_url, management_url, timeout_ms, read)


def _rows(found: Any) -> list[dict[str, Any]]:
    """A list of objects. Erlang writes an object without any of the columns asked for as an empty list."""
    return [_of(dict, it) for it in _of(list, found) if it != []]


def _of(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(kind.__name__)
    return value


def _shape(found: Any) -> str:
    """Names are not quoted: nobody knows whose answer it is."""
    if isinstance(found, dict):
        return f"an object with {counted(len(found), 'name')}"
    return (
        f"a list with {counted(len(found), 'element')}" if isinstance(found, list) else "neither an object nor a list"
    )


def _ask(
    request: _Request, amqp_url: str, management_url: str | None, timeout_ms: int, read: Callable[[str, int, bytes], T]
) -> T:
    """Returns what `read` makes of the answer of the management URL, or of the first AMQP host that it accepts."""
    api = _split(management_url or "")
    if is_memory(amqp_url) and not api.hostname:
        raise UsageError("memory:// has no management API, so nothing can be listed there: name queues and topics")
    if api.hostname:
        return read(*_call(request, urlsplit(single_urls(amqp_url)[0]), api, timeout_ms))
    return first_that_works(
        amqp_url, lambda url, _: read(*_call(request, *_beside(urlsplit(url), api), timeout_ms)), timeout_ms, "HTTP"
    )  # the answer may be long, so each host is given the whole time


def _beside(amqp: SplitResult, api: SplitResult) -> tuple[SplitResult, SplitResult]:
    """Both URLs, the second at RabbitMQ's default management port; with AMQP's TLS and authority, if it has them."""
    if api.scheme or amqp.scheme != "amqps":
        return amqp, api
    return amqp, api._replace(scheme="https", query=api.query or amqp.query)


def _call(request: _Request, amqp: SplitResult, api: SplitResult, timeout_ms: int) -> tuple[str, int, bytes]:
    """Returns the address, the status (0 if there was no answer in time) and the body."""
    host, port = api.hostname or amqp.hostname or "localhost", api.port or DEFAULT_PORTS[api.scheme or "http"]
    giver = api if api.username else amqp
    user, password = unquote(giver.username or "guest"), unquote(giver.password or "guest")
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {token}", **request.headers}
    path, timeout_s = api.path.rstrip("/") + request.path, timeout_ms / 1000
    try:
        status, body = call_http(
            request.method,
            host,
            port,
            path,
            timeout_s=timeout_s,
            most=MOST_BYTES + 1,
            headers=headers,
            context=_tls(api),
        )
    except NoAnswerError as error:
        status, body = 0, str(error).encode()
    if len(body) > MOST_BYTES:
        raise _unusable(f"{host}:{port}", f"answers with more than {MOST_BYTES:,} bytes")
    return f"{host}:{port}", status, body


def _split(url: str) -> SplitResult:
    with suppress(ValueError):  # the error may quote a part of the password
        url.encode()
        parts = urlsplit(url)
        is_sound = parts.port != 0 and not re.search(r"[\x00-\x20\x7f]", parts.netloc)
        if is_sound and parts.scheme in {"", "http", "https"} and not has_stray_at(url):
            return parts
    raise UsageError(
        "The management URL is not valid: it must begin with http:// or https://, as in http://host:15672, with user:password@ before the host. "
        f"{ENCODED}"
    )


def _tls(api: SplitResult) -> ssl.SSLContext | None:
    if api.scheme != "https":
        return None
    authority = dict(parse_qsl(api.query)).get("cacertfile")
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise UsageError(f"The file cacertfile={authority} of the management URL cannot be used ({reason}).")


def _decode(place: str, status: int, body: bytes) -> Any:
    if status == HTTPStatus.OK:
        with suppress(ValueError):
            return parse_json(body, object)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise AuthenticationRefused(
            f"RabbitMQ's management API at {place} refused the user: it needs the right password and the tag 'management' "
            "(rabbitmqctl set_user_tags USER management)."
        )
    answered = "what is not JSON" if status == HTTPStatus.OK else f"status {status}"
    what = f"answers with {answered}" if status else f"cannot be reached ({body.decode()})"
    raise _unusable(place, what)


def _unusable(place: str, what: str) -> Unreachable:
    return Unreachable(
        f"RabbitMQ's management API at {place} {what}. Listing needs it: run rabbitmq-plugins enable rabbitmq_management, or give "
        "management_url= (on the command line --management-url) with where it listens, and check what else may answer there, such as a proxy."
    )
