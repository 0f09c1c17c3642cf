"""A consumer process of the demo: ``python -m cobalance.demo.worker GROUP TOPIC LOG SETTINGS``.

It consumes until its standard input ends, then leaves the group gracefully, so it cannot outlive its supervisor.
Servers are named by the environment. When it has joined, it prints its member id.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import anyio

from cobalance.demo.evidence import ProcessedMessage
from cobalance.demo.options import HANDLER_MS, PREFETCH
from cobalance.errors import CobalanceError
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.servers.choose import AMQP_URL, REDIS_URL
from cobalance.settings import GroupSettings
from cobalance.threads.wakeup import Wakeup


class Handler:
    """Takes its time over a message, and records that it was processed."""

    def __init__(self, log: Path) -> None:
        # Unbuffered: a written line survives SIGKILL, and it is written before the message is acknowledged.
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.member = ""

    async def __call__(self, delivery: Delivery) -> None:
        begun_ns = time.monotonic_ns()
        key, _, counter = delivery.body.decode().partition("\t")
        await anyio.sleep(random.uniform(*HANDLER_MS) / 1000)
        record = ProcessedMessage(
            key=key,
            counter=int(counter),
            partition=delivery.queue,
            token=delivery.token,
            member=self.member,
            begun_ns=begun_ns,
            ended_ns=time.monotonic_ns(),
            redelivered=delivery.redelivered,
        )
        os.write(self._log, record.line())


async def consume(group_name: str, topic: str, log: Path, settings: GroupSettings) -> None:
    """Is a member until standard input ends."""
    handler = Handler(log)
    group: ConsumerGroup = ConsumerGroup(
        group_name,
        topic,
        handler,
        redis_url=os.environ[REDIS_URL],
        amqp_url=os.environ[AMQP_URL],
        settings=settings,
        prefetch=PREFETCH,
        on_assigned=lambda _: _note_member(handler, group),
    )
    async with group:
        await group.wait_joined()
        sys.stdout.write(f"{group.member}\n")
        sys.stdout.flush()
        await _end_of_input()


async def _note_member(handler: Handler, group: ConsumerGroup) -> None:
    handler.member = group.member


async def _end_of_input() -> None:
    ended = Wakeup()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        ended.notify()

    threading.Thread(target=wait, name="standard input", daemon=True).start()
    await ended.wait()


def main(arguments: list[str]) -> int:
    """Runs the process and returns its exit code."""
    group, topic, log, settings = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor handles a terminal's Ctrl-C
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        anyio.run(consume, group, topic, Path(log), GroupSettings(**json.loads(settings)))
    except CobalanceError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
