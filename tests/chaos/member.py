"""A member process: ``python -m tests.chaos.member NAME GROUP TOPIC DIARY SETTINGS``.

It waits for a byte on its standard input, consumes until SIGTERM, then leaves the group; it exits at once when its
standard input ends, since then its parent is gone. As for every process, the environment names the servers: in a chaos
run they are the proxies of this very member.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
from tests.chaos.history import Diary, Message, hurry
from tests.chaos.options import COMMIT_EVERY, HANDLER_MS, PREFETCH, SLOW_COMMIT_MS, SLOW_MS, WAYS

from cobalance import ConsumerGroup, Delivery, StreamSettings, Tenure, run
from cobalance.coordinator.redis.address import RedisAddress
from cobalance.errors import CobalanceError, Fenced
from cobalance.member.holdings import Holdings
from cobalance.settings import GroupSettings, MemberSettings

COMMIT_TIMEOUT_S = 2.0
POSITIONS_AN_EPOCH = 10_000_000


class Member:
    """Handles messages, and records what happens to it."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._numbers = itertools.count()
        self._handled: Counter[str] = Counter()
        self.group: ConsumerGroup

    async def handle(self, delivery: Delivery) -> None:
        number = next(self._numbers)
        body = delivery.body.decode()
        message = Message.read(delivery.body)
        offset = delivery.offset
        self._diary.write("begin", number, body, delivery.token, time.monotonic_ns(), "-" if offset is None else offset)
        position = position_of(message) if offset is None else offset
        if message.dawdle is not None:
            await self._dawdle(delivery, position - 1, message.dawdle)
        else:
            await anyio.sleep(random.uniform(*HANDLER_MS) / 1000)
        self._diary.write("end", number, time.monotonic_ns())
        self._handled[delivery.queue] += 1
        if self._handled[delivery.queue] % COMMIT_EVERY == 0:
            await self._commit(delivery, position)

    async def _dawdle(self, delivery: Delivery, so_far: int, number: int) -> None:
        """Keeps working until it is told to hurry. Once its partition is revoked, it stores its progress so far: one
        commit waits while another is in flight, so that at any moment the next thing to be sent is a commit.
        """
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(self._keep_committing, delivery, so_far, number)

    async def _keep_committing(self, delivery: Delivery, so_far: int, number: int) -> None:
        until = time.monotonic() + SLOW_MS / 1000
        while not hurry(self._diary.path.parent, number).exists() and time.monotonic() < until:
            tenure = self.group.tenures.get(delivery.queue)
            if tenure is not None and not tenure.active:
                await self._commit(delivery, so_far)
            await anyio.sleep(SLOW_COMMIT_MS / 1000)

    async def _commit(self, delivery: Delivery, position: int) -> None:
        """Redis may be out of reach, and ownership gone: neither fails the message."""
        with anyio.move_on_after(COMMIT_TIMEOUT_S):
            try:
                await self.group.commit(delivery.queue, position)
            except Fenced:
                self.note("fenced", delivery.queue, delivery.token, position)
            except CobalanceError:
                return
            else:
                self.note("committed", delivery.queue, delivery.token, position)

    def listener(self, kind: str) -> Callable[[Sequence[Tenure]], Awaitable[None]]:
        """Returns a listener that records what happens to tenures."""

        async def note(tenures: Sequence[Tenure]) -> None:
            for tenure in tenures:
                self.note(kind, tenure.resource, tenure.token, 0)

        return note

    def note(self, kind: str, partition: str, token: int, position: int) -> None:
        self._diary.write(kind, partition, token, position, time.monotonic_ns())


def position_of(message: Message) -> int:
    """A position that rises with every message of a partition."""
    return message.epoch * POSITIONS_AN_EPOCH + message.seq


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


def _wait_to_begin() -> None:
    """Waits for a byte; from then on a thread waits for the end of the parent."""
    stdin = sys.stdin.fileno()
    if not os.read(stdin, 1):
        sys.exit("nobody is there any more")

    def outlive_nobody() -> None:
        while os.read(stdin, 1):
            pass
        os._exit(1)

    threading.Thread(target=outlive_nobody, name="whose is it", daemon=True).start()


def main(arguments: list[str]) -> int:
    """Runs the process; returns its exit code."""
    name, group, topic, diary, settings, kind = arguments
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    _take_own_ways()
    member = Member(Diary(Path(diary)))
    member.group = ConsumerGroup(
        group,
        topic,
        member.handle,
        redis_url=os.environ["COBALANCE_REDIS_URL"],
        amqp_url=os.environ["COBALANCE_AMQP_URL"],
        settings=GroupSettings(**json.loads(settings)),
        member=MemberSettings(drain_timeout_ms=10_000),
        prefetch=PREFETCH,
        streams=StreamSettings(start="first") if kind == "stream" else None,
        on_assigned=member.listener("assigned"),
        on_revoked=member.listener("revoked"),
        on_lost=member.listener("lost"),
    )
    _let_clock_be_stopped()
    member.note("ready", "-", 0, 0)
    _wait_to_begin()
    try:
        run(member.group)
    except CobalanceError as error:
        sys.stderr.write(f"error: {name}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
