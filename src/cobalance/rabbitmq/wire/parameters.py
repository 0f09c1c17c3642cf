"""Converts an AMQP URL to pika's connection parameters, and to a description that is safe to show.

A URL may name several hosts of one cluster: ``amqp://user:password@one,two:5673/vhost``, or whole URLs separated by
``;`` or ``,``.
"""

import re
from contextlib import suppress
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlencode, urlsplit

from pika import URLParameters

from cobalance.errors import UsageError
from cobalance.rabbitmq.memory import MemoryRabbitMQ
from cobalance.rabbitmq.wire import tls
from cobalance.rabbitmq.wire.pika_log import OurHost

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}

MEMORY = "memory://"

_BETWEEN_URLS = re.compile(r"\s*[;,]\s*(?=amqps?://)")


def is_memory(url: str) -> bool:
    """Whether the URL is ``memory://NAME``: a small RabbitMQ in this process; see :mod:`cobalance.rabbitmq.memory`."""
    return url.startswith(MEMORY) and len(url) > len(MEMORY)


def single_urls(url: str) -> tuple[str, ...]:
    """Splits a URL into one URL per host, in order."""
    if is_memory(url):
        return (MemoryRabbitMQ.named(url.removeprefix(MEMORY)).url,)
    return tuple(single for part in _BETWEEN_URLS.split(url) for single in _hosts_apart(part))


def place(url: str) -> str:
    """Host, port and virtual host: the parts of a URL that may appear in an error message."""
    if is_memory(url):
        return url
    hosts = ", ".join(dict.fromkeys(_host_and_port(_split(single)) for single in single_urls(url)))
    return f"{hosts} (virtual host {virtual_host(url)!r})"


def virtual_host(url: str) -> str:
    """The virtual host; "/" if the URL names none. All hosts must have the same one."""
    if is_memory(url):
        return "/"
    names = {unquote(_split(single).path[1:]) or "/" for single in single_urls(url)}
    if len(names) > 1:
        raise UsageError(
            f"The AMQP URLs name different virtual hosts ({', '.join(map(repr, sorted(names)))}): give the hosts of one cluster."
        )
    return names.pop()


def user_name(url: str) -> str:
    """The user name that the URL connects with."""
    return unquote(_split(single_urls(url)[0]).username or "guest")


def connection_parameters(url: str, name: str, heartbeat_s: int, timeout_ms: int) -> URLParameters:
    """Parameters for one attempt at one host, with this timeout, and this heartbeat unless the URL's query sets one."""
    parameters = _parse(url)
    if "heartbeat" not in parse_qs(_split(url).query):
        parameters.heartbeat = heartbeat_s
    parameters.host = OurHost(parameters.host)
    parameters.connection_attempts = 1
    parameters.socket_timeout = parameters.stack_timeout = timeout_ms / 1000
    parameters.client_properties = {"connection_name": name, "product": "Cobalance"}
    return parameters


# The functions below raise outside any except block: the messages of pika and the standard library may quote the URL,
# including its password, and a traceback would show them as the context.


def _parse(url: str) -> URLParameters:
    where, parts = place(url), _split(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    others = urlencode([(name, value) for name, value in query if name not in tls.OPTIONS])
    try:
        parameters = URLParameters(parts._replace(query=others).geturl())
    except Exception:  # noqa: BLE001 -- pika raises whatever its parsing trips over
        name = _invalid_option(parts, [it for it in query if it[0] not in tls.OPTIONS])
    else:
        tls.use_tls(parameters, {name: value for name, value in query if name in tls.OPTIONS}, where)
        return parameters
    raise UsageError(
        f"The AMQP URL for {where} has an invalid option{name} after its '?', or an invalid value of it; e.g. ?heartbeat=10 is valid."
    )


def _invalid_option(parts: SplitResult, query: list[tuple[str, str]]) -> str:
    """The option's name, unless it may be part of a password that was not percent-encoded."""
    for name, value in query if "@" not in parts.query else ():
        try:
            URLParameters(parts._replace(query=urlencode([(name, value)])).geturl())
        except Exception:  # noqa: BLE001 -- see above
            return f" {name!r}"
    return ""


def _split(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in DEFAULT_PORTS and parts.port != 0:
            return parts
    raise UsageError(
        "The AMQP URL is not valid: expected amqp://host:port/vhost (or amqps://), with user:password@ before the host unless that is guest, or memory://NAME "
        "within one process, with every special character of the user name, the password and the virtual host percent-encoded. Several hosts are separated by commas."
    )


def _hosts_apart(url: str) -> list[str]:
    """Splits at commas, but not those in the user name or the password."""
    scheme, separator, rest = url.partition("://")
    end = next((at for at, character in enumerate(rest) if character in "/?#"), len(rest))
    login, at, hosts = rest[:end].rpartition("@")
    return [f"{scheme}{separator}{login}{at}{host.strip()}{rest[end:]}" for host in hosts.split(",")]


def _host_and_port(parts: SplitResult) -> str:
    host = parts.hostname or "localhost"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or DEFAULT_PORTS[parts.scheme]}"
