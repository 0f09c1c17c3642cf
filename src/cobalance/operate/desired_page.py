"""``/api/v1/groups/{group}/desired-members``: how many members a group should have, for autoscalers.

The status is 200 only while that is known. What it rests on is in the body; so much of it as takes time to be known
begins with the first request, which autoscalers repeat.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from threading import Lock
from urllib.parse import unquote

import attrs

from cobalance.description import GroupDescription
from cobalance.errors import CobalanceError, UnknownGroup
from cobalance.operate.desired import DAY_MS, Scaling, ScalingSettings
from cobalance.operate.http_listener import Answer, FindPage, Page, status_of
from cobalance.operate.lag_page import json_answer
from cobalance.redact import redact

_PATH = re.compile(r"/api/v1/groups/([^/]+)/desired-members")


def desired_pages(
    snapshot: Callable[[str], GroupDescription],
    settings: ScalingSettings | None = None,
    *,
    now_s: Callable[[], float] = time.monotonic,
) -> FindPage:
    """Path → the page of the group in it, for an :class:`HttpListener`.

    Args:
        snapshot: of a group, by its name; such as :meth:`GroupMetrics.snapshot`.
        settings: of all groups.
        now_s: this process's clock. Those of groups differ.
    """
    scalings: dict[str, tuple[float, Scaling]] = {}  # and when each was last asked for, the latest last
    lock = Lock()

    def answer(name: str) -> Answer:
        try:
            group = snapshot(name)
        except CobalanceError as error:
            if isinstance(error, UnknownGroup):
                with lock:
                    scalings.pop(name, None)
            return json_answer(status_of(error), {"error": redact(str(error))})
        with lock:
            _, scaling = scalings.pop(name) if name in scalings else (0, Scaling(settings))
            scalings[name] = now_s(), scaling
            while now_s() - next(iter(scalings.values()))[0] > DAY_MS / 1000:
                del scalings[next(iter(scalings))]
            found = scaling.judge(group)
        body = {"group": name, **attrs.asdict(found), "at_ms": group.at_ms}
        if found.members is not None:
            return json_answer(HTTPStatus.OK, body)
        return json_answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": found.reason, **body})

    def find(path: str) -> Page | None:
        found = _PATH.fullmatch(path)
        return partial(answer, unquote(found[1])) if found else None

    return find
