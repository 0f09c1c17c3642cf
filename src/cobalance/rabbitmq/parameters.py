"""From an AMQP URL to pika's connection parameters, and to words that may be shown."""

from contextlib import suppress
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from pika import URLParameters

from cobalance.errors import UsageError

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


def place(url: str) -> str:
    """Host, port and virtual host: what an error message may say of a URL."""
    parts = _split(url)
    host = parts.hostname or "localhost"
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return f"{f'[{host}]' if ':' in host else host}:{port} (virtual host {virtual_host(url)!r})"


def virtual_host(url: str) -> str:
    """The virtual host; "/" when the URL names none."""
    return unquote(_split(url).path[1:]) or "/"


def connection_parameters(url: str, name: str, heartbeat_s: int, timeout_ms: int) -> URLParameters:
    """One attempt within the timeout, and this heartbeat unless the URL's query has its own."""
    parameters = _parse(url)
    if "heartbeat" not in parse_qs(_split(url).query):
        parameters.heartbeat = heartbeat_s
    parameters.connection_attempts = 1
    parameters.socket_timeout = parameters.stack_timeout = timeout_ms / 1000
    parameters.client_properties = {"connection_name": name, "product": "Cobalance"}
    return parameters


# Both functions raise outside of any except block: pika's and the standard library's messages may quote the URL, password and
# all, and a traceback would show them as the context.


def _parse(url: str) -> URLParameters:
    where = place(url)
    try:
        return URLParameters(url)
    except Exception as error:  # noqa: BLE001 -- pika raises whatever its parsing trips over
        kind = type(error).__name__
    raise UsageError(
        f"The AMQP URL for {where} has an invalid option after its '?' ({kind}); e.g. ?heartbeat=10 is valid."
    )


def _split(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in DEFAULT_PORTS and parts.port != 0:
            return parts
    raise UsageError(
        "The AMQP URL is not valid: expected amqp://user:password@host:port/vhost (or amqps://), with every special character of "
        "the user name, the password and the virtual host percent-encoded."
    )
