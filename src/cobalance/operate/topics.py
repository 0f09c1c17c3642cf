"""A group's remaining work by topic. A sum of which a part is unknown is unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs

from cobalance.description import GroupDescription, GroupState, ResourceDescription, Verdict
from cobalance.names import split_resource
from cobalance.operate.verdict import worst


@attrs.frozen(kw_only=True)
class TopicDescription:
    """What one group has left to do of one topic. None means unknown."""

    group: str
    topic: str | None
    """None: the resources that are no partitions."""
    partitions: int
    lag: int | None
    max_lag: int | None
    """Of the partition with the most."""
    in_flight: int | None
    oldest_ms: int | None
    """Age of the oldest message in flight; None as well if there is none."""
    state: GroupState
    """Of the group."""
    verdict: Verdict | None
    """The worst of any partition."""


def topics_of(group: GroupDescription) -> Iterator[TopicDescription]:
    """Each topic of a group, in the order in which its resources come."""
    found: defaultdict[str | None, list[ResourceDescription]] = defaultdict(list)
    for resource in group.resources:
        found[split_resource(resource.name)[0]].append(resource)
    for topic, resources in found.items():
        yield _described(group, topic, resources)


def _described(
    group: GroupDescription, topic: str | None, resources: Sequence[ResourceDescription]
) -> TopicDescription:
    backlogs = [it.backlog for it in resources]
    lags, sent = _known([it.lag for it in backlogs]), _known([it.in_flight for it in backlogs])
    return TopicDescription(
        group=group.name,
        topic=topic,
        partitions=len(resources),
        lag=None if lags is None else sum(lags),
        max_lag=None if lags is None else max(lags),
        in_flight=None if sent is None else sum(sent),
        oldest_ms=max((it.oldest_ms for it in backlogs if it.oldest_ms is not None), default=None),
        state=group.state,
        verdict=worst(it.verdict for it in resources),
    )


def _known(values: Sequence[int | None]) -> list[int] | None:
    """All of them, or None if one is unknown."""
    found = [it for it in values if it is not None]
    return found if len(found) == len(values) else None
