"""The demo's options, and its fixed figures."""

from __future__ import annotations

from pathlib import Path

import attrs

from cobalance.errors import UsageError
from cobalance.rabbitmq.consume.key_settings import Order
from cobalance.rabbitmq.model.topic import MAX_PARTITIONS, QueueType
from cobalance.settings import GroupSettings, Mode

RATE_A_PARTITION = 80
"""Messages published per second. The handlers are a little slower, so that every handover finds messages waiting: on an
empty queue the gap would only measure the time without messages.
"""

HANDLER_MS = (9.0, 17.0)
"""Duration of a handler, uniformly distributed: an asynchronous wait, like that for a database."""

BACKLOG_A_PARTITION = 50
"""Published at once, so that messages wait from the beginning."""

MESSAGES_A_KEY = 10
"""The average number of messages per key; they must stay in order."""

PREFETCH = 20
"""Small, so that a drain, which finishes what was prefetched, is short but still visible."""

CHANGE_TIMEOUT_S = 40.0
"""A change that has not converged by then never will: session and revocation timeout together are shorter."""

STALL_TIMEOUT_S = 30.0
"""If nothing at all is processed for this long, the missing messages are lost."""


@attrs.frozen(kw_only=True)
class DemoOptions:
    """Options of one run.

    Raises:
        UsageError: a value is out of range.
    """

    mode: Mode = "cooperative"
    messages: int = 20_000
    """The least number of messages: publishing goes on until the churn is over."""
    partitions: int = 12
    queue_type: QueueType = "classic"
    order: Order = "partition"
    """By key, messages of different keys are handled side by side."""
    seed: int = 1
    """Determines the keys, the publishing order, how long handlers take, and which process is killed."""
    keep: bool = False
    """Keep the topic, the group and the workers' logs."""
    json_file: Path | None = None
    dashboard: bool = False
    """Show the story in a browser, until Ctrl-C."""

    def __attrs_post_init__(self) -> None:
        if not 100 <= self.messages <= 10_000_000:
            raise UsageError(f"--messages is {self.messages}: give a number from 100 to 10,000,000.")
        if not 5 <= self.partitions <= MAX_PARTITIONS:
            raise UsageError(f"--partitions is {self.partitions}: give 5, one for each process, to {MAX_PARTITIONS}.")
        if self.json_file is not None and not self.json_file.absolute().parent.is_dir():
            raise UsageError(f"--json {self.json_file}: its folder does not exist.")

    @property
    def settings(self) -> GroupSettings:
        """The group's settings: short timeouts, so that recovery from the crash can be watched."""
        return GroupSettings(
            mode=self.mode,
            session_timeout_ms=3_000,
            heartbeat_interval_ms=600,
            revocation_timeout_ms=10_000,
            gather_ms=100,
        )
