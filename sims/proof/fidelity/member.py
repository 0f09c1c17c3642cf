"""A member process: ``python -m proof.fidelity.member GROUP TOPIC DIARY SETTINGS PREFETCH``.

It prepares, waits for a byte on its standard input, and consumes with the production ConsumerGroup until SIGTERM; then
it leaves. When its standard input ends, its parent is gone, and it exits at once. The environment names the servers.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio

from cobalance import ConsumerGroup, Delivery, Tenure, run
from cobalance.errors import CobalanceError
from cobalance.servers.choose import AMQP_URL, REDIS_URL
from cobalance.settings import GroupSettings, MemberSettings
from cobalance_sims.simulate.world import HUNG_AFTER_SESSIONS
from proof.fidelity.diary import Diary, Kind
from proof.fidelity.load import read

ORPHANED = 3


class MemberProgram:
    """Handles messages, and records what happens."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary
        self.group: ConsumerGroup

    async def handle(self, delivery: Delivery) -> None:
        """Takes as long as the message says."""
        partition, number, handle_ms = read(delivery.body)
        self.diary.write("begin", partition, number)
        await anyio.sleep(handle_ms / 1000)
        self.diary.write("end", partition, number)

    def listener(self, kind: Kind) -> Callable[[Sequence[Tenure]], Awaitable[None]]:
        """Returns a listener that records what happens to tenures."""

        async def note(tenures: Sequence[Tenure]) -> None:
            for tenure in tenures:
                partition = int(tenure.resource.rpartition("-")[2])
                self.diary.write(kind, partition, tenure.token, self.group.member)

        return note


def _end_with_standard_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ORPHANED)


def main(arguments: list[str]) -> int:
    """Runs the process; returns its exit code."""
    group, topic, diary, settings, prefetch = arguments
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    chosen = GroupSettings(**json.loads(settings))
    member = MemberProgram(Diary(Path(diary)))
    member.group = ConsumerGroup(
        group,
        topic,
        member.handle,
        redis_url=os.environ[REDIS_URL],
        amqp_url=os.environ[AMQP_URL],
        settings=chosen,
        member=MemberSettings(
            drain_timeout_ms=chosen.revocation_timeout_ms,
            max_processing_ms=HUNG_AFTER_SESSIONS * chosen.session_timeout_ms,
        ),
        prefetch=int(prefetch),
        on_assigned=member.listener("assigned"),
        on_revoked=member.listener("revoked"),
        on_lost=member.listener("lost"),
    )
    member.diary.write("ready")
    if not os.read(sys.stdin.fileno(), 1):
        return ORPHANED
    threading.Thread(target=_end_with_standard_input, name="standard input", daemon=True).start()
    try:
        run(member.group)
    except CobalanceError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
