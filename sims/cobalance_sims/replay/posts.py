"""What a replay and its agents tell each other: a stream in the group's Redis, read by everybody from when they came.

Ids of a stream are times of Redis's clock, as the times of the group's journal are. A post goes a minute after it was
written, and the stream ten minutes after the last. One may be there twice, if its writer did not hear that it was written.

======== ======================================================================================== =====================
by       kind, and what it says                                                                   when
======== ======================================================================================== =====================
agent    ``beat``: ``replay`` (which it obeys), ``at_most`` (processes at once), ``processes``    every second
         (name, slot, pid, state, age in ms)
agent    ``obeys`` or ``refuses``: ``replay``, ``why``                                            after ``begin``
agent    ``done``: ``replay``, ``order``, ``verb``, ``name``, ``pid``                             after ``order``
agent    ``declined``: ``replay``, ``order``, ``why``                                             after ``order``
agent    ``ended``: ``name``, ``pid``, ``code``: a process ended that nobody had asked to         at once
agent    ``restored``: ``replay``: as many processes as at first run, or start                    after ``end``
agent    ``gone``                                                                                 at its end
replay   ``hello``: beats are wanted now                                                          at its beginning
replay   ``begin``, ``go`` (every second), ``end``
replay   ``order``: ``agent``, ``order`` (a number), ``verb``, ``name``, ``slot`` or ``for_ms``
======== ======================================================================================== =====================

An agent's posts have ``ago_ms``: for how long what they tell has been so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.coordinator.keys import DEFAULT_PREFIX, replay_key
from cobalance.coordinator.transport import Script
from cobalance.limits import parse_json

if TYPE_CHECKING:
    from cobalance.coordinator.transport import Transport

BEAT_S = 1.0
"""How often both sides say that they are there."""

SILENT_S = 10.0
"""An agent or a replay that is silent for this long is lost."""

LIVES_MS, KEPT_MS, PAGE = 600_000, 60_000, 500

REMEMBERED = 10_000
"""Ids of the newest posts that were read."""

_POST = Script.of(
    "replay_post",
    """
-- KEYS the stream; ARGV 1 server identity, 2 ms that it lives, 3 ms that a post is kept, 4 the post. Returns the post's id.
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local id = redis.call('XADD', KEYS[1], 'MINID', '~', string.format('%.0f', now - ARGV[3]), '*', 'post', ARGV[4])
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', now + ARGV[2]))
return id
""",
)


@attrs.frozen
class Post:
    """One post."""

    at_ms: int
    """When what it tells happened, on Redis's clock."""
    kind: str
    sender: str
    words: dict[str, Any]

    def text(self, name: str) -> str:
        """What it says under a name; "" if it says no text there."""
        found = self.words.get(name)
        return found if isinstance(found, str) else ""

    def number(self, name: str) -> int:
        """The same for whole numbers, of at least 0; -1 if there is none."""
        found = self.words.get(name)
        return found if type(found) is int and found >= 0 else -1


class Posts:
    """The stream of one group, for one of those who talk. Its first own post is where reading begins.

    Raises:
        ServerError: from any method, Redis did not answer.
    """

    def __init__(self, transport: Transport, group: str, sender: str, *, key_prefix: str = DEFAULT_PREFIX) -> None:
        self.transport, self._key, self.sender = transport, replay_key(group, key_prefix), sender
        self.key_prefix = key_prefix
        self._first = self._read_to = ""
        self._read: dict[str, None] = {}
        self.now_ms = 0
        """The time of its own newest post, on Redis's clock."""

    def write(self, kind: str, **words: Any) -> int:
        """Writes a post; returns its time."""
        text = json.dumps({"kind": kind, "sender": self.sender, **words})
        reply = self.transport.call(_POST, [self._key], [LIVES_MS, KEPT_MS, text])
        id_ = reply.decode() if isinstance(reply, bytes) else str(reply)
        if not self._read_to:
            self._first = self._read_to = id_
        elif _order(id_) <= _order(self._read_to):  # posts were lost, and Redis's clock is behind
            self._read_to = self._first if _order(self._first) < _order(id_) else "0"
        self.now_ms = int(id_.partition("-")[0])
        return self.now_ms

    def read(self) -> list[Post]:
        """Posts of others that came since the last time; what is not of their form is passed over."""
        found: list[Post] = []
        while self._read_to:
            page = self.transport.read_stream(self._key, self._read_to, PAGE)
            for id_, fields in page:
                self._read_to = id_
                if id_ in self._read:
                    continue
                self._remember(id_)
                if (post := _post(id_, fields.get("post", ""))) and post.sender != self.sender:
                    found.append(post)
            if len(page) < PAGE:
                break
        return found

    def _remember(self, id_: str) -> None:
        self._read[id_] = None
        if len(self._read) > REMEMBERED:
            del self._read[next(iter(self._read))]


def _order(id_: str) -> tuple[int, ...]:
    return tuple(map(int, id_.split("-")))


def _post(id_: str, text: str) -> Post | None:
    try:
        words = parse_json(text, dict)
    except ValueError:
        return None
    it = Post(int(id_.partition("-")[0]), "", "", words)
    return Post(it.at_ms - max(it.number("ago_ms"), 0), it.text("kind"), it.text("sender"), words)
