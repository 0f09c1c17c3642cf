"""``/api/v1/groups/{group}/lag``: what a group has left to do, as one number, for autoscalers such as KEDA.

The status is 200 only while that number is known. An autoscaler that reads 0 where nothing is known stops processes that
are needed; one that reads 503 leaves their number as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from cobalance.description import GroupDescription
from cobalance.errors import CobalanceError
from cobalance.operate.http_listener import Answer, FindPage, Page, status_of
from cobalance.operate.wording import of_group
from cobalance.redact import redact

_PATH = re.compile(r"/api/v1/groups/([^/]+)/lag")

_NAMED = 5
"""So many partitions of unknown lag are named."""


def lag_pages(snapshot: Callable[[str], GroupDescription]) -> FindPage:
    """Path → the page of the group in it, for an :class:`HttpListener`.

    Args:
        snapshot: of a group, by its name; such as :meth:`GroupMetrics.snapshot`.
    """

    def find(path: str) -> Page | None:
        found = _PATH.fullmatch(path)
        return partial(_answer, snapshot, unquote(found[1])) if found else None

    return find


def _answer(snapshot: Callable[[str], GroupDescription], name: str) -> Answer:
    try:
        group = snapshot(name)
    except CobalanceError as error:
        return json_answer(status_of(error), {"error": redact(str(error))})
    unknown = [it.name for it in group.resources if it.backlog.lag is None]
    reason = _reason(group, unknown)
    body = {
        "group": group.name,
        "lag": sum(it.backlog.lag or 0 for it in group.resources) if reason is None else None,
        "partitions": len(group.resources),
        "unknown_lag_partitions": len(unknown),
        "oldest_ms": max((it.backlog.oldest_ms for it in group.resources if it.backlog.oldest_ms), default=None),
        "at_ms": group.at_ms,
    }
    if reason is None:
        return json_answer(HTTPStatus.OK, body)
    return json_answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": redact(reason), **body})


def _reason(group: GroupDescription, unknown: Sequence[str]) -> str | None:
    """Why the lag is unknown; None if it is known."""
    if group.state == "Recovering":
        return (
            f"Group {group.name} is new, or recovers from a loss of data: which partitions it has is not certain yet."
        )
    if not group.resources:
        return f"Group {group.name} has no partitions yet: its first member names them."
    if not unknown:
        return None
    problem = next((it.problem for it in group.servers if it.problem), None)
    names = ", ".join(unknown[:_NAMED]) + (", …" if len(unknown) > _NAMED else "")
    return problem or f"The lag of {names} is unknown: `{of_group(group, 'lag')}` says why."


def json_answer(status: int, body: dict[str, Any]) -> Answer:
    """A page of JSON."""
    return Answer(status, json.dumps(body, ensure_ascii=False).encode() + b"\n")
