"""Detects another group working the same queues, which would split their messages between the two groups.

On entering its group, a member writes the group's name to each of its queues in a hash that all groups of one Redis
share, and reads the name that was there before. It repeats that now and then for the queues it holds, so that the group
that was first notices, too, and queues found later are covered. There is a hash for each week, which goes two weeks
after it was last written to: queues and groups come and go, and nobody says so. Another group counts as active while it has a live
member and the queue is among its resources; the remains of a group without members do not. A group in another Redis,
under another key prefix or of an older version is not detected.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

import anyio

from cobalance.coordinator.advice import command
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import queues_key
from cobalance.coordinator.transport import Script
from cobalance.errors import CobalanceError, UnknownGroup
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

log = logging.getLogger("cobalance.rabbitmq")

A_CALL = 200

LOOK_EVERY = 6
"""How much rarer than looking for queues."""

PERIOD_S = 7 * 86_400
"""What a hash is for; longer than the longest pause between looks, six days. The one before is read as well."""

MOST_NAMED = 3

_SIGN = Script.of(
    "sign_queues",
    """
-- KEYS broker and queue → group: 1 this period's, 2 the one's before; ARGV 1 server identity, 2 ms that it lives, 3 group,
-- 4… broker and queue. Returns who was there.
local unpack, signed = table.unpack or unpack, {}
local before = redis.call('HMGET', KEYS[1], unpack(ARGV, 4))
local earlier = redis.call('HMGET', KEYS[2], unpack(ARGV, 4))
for i = 4, #ARGV do
  before[i - 3] = before[i - 3] or earlier[i - 3]
  signed[#signed + 1] = ARGV[i]
  signed[#signed + 1] = ARGV[3]
end
redis.call('HSET', KEYS[1], unpack(signed))
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', redis.call('TIME')[1] * 1000 + ARGV[2]))
return before
""",
)


class OtherGroups:
    """Warns of each such group once. `broker` tells apart several RabbitMQs that use one Redis."""

    def __init__(self, ours: Coordinator, broker: str) -> None:
        self._ours, self._broker = ours, broker
        self._warned_of: set[str] = set()

    def warn(self, queues: Sequence[str]) -> None:
        """Warns of groups that work any of these queues. Silent if Redis does not let us look. Blocks."""
        with suppress(CobalanceError):
            for other, names in find_others(self._ours, self._broker, queues, self._warned_of).items():
                log.warning("group %s: %s", self._ours.group, _in_words(self._ours.group, other, names))
                self._warned_of.add(other)

    async def watch(self, held: Callable[[], Sequence[str]], pause_ms: int) -> None:
        """Checks the held queues at intervals, until cancelled."""
        while True:
            await anyio.sleep(pause_ms / 1000)
            queues = held()
            if queues:
                await in_thread(partial(self.warn, queues))


def find_others(
    ours: Coordinator, broker: str, queues: Sequence[str], besides: Collection[str] = ()
) -> dict[str, list[str]]:
    """Other group → the queues that it also works."""
    found: dict[str, list[str]] = {}
    for queue, other in _sign(ours, broker, queues):
        if other not in {None, ours.group, *besides}:
            found.setdefault(str(other), []).append(queue)
    at_work = {
        other: _worked_by(Coordinator(ours.transport, other, key_prefix=ours.key_prefix), names)
        for other, names in found.items()
    }
    return {other: names for other, names in at_work.items() if names}


def _sign(ours: Coordinator, broker: str, queues: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    period = int(time.time() // PERIOD_S)
    keys = [queues_key(ours.key_prefix, it) for it in (period, period - 1)]
    for start in range(0, len(queues), A_CALL):
        page = queues[start : start + A_CALL]
        words: list[str | int | bytes] = [2 * PERIOD_S * 1000, ours.group, *(f"{broker} {name}" for name in page)]
        before = ours.transport.call(_SIGN, keys, words)
        for name, other in zip(page, cast("list[bytes | None]", before), strict=True):
            yield name, None if other is None else bytes(other).decode()


def _worked_by(other: Coordinator, queues: Sequence[str]) -> list[str]:
    with suppress(UnknownGroup):
        now_ms = int(other.state()["heard"])
        if any(it.is_live(now_ms) for it in other.members()):
            return sorted(set(queues) & {row.name for row in other.resources() if not row.removing})
    return []


def _in_words(group: str, other: str, queues: Sequence[str]) -> str:
    more = f" and {len(queues) - MOST_NAMED} more" if len(queues) > MOST_NAMED else ""
    create = command("topic create", "TOPIC", key_prefix=None, partitions="N", group=group)
    return (
        f"group {other} works {', '.join(queues[:MOST_NAMED])}{more}, too, and has members now: each message goes to one of the two groups, "
        f"and a guarded queue to whoever was first. For all messages in both, give one of them queues of its own: "
        f'create_topic(url, topic, group="{group}") or `{create}`, and consume '
        f'topic.for_group("{group}"). If {other} is this group\'s former name, stop its processes'
    )
