"""Reads AMQP URLs, and names the place that one leads to in words that are safe to show.

A URL may name several hosts of one cluster: ``amqp://user:password@one,two:5673/vhost``, or whole URLs separated by
``;`` or ``,``.
"""

import re
from contextlib import suppress
from urllib.parse import SplitResult, unquote, urlsplit

from cobalance.errors import UsageError
from cobalance.lazy import importing
from cobalance.limits import check_kind
from cobalance.redact import has_stray_at

DEFAULT_AMQP_URL = "amqp://guest:guest@127.0.0.1:5672/%2F"
"""The RabbitMQ on this machine, as guest."""

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}

MEMORY = "memory://"

ENCODED = (
    "In the user name, the password and what follows the host, write special characters such as @ / : ? # & % as "
    "%40 %2F %3A %3F %23 %26 %25."
)
"""Ends the error for a URL that cannot be read. Such an error quotes nothing of the URL."""

_BETWEEN_URLS = re.compile(r"(?<!\s)\s*[;,]\s*(?=amqps?://)")


def is_memory(url: str) -> bool:
    """Whether the URL is ``memory://NAME``: a small RabbitMQ in this process; see :mod:`cobalance.rabbitmq.memory`."""
    return url.startswith(MEMORY) and len(url) > len(MEMORY)


def single_urls(url: str) -> tuple[str, ...]:
    """Splits a URL into one URL per host, in order."""
    if is_memory(url):
        with importing:
            from cobalance.rabbitmq.memory import MemoryRabbitMQ

        return (MemoryRabbitMQ.named(url.removeprefix(MEMORY)).url,)
    return tuple(single for part in _BETWEEN_URLS.split(url) for single in _hosts_apart(part))


def place(url: str) -> str:
    """Host, port and virtual host: the parts of a URL that may appear in an error message."""
    if is_memory(url):
        return url
    hosts = ", ".join(dict.fromkeys(_host_and_port(split_url(single)) for single in single_urls(url)))
    return f"{hosts} (virtual host {virtual_host(url)!r})"


def virtual_host(url: str) -> str:
    """The virtual host; "/" if the URL names none. All hosts must have the same one."""
    if is_memory(url):
        return "/"
    names = {unquote(split_url(single).path[1:]) or "/" for single in single_urls(url)}
    if len(names) > 1:
        raise UsageError(
            f"The AMQP URLs name different virtual hosts ({', '.join(map(repr, sorted(names)))}): give the hosts of one cluster."
        )
    return names.pop()


def user_name(url: str) -> str:
    """The user name that the URL connects with."""
    return unquote(split_url(single_urls(url)[0]).username or "guest")


def check_amqp_url(name: str, value: object) -> None:
    """Raises UsageError unless the value is the URL of one cluster."""
    check_kind(name, value, str)
    place(str(value))


def check_management_url(name: str, value: object) -> None:
    """Raises UsageError unless the value is the URL of a web server, or None."""
    check_kind(name, value, str, optional=True)
    if value is not None and (not str(value).startswith(("http://", "https://")) or has_stray_at(str(value))):
        raise UsageError(
            f"{name} is no URL of a web server: give http://host:15672, with user:password@ before the host, or None; {ENCODED}"
        )


def split_url(url: str) -> SplitResult:
    """The parts of the URL of one host."""
    with suppress(ValueError):
        url.encode()
        parts = urlsplit(url)
        if parts.scheme in DEFAULT_PORTS and parts.port != 0 and not has_stray_at(url):
            return parts
    # Outside any except block, since the context would quote the URL, including its password.
    raise UsageError(
        "The AMQP URL is not valid: expected amqp://host:port/vhost (or amqps://), with user:password@ before the host unless that is guest, or memory://NAME "
        f"within one process; several hosts are separated by commas. {ENCODED}"
    )


def host_of(url: str) -> str:
    """The host's name or address; "" if the URL names several, or a broker in memory, which it would start."""
    if is_memory(url):
        return ""
    urls = single_urls(url)
    return (split_url(urls[0]).hostname or "localhost") if len(urls) == 1 else ""


def _hosts_apart(url: str) -> list[str]:
    """Splits at commas, but not those in the user name or the password."""
    scheme, separator, rest = url.partition("://")
    end = next((at for at, character in enumerate(rest) if character in "/?#"), len(rest))
    login, at, hosts = rest[:end].rpartition("@")
    return [f"{scheme}{separator}{login}{at}{host.strip()}{rest[end:]}" for host in hosts.split(",")]


def _host_and_port(parts: SplitResult) -> str:
    host = parts.hostname or "localhost"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or DEFAULT_PORTS[parts.scheme]}"
