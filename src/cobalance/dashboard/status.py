"""What ``cobalance doctor`` finds, for however many browsers look at it: servers, versions, permissions, groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.redact import redact

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin
    from cobalance.operate.doctor import Finding

FRESH_S = 60.0
"""An examination reads the journals of all groups, and asks RabbitMQ for declarations."""

_ORDER = {"error": 0, "warning": 1, "unknown": 2, "ok": 3}


class Status:
    """Any number of threads may ask."""

    def __init__(self, admin: GroupAdmin, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._clock = admin, clock
        self._lock = Lock()
        self._found: list[dict[str, Any]] = []
        self._at_ms, self._fresh_until = 0, 0.0

    def look(self) -> dict[str, Any]:
        """The findings, those first that need attention; at most a minute old."""
        with self._lock:
            if self._clock() >= self._fresh_until:
                self._found = [_plain(it) for it in self._admin.examine()]
                self._found.sort(key=lambda it: _ORDER[it["level"]])
                self._at_ms, self._fresh_until = time.time_ns() // 1_000_000, self._clock() + FRESH_S
            left_s = self._fresh_until - self._clock()
            return {
                "at_ms": self._at_ms,
                "next_in_ms": round(1000 * left_s),
                "findings": self._found,
                "versions": VERSIONS,
            }


def _plain(finding: Finding) -> dict[str, Any]:
    return {key: redact(it) if isinstance(it, str) else it for key, it in attrs.asdict(finding).items()}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


VERSIONS = {
    "cobalance": _version("cobalance"),
    "redis (client)": _version("redis"),
    "pika": _version("pika"),
    "Python": python_version(),
}
"""Of the dashboard's own process."""
