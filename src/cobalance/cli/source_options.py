"""What ``cobalance consume`` consumes: a topic, or existing queues."""

from __future__ import annotations

from typing import Annotated

import attrs
from cyclopts import Parameter

from cobalance.cli.options import ManagementUrl
from cobalance.errors import UsageError
from cobalance.names import validate_name
from cobalance.rabbitmq import BoundQueues, MatchingQueues, Queue

Source = str | BoundQueues | MatchingQueues | list[str | Queue]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SourceOptions:
    """Instead of a topic."""

    queue: Annotated[tuple[str, ...], Parameter(negative="", help="An existing queue; repeatable.")] = ()
    bound_to: Annotated[
        str | None, Parameter(help="The queues bound to this exchange, updated continuously. Asks the management API.")
    ] = None
    matching: Annotated[
        str | None,
        Parameter(help="The queues whose whole name matches this regular expression. Asks the management API."),
    ] = None
    management_url: ManagementUrl = None

    def source(self, topic: str | None) -> Source:
        """The given source.

        Raises:
            UsageError: there is not exactly one.
        """
        if sum(map(bool, (topic, self.queue, self.bound_to, self.matching))) != 1:
            raise UsageError("Give one of: a topic, --queue (any number of times), --bound-to, --matching.")
        if self.bound_to:
            return BoundQueues(self.bound_to)
        if self.matching:
            return MatchingQueues(self.matching)
        return validate_name("topic", topic) if topic else list(self.queue)
