"""A group's data in Redis as a skeleton plus numbers, and back.

The skeleton is a text with a slot for every number that is renamed or ages. What no script will ever read again (when a
member joined, since when a resource is held, the journal) becomes a constant or is left out: see the comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.state import KeyState, State
from cobalance.settings import GroupSettings
from cobalance_sims.explore.codec import (
    FREED,
    GROUP_TIME,
    HIGHEST_TOKEN,
    INCARNATION,
    NEWS,
    NUMBER,
    STORE_VERSION,
    TOKEN,
    Kinds,
    Numbers,
)
from cobalance_sims.explore.scope import GROUP_MS

GROUP = "g"
KEYS = group_keys(GROUP)
PREFIX = KEYS[0].rsplit(":", 1)[0] + ":"

_FAR_MS = GROUP_MS + 500_000
"""Tombstones and kept offsets outlive every exploration: their timers stand still."""

_OWNED = re.compile(r"^(\S+ )(k\d|p|r)(\d{16})( \S+)$")
_FEED = re.compile(r"^(\S+ )(\d{16})( \S+)$")
_TIMES = ("recovering", "quiet_until", "calm_at", "barrier", "due")

Word = tuple[str, tuple[tuple[str, int], ...]]
"""A text with a slot (``%d``) for each of the numbers that follow, with their kinds."""


def plain(text: str) -> Word:
    """A word without numbers."""
    return text, ()


def one(kind: str, value: int) -> Word:
    """A word that is a number; 0 and less have meanings of their own and are kept."""
    return plain(str(value)) if value <= 0 else ("%d", ((kind, value),))


def time(value: int) -> Word:
    """A time on the group's clock. What is past is now."""
    if value == 0 or value >= _FAR_MS:
        return plain(str(value))
    return one(GROUP_TIME, max(value, GROUP_MS))


