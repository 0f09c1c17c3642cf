"""Converts an AMQP URL to pika's connection parameters."""

from urllib.parse import SplitResult, parse_qs, parse_qsl, urlencode

from pika import URLParameters

from cobalance.errors import UsageError
from cobalance.rabbitmq.wire import tls
from cobalance.rabbitmq.wire.address import place, split_url
from cobalance.rabbitmq.wire.pika_log import OurHost

_SETTER = "_set_url_"
"""What the methods of pika that set an option of a URL begin with."""


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
        problem = _invalid_option(parts, [it for it in query if it[0] not in tls.OPTIONS])
    else:
        tls.use_tls(parameters, {name: value for name, value in query if name in tls.OPTIONS}, where)
        return parameters
    raise UsageError(f"The AMQP URL for {where} has {problem}.")


def _invalid_option(parts: SplitResult, query: list[tuple[str, str]]) -> str:
    """Names options that there are: another may be a part of a password that was not percent-encoded."""
    known = sorted(it.removeprefix(_SETTER) for it in dir(URLParameters) if it.startswith(_SETTER))
    for name, value in query:
        if name not in known:
            return f"an unknown option after its '?'; there are {', '.join([*known, *sorted(tls.OPTIONS)])}"
        try:
            URLParameters(parts._replace(query=urlencode([(name, value)])).geturl())
        except Exception:  # noqa: BLE001 -- see above
            return f"an invalid value of its option {name}; e.g. ?heartbeat=10 is valid"
    return "options after its '?' that do not go together"
