"""A member process that also commits, and dawdles: ``python -m tests.chaos.member JOB DIARY``; see `cobalance.lab`.

The servers that its environment names are proxies of this very member.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import anyio
from tests.chaos.options import COMMIT_EVERY, SLOW_COMMIT_MS, WAYS

from cobalance.coordinator.redis.address import RedisAddress
from cobalance.errors import CobalanceError, Fenced
from cobalance.lab.diary import Diary
from cobalance.lab.member import LabMember, MemberJob, main, take_time
from cobalance.lab.message import NumberedMessage
from cobalance.member.holdings import Holdings

if TYPE_CHECKING:
    from cobalance import Delivery

COMMIT_TIMEOUT_S = 2.0


class Committing:
    """What a member does with a message, and after it."""

    def __init__(self, job: MemberJob, diary: Diary) -> None:
        self._diary, self._by_key = diary, job.order == "key"
        self._handled: Counter[str] = Counter()
        self.member = LabMember(job, diary, self._work, self._count)

    async def _work(self, delivery: Delivery, message: NumberedMessage) -> None:
        if message.order:
            await self._dawdle(delivery, message)
        else:
            await take_time(delivery, message)

    async def _count(self, delivery: Delivery, message: NumberedMessage) -> None:
        self._handled[delivery.queue] += 1
        if self._handled[delivery.queue] % COMMIT_EVERY == 0:
            await self._commit(delivery, self._position(delivery, message))

    async def _dawdle(self, delivery: Delivery, message: NumberedMessage) -> None:
        """Keeps working until it is told to hurry. Once its partition is revoked, it stores its progress so far: one
        commit waits while another is in flight, so that at any moment the next thing to be sent is a commit.
        """
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(self._keep_committing, delivery, message)

    async def _keep_committing(self, delivery: Delivery, message: NumberedMessage) -> None:
        until = time.monotonic() + message.handle_ms / 1000
        while not (self._diary.path.parent / message.order).exists() and time.monotonic() < until:
            tenure = self.member.group.tenures.get(delivery.queue)
            if tenure is not None and not tenure.active:
                await self._commit(delivery, self._position(delivery, message, begun=True))
            await anyio.sleep(SLOW_COMMIT_MS / 1000)

    def _position(self, delivery: Delivery, message: NumberedMessage, *, begun: bool = False) -> int:
        """Queues have no offsets; numbers rise with every message of a partition, and the clock rises where they do not.

        By key, what is below an offset may be unfinished: the one that the group has committed is stored once more.
        """
        if not self._by_key:
            return (message.number if delivery.offset is None else delivery.offset) - begun
        if delivery.offset is None:
            return time.monotonic_ns() // 1_000_000
        tenure = self.member.group.tenures.get(delivery.queue)
        return -1 if tenure is None or tenure.committed is None else max(-1, tenure.committed)

    async def _commit(self, delivery: Delivery, position: int) -> None:
        """Redis may be out of reach, and ownership gone: neither fails the message."""
        with anyio.move_on_after(COMMIT_TIMEOUT_S):
            try:
                await self.member.group.commit(delivery.queue, position)
            except Fenced:
                self._diary.note("fenced", delivery.queue, delivery.token, position)
            except CobalanceError:
                return
            else:
                self._diary.note("committed", delivery.queue, delivery.token, position)


def _let_clock_be_stopped() -> None:
    """From SIGUSR1 until SIGUSR2, the session does not notice that a deadline of its own has passed."""
    notice = Holdings.check_deadlines

    def stop(*_: object) -> None:
        Holdings.check_deadlines = lambda *_: None  # type: ignore[method-assign]  # a broken clock, on purpose

    def start(*_: object) -> None:
        Holdings.check_deadlines = notice  # type: ignore[method-assign]

    signal.signal(signal.SIGUSR1, stop)
    signal.signal(signal.SIGUSR2, start)


def _take_own_ways() -> None:
    """Sentinels and cluster nodes name servers by the ports they know; this member reaches them through its proxies."""
    ways = {int(known): port for known, port in json.loads(os.environ.get(WAYS, "{}")).items()}
    at = RedisAddress.at

    def reach(address: RedisAddress, host: str, port: int) -> RedisAddress:
        return at(address, host, ways.get(port, port))

    RedisAddress.at = reach  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _take_own_ways()
    _let_clock_be_stopped()
    sys.exit(main(sys.argv[1:], lambda job, diary: Committing(job, diary).member))
