"""A member process: ``python -m cobalance.lab.member JOB DIARY``. The environment names its servers.

It prepares, waits for a byte on its standard input, and consumes until SIGTERM; then it leaves the group. When its
standard input ends, its parent is gone, and it exits at once.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Self

import anyio
import attrs

from cobalance import StreamSettings, Tenure, run
from cobalance.errors import CobalanceError
from cobalance.lab.diary import Diary
from cobalance.lab.message import NumberedMessage
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.consume.key_settings import Order
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.servers.choose import AMQP_URL, REDIS_URL
from cobalance.settings import GroupSettings, MemberSettings

ORPHANED = 3
"""The exit code of a process whose parent is gone."""

Step = Callable[[Delivery, NumberedMessage], Awaitable[None]]


@attrs.frozen(kw_only=True)
class MemberJob:
    """What all members of a group share."""

    group: str
    topic: str
    settings: GroupSettings
    member: MemberSettings = attrs.field(factory=MemberSettings)
    prefetch: int
    order: Order = "partition"
    are_streams: bool = False
    """Its partitions are streams, read from their first message on."""
    crash_detection: bool = True

    def as_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        words: dict[str, Any] = json.loads(text)
        settings, member = GroupSettings(**words.pop("settings")), MemberSettings(**words.pop("member"))
        return cls(settings=settings, member=member, **words)


async def take_time(_: Delivery, message: NumberedMessage) -> None:
    """Waits for as long as the message says."""
    await anyio.sleep(message.handle_ms / 1000)


async def _nothing(_: Delivery, __: NumberedMessage) -> None: ...


class LabMember:
    """A consumer group that keeps a diary.

    Args:
        work: what is done with a message.
        then: what is done after it was finished, before it is acknowledged.
    """

    def __init__(self, job: MemberJob, diary: Diary, work: Step = take_time, then: Step = _nothing) -> None:
        self.diary, self._work, self._then = diary, work, then
        self._numbers = itertools.count()
        self.group: ConsumerGroup = ConsumerGroup(
            job.group,
            job.topic,
            self._handle,
            redis_url=os.environ[REDIS_URL],
            amqp_url=os.environ[AMQP_URL],
            settings=job.settings,
            member=job.member,
            prefetch=job.prefetch,
            order=job.order,
            crash_detection=job.crash_detection,
            streams=StreamSettings(start="first") if job.are_streams else None,
            on_assigned=self._listener("assigned"),
            on_revoked=self._listener("revoked"),
            on_lost=self._listener("lost"),
        )

    def serve(self) -> int:
        """Joins when its parent says so, and leaves on SIGTERM; returns the exit code."""
        self.diary.note("ready")
        if not os.read(sys.stdin.fileno(), 1):
            return ORPHANED
        threading.Thread(target=_end_with_standard_input, name="standard input", daemon=True).start()
        try:
            run(self.group)
        except CobalanceError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
        return 0

    async def _handle(self, delivery: Delivery) -> None:
        number, message = next(self._numbers), NumberedMessage.read(delivery.body)
        self.diary.begin(number, delivery, self.group.member)
        await self._work(delivery, message)
        self.diary.end(number)
        await self._then(delivery, message)

    def _listener(self, kind: str) -> Callable[[Sequence[Tenure]], Awaitable[None]]:
        async def note(tenures: Sequence[Tenure]) -> None:
            for tenure in tenures:
                self.diary.note(kind, tenure.resource, tenure.token, member=self.group.member)

        return note


def _end_with_standard_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ORPHANED)


def main(arguments: list[str], member: Callable[[MemberJob, Diary], LabMember] = LabMember) -> int:
    """Runs the process; returns its exit code."""
    job, diary = arguments
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    return member(MemberJob.read(job), Diary(Path(diary))).serve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
