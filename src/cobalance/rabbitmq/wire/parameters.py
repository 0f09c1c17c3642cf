"""Converts an AMQP URL to pika's connection parameters."""

from urllib.parse import SplitResult, parse_qs, parse_qsl, urlencode

from pika import URLParameters

from cobalance.errors import UsageError
from cobalance.rabbitmq.wire import tls
from cobalance.rabbitmq.wire.address import place, split_url
from cobalance.rabbitmq.wire.pika_log import OurHost


def connection_parameters(url: str, name: str, heartbeat_s: int, timeout_ms: int) -> URLParameters:
    """Parameters for one attempt at one host, with this timeout, and this heartbeat unless the URL's query sets one."""
    parameters = _parse(url)
    if "heartbeat" not in parse_qs(split_url(url).query):
        parameters.heartbeat = heartbeat_s
    parameters.host = OurHost(parameters.host)
    parameters.connection_attempts = 1
    parameters.socket_timeout = parameters.stack_timeout = timeout_ms / 1000
    parameters.client_properties = {"connection_name": name, "product": "Cobalance"}
    return parameters


# The functions below raise outside any except block: the messages of pika and the standard library may quote the URL,
# including its password, and a traceback would show them as the context.


def _parse(url: str) -> URLParameters:
    where, parts = place(url), split_url(url)
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
