"""What can be chosen about the demo, and the figures that were chosen for you."""

from __future__ import annotations

from pathlib import Path

import attrs

from cobalance.errors import UsageError
from cobalance.rabbitmq.model.topic import MAX_PARTITIONS, QueueType
from cobalance.settings import GroupSettings, Mode

RATE_A_PARTITION = 80
"""Messages published a second. The handlers are slower by a little, so that every handover finds messages waiting: a gap
measured on an empty queue would say how long no message came."""

HANDLER_MS = (9.0, 17.0)
"""What a handler takes, evenly distributed: an asynchronous wait, like that for a database."""

BACKLOG_A_PARTITION = 50
"""Published at once, so that messages wait from the beginning."""

MESSAGES_A_KEY = 10
"""About so many bear the same key, and must stay in order."""

PREFETCH = 20
"""Small, so that a drain, which finishes what was prefetched, is short and yet can be seen."""

CHANGE_TIMEOUT_S = 40.0
"""A change that has not converged by then never will: session and revocation timeout together are shorter."""

STALL_TIMEOUT_S = 30.0
"""When nothing at all is processed for so long, what is missing is lost."""


@attrs.frozen(kw_only=True)
class DemoOptions:
    """What is run.

    Raises:
        UsageError: a figure is out of range.
    """

    mode: Mode = "cooperative"
    messages: int = 20_000
    """At least so many: publishing goes on until the churn is over."""
    partitions: int = 12
    queue_type: QueueType = "classic"
    seed: int = 1
    """Decides the keys and the order of what is published, and which process is killed."""
    keep: bool = False
    """Leave the topic, the group and the workers' logs where they are."""
    json_file: Path | None = None

    def __attrs_post_init__(self) -> None:
        if not 100 <= self.messages <= 10_000_000:
            raise UsageError(f"--messages is {self.messages}: give a number from 100 to 10,000,000.")
        if not 5 <= self.partitions <= MAX_PARTITIONS:
            raise UsageError(f"--partitions is {self.partitions}: give 5, one for each process, to {MAX_PARTITIONS}.")
        if self.json_file is not None and not self.json_file.absolute().parent.is_dir():
            raise UsageError(f"--json {self.json_file}: its folder does not exist.")

    @property
    def settings(self) -> GroupSettings:
        """The group's: short timeouts, so that the crash is healed while you watch."""
        return GroupSettings(
            mode=self.mode,
            session_timeout_ms=3_000,
            heartbeat_interval_ms=600,
            revocation_timeout_ms=10_000,
            gather_ms=100,
        )
