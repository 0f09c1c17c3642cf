"""Opens the transport for a URL."""

from __future__ import annotations

from cobalance.coordinator.transport import CALL_TIMEOUT_MS, Transport, not_a_coordinator_url
from cobalance.errors import UsageError
from cobalance.limits import check_kind
from cobalance.redact import has_stray_at

DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"
"""The Redis on this machine."""

_REDIS = frozenset({"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"})
_CLUSTER = frozenset({"redis+cluster", "rediss+cluster"})


def check_redis_url(what: str, value: object) -> None:
    """Raises UsageError unless the value looks like a URL of an accepted form."""
    check_kind(what, value, str)
    url = str(value)
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in {"memory", *_REDIS, *_CLUSTER}:
        raise not_a_coordinator_url()
    if url.encode(errors="ignore").decode() != url:
        raise not_a_coordinator_url("one of its characters is not valid")
    if has_stray_at(url):
        raise not_a_coordinator_url('it has an "@" behind its first "/", "?" or "#"')


def check_transport(what: str, value: object) -> None:
    """Raises UsageError unless the value is a :class:`Transport` or None."""
    if value is not None and not all(callable(getattr(value, name, None)) for name in ("call", "listen", "close")):
        kind = type(value).__name__
        raise UsageError(f"{what} is an object of type {kind}: give what open_transport returns, or redis_url instead")


def open_transport(url: str, *, call_timeout_ms: int = CALL_TIMEOUT_MS) -> Transport:
    """Returns the transport for a URL, which connects at the first call.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``, ``redis+cluster://``, or ``memory://NAME``
            (shared by all users of NAME in this process).
        call_timeout_ms: timeout of one call.

    Raises:
        UsageError: the URL is not of an accepted form.
    """
    check_redis_url("url", url)
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        from cobalance.coordinator.memory.transport import MemoryTransport

        return MemoryTransport.named(rest)
    if scheme in _CLUSTER:
        from cobalance.coordinator.redis.cluster import ClusterTransport

        return ClusterTransport(url, call_timeout_ms=call_timeout_ms)
    return _redis(url, scheme, call_timeout_ms)


def _redis(url: str, scheme: str, call_timeout_ms: int) -> Transport:
    from cobalance.coordinator.redis.address import RedisAddress
    from cobalance.coordinator.redis.sentinel import SentinelSource
    from cobalance.coordinator.redis.transport import RedisTransport

    if scheme.endswith("+sentinel"):
        return RedisTransport(SentinelSource(url), call_timeout_ms=call_timeout_ms, fails_over=True)
    return RedisTransport(RedisAddress.parse(url), call_timeout_ms=call_timeout_ms)
