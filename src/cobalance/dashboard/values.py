"""Values of this library as JSON has them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

import attrs

from cobalance.description import ResourceDescription, ServerDescription
from cobalance.redact import redact


def plain(value: Any) -> Any:
    """Dictionaries, lists, texts and numbers. Texts that other programs made are without secrets."""
    if isinstance(value, str | int | float | None):
        return value
    if attrs.has(type(value)):
        found = {name: plain(getattr(value, name)) for name in _fields(cast("Hashable", type(value)))}
        if isinstance(value, ResourceDescription) and value.halted:
            found["halted"] = redact(value.halted)
        if isinstance(value, ServerDescription) and value.problem:
            found["problem"] = redact(value.problem)
        return found
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: plain(it) for key, it in value.items()}
    return [plain(it) for it in value]


def text(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@lru_cache
def _fields(kind: Hashable) -> tuple[str, ...]:
    return tuple(it.name for it in attrs.fields(cast("type", kind)))
