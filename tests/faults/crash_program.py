"""A member process that tests kill: ``python crash_program.py OPTIONS``, as JSON. It writes a line for each message, and
one when RabbitMQ keeps its last will.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from typing import Any

import anyio

from cobalance import ConsumerGroup, Delivery, StreamSettings
from cobalance.settings import GroupSettings, MemberSettings


def write(*words: object) -> None:
    """In one piece, so that the lines of several processes do not mix."""
    os.write(1, (" ".join(map(str, (os.getpid(), *words))) + "\n").encode())


class Wills(logging.Handler):
    """Tells of the last wills that RabbitMQ keeps."""

    def emit(self, record: logging.LogRecord) -> None:
        kept = re.search(r"keeps the last will of member (\S+)", record.getMessage())
        if kept:
            write("will", kept[1])


async def handle(delivery: Delivery) -> None:
    write("message", delivery.queue, delivery.body.decode(), delivery.token)


async def main(options: dict[str, Any]) -> None:
    settings, member = GroupSettings(**options.pop("settings")), MemberSettings(**options.pop("member"))
    streams = StreamSettings(**options.pop("streams"))
    async with ConsumerGroup(handler=handle, settings=settings, member=member, streams=streams, **options):
        write("joined")
        await anyio.sleep_forever()


if __name__ == "__main__":
    log = logging.getLogger("cobalance.rabbitmq")
    log.setLevel(logging.DEBUG)
    log.addHandler(Wills())
    anyio.run(main, json.loads(sys.argv[1]))
