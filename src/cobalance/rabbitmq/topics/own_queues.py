"""Which queues are a topic's: of those that are named by it and a number, the ones that it was opened with.

Another queue may have such a name by chance, and neither belongs to the topic nor is deleted with it.
"""

from collections.abc import Sequence
from itertools import takewhile

import attrs

from cobalance.rabbitmq.model.topic import MAX_PARTITIONS, Topic
from cobalance.rabbitmq.topics.admin import LOOK_AHEAD, Admin


def own_numbers(admin: Admin, layout: Topic) -> list[int]:
    """The layout's partitions that exist, in order. One that was never opened has those up to the first gap."""
    found = list(admin.partition_numbers(layout.prefix))
    return own_among(found, recorded_size(admin, layout, found))


def own_among(found: list[int], size: int | None) -> list[int]:
    """Those of a layout of this size, of the numbers that exist."""
    return found[: _without_gap(found)] if size is None else [it for it in found if it < size]


def recorded_size(admin: Admin, layout: Topic, found: Sequence[int], *, ahead: int = LOOK_AHEAD) -> int | None:
    """The number of partitions that the layout was opened with; None if it was not. `found` are those that exist; so
    many behind them may be missing.
    """
    likely = _without_gap(found)
    last = found[-1] + 1 if found else 0
    others = (it for it in range(1, min(last + ahead, MAX_PARTITIONS) + 1) if it != likely)
    return next((it for it in (likely, *others) if it and _was_opened_with(admin, layout, it)), None)


def _was_opened_with(admin: Admin, layout: Topic, partitions: int) -> bool:
    return admin.has_exchange(attrs.evolve(layout, partitions=partitions).size_marker)


def _without_gap(found: Sequence[int]) -> int:
    """How many there are before the first gap."""
    return sum(1 for _ in takewhile(lambda it: it[0] == it[1], enumerate(found)))
