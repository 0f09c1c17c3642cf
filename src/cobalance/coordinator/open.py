"""From a URL to what runs the coordinator's scripts."""

from __future__ import annotations

from cobalance.coordinator.transport import Transport, not_a_coordinator_url
from cobalance.errors import UsageError
from cobalance.limits import check_kind

_REDIS = frozenset({"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"})
_CLUSTER = frozenset({"redis+cluster", "rediss+cluster"})


def check_redis_url(what: str, value: object) -> None:
    """Raises UsageError unless the value is a URL of an accepted form, as far as that is seen without reading it."""
    check_kind(what, value, str)
    scheme, separator, _ = str(value).partition("://")
    if not separator or scheme not in {"memory", *_REDIS, *_CLUSTER}:
        raise not_a_coordinator_url()


def check_transport(what: str, value: object) -> None:
    """Raises UsageError unless the value is a :class:`Transport`, or is not given."""
    if value is not None and not all(callable(getattr(value, name, None)) for name in ("call", "listen", "close")):
        kind = type(value).__name__
        raise UsageError(f"{what} is an object of type {kind}: give what open_transport returns, or redis_url instead")


def open_transport(url: str, *, call_timeout_ms: int = 2000) -> Transport:
    """The transport for a URL. Connects at the first call, not here.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``, ``redis+cluster://``, or ``memory://NAME`` (shared by
            everybody in this process who gives NAME).
        call_timeout_ms: how long one call may take.

    Raises:
        UsageError: the URL is not of an accepted form.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory":
        from cobalance.coordinator.memory.transport import MemoryTransport

        return MemoryTransport.named(rest)
    if separator and scheme in _CLUSTER:
        from cobalance.coordinator.redis.cluster import ClusterTransport

        return ClusterTransport(url, call_timeout_ms=call_timeout_ms)
    if separator and scheme in _REDIS:
        return _redis(url, scheme, call_timeout_ms)
    raise not_a_coordinator_url()


def _redis(url: str, scheme: str, call_timeout_ms: int) -> Transport:
    from cobalance.coordinator.redis.address import RedisAddress
    from cobalance.coordinator.redis.sentinel import SentinelSource
    from cobalance.coordinator.redis.transport import RedisTransport

    if scheme.endswith("+sentinel"):
        return RedisTransport(SentinelSource(url), call_timeout_ms=call_timeout_ms, fails_over=True)
    return RedisTransport(RedisAddress.parse(url), call_timeout_ms=call_timeout_ms)