class Canonical:
    """Turns dumps into skeletons. What a group's settings make unreadable depends on them."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._oldest = GROUP_MS - 3 * settings.revocation_timeout_ms

    def encode(self, state: State) -> tuple[str, Numbers, Kinds]:
        """Skeleton, numbers, kinds."""
        keys: list[str] = []
        numbers: list[int] = []
        kinds: list[str] = []
        highest = _highest_token(state)
        for key in state:
            name = key.key.decode()[len(PREFIX) :]
            if name == "journal" or not key.contents:
                continue
            words: list[str] = [name, key.kind]
            for text, found in self._words(name, [part.decode() for part in key.contents], highest):
                words.append(text)
                kinds += [kind for kind, _ in found]
                numbers += [value for _, value in found]
            keys.append("\x1f".join(words))
        return "\x1e".join(keys), tuple(numbers), tuple(kinds)

    def _words(self, name: str, flat: list[str], highest: int) -> Iterator[Word]:
        pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
        if name == "state":
            yield from self._state(dict(pairs), highest)
            return
        if name in ("members", "resources"):
            for field, packed in sorted(pairs):
                yield plain(field)
                yield self._record(name, field, packed)
            return
        rows = [(_entry(self._oldest, name, entry), _score(name, entry, int(score))) for entry, score in pairs]
        for entry, score in sorted(rows):
            yield entry
            yield score

    def _record(self, name: str, field: str, packed: str) -> Word:
        if name == "resources":
            return _resource(self._oldest, packed)
        return plain(packed) if field[0] == "=" else _member(field, packed)

    def _state(self, fields: dict[str, str], highest: int) -> Iterator[Word]:
        self._drop_dead(fields, highest)
        for field, value in sorted(fields.items()):
            if value not in ("0", ""):  # the scripts read a missing field as such
                yield plain(field)
                yield _scalar(field, value)

    def _drop_dead(self, fields: dict[str, str], highest: int) -> None:
        """Of silences and gatherings that are over nothing is read any more."""
        settings = self._settings
        if int(fields.get("token", "0")) >= highest:
            fields["token"] = str(HIGHEST_TOKEN)
        heard = int(fields.get("heard", "0"))
        if heard:
            fields["heard"] = str(max(heard, GROUP_MS - 2 * settings.heartbeat_interval_ms - 1))
        blameless = max(settings.session_timeout_ms, settings.revocation_timeout_ms)
        if "gap_at" in fields and int(fields["gap_at"]) + blameless <= GROUP_MS:
            del fields["gap_at"]
        if int(fields.get("quiet_until", "0")) <= GROUP_MS:
            fields.pop("quiet_until", None)
        if int(fields.get("calm_at", "0")) <= GROUP_MS:
            fields.pop("calm_at", None)
            fields.pop("burst", None)


@cache
def _resource(oldest: int, packed: str) -> Word:
    status, owner, token, since, deadline, rank, removing, avoid, _ended = packed.split(" ")
    words = [plain(status), plain(owner), one(TOKEN, int(token))]
    words.append(_since(oldest, int(since)) if status == "pending" else plain(str(GROUP_MS)))
    words += [time(int(deadline)), plain(rank), plain(removing)]
    member, at, until = avoid.partition("@")
    words += [joined([plain(f"{member}@"), time(int(until))], "") if at else plain(avoid), plain("0")]
    return joined(words)


def _since(oldest: int, value: int) -> Word:
    """Only the order among pending ones matters; none is older than this."""
    return one(GROUP_TIME, max(value, oldest))


@cache
def _entry(oldest: int, name: str, entry: str) -> Word:
    if name == "owned" and (found := _OWNED.match(entry)):
        member, rank, number, rest = found.groups()
        kept = rank[0] == "k"
        value = int(number) if kept else max(int(number), oldest)
        return f"{member}{rank}%016d{rest}", ((TOKEN if kept else GROUP_TIME, value),)
    if name == "feed" and (found := _FEED.match(entry)):
        member, number, rest = found.groups()
        return f"{member}%016d{rest}", ((NEWS + member.strip(), int(number)),)
    return plain(entry)


def joined(words: list[Word], separator: str = " ") -> Word:
    """Several words as one."""
    return separator.join(text for text, _ in words), tuple(number for _, found in words for number in found)


def _highest_token(state: State) -> int:
    packed = next((key.contents[1::2] for key in state if key.key == _RESOURCES), ())
    return max((int(text.split(b" ")[2]) for text in packed), default=1)


_RESOURCES = KEYS[2].encode()

_KINDS = {
    "version": STORE_VERSION,
    "incarnation": INCARNATION,
    "heard": GROUP_TIME,
    "gap_at": GROUP_TIME,
}


@cache
def _scalar(field: str, value: str) -> Word:
    kind = NEWS + field[2:] if field.startswith("c:") else _KINDS.get(field)
    if kind is not None:
        return one(kind, int(value))
    if field in _TIMES:
        return time(int(value))
    if field.startswith("r:"):
        request, ends = value.split(" ")
        return joined([one(NUMBER + field[2:], int(request)), time(int(ends))])
    if field == "pulse" and value:
        server, incarnation, rest = value.split(" ", 2)
        return joined([plain(server), one(INCARNATION, int(incarnation)), plain(rest)])
    return plain(value)


@cache
def _member(name: str, packed: str) -> Word:
    status, capacity, instance, _joined, incarnation, request, reason, label = packed.split(" ")
    return joined(
        [
            *(plain(status), plain(capacity), plain(instance), plain(str(GROUP_MS))),
            *(one(INCARNATION, int(incarnation)), one(NUMBER + name, int(request)), plain(reason), plain(label)),
        ]
    )


def _score(name: str, entry: str, score: int) -> Word:
    if name == "free":
        return one(FREED, score)
    if name == "deadlines":
        return time(score)
    if name == "timers":
        return plain(str(GROUP_MS + 600_000)) if entry[:2] in {"t:", "o:"} else time(score)
    return plain(str(score))


def decode(skeleton: str, numbers: Numbers) -> State:
    """The data again, as a store or a Redis can load it."""
    if not skeleton:
        return ()
    keys = []
    for key in (skeleton % numbers).split("\x1e"):
        name, kind, *words = key.split("\x1f")
        keys.append(KeyState((PREFIX + name).encode(), kind, None, tuple(word.encode() for word in words)))
    return tuple(keys)


def without_heard(state: State, member: str, cursor: int) -> State:
    """Without what a repeat of the member's last request would be answered, and without the news it has heard. No request of
    its own may be on its way: nobody will ask for them again, and the next call that looks at its news would remove them.
    """
    return tuple(_WITHOUT.get(key.key, _all)(key, member, cursor) for key in state)


def _all(key: KeyState, _member: str, _cursor: int) -> KeyState:
    return key


def _without_fields(key: KeyState, member: str, cursor: int) -> KeyState:
    answer, news = f"a:{member}".encode(), f"c:{member}".encode()
    pairs = zip(key.contents[::2], key.contents[1::2], strict=True)
    kept = [pair for pair in pairs if pair[0] != answer and (pair[0] != news or int(pair[1]) > cursor)]
    return KeyState(key.key, key.kind, None, tuple(word for pair in kept for word in pair))


def _without_news(key: KeyState, member: str, cursor: int) -> KeyState:
    mine = f"{member} ".encode()
    entries = [it for it in key.contents[::2] if not it.startswith(mine) or int(it.split(b" ")[1]) > cursor]
    return KeyState(key.key, key.kind, None, tuple(word for it in entries for word in (it, b"0")))


_WITHOUT = {KEYS[0].encode(): _without_fields, KEYS[5].encode(): _without_news}
