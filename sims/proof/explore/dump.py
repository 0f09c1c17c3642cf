"""A group's data in Redis as a skeleton plus numbers, and back.

The skeleton is a text with a slot for every number that is renamed or ages. What no script will ever read again (when a
member joined, since when a resource is held, the journal) becomes a constant or is left out: see the comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from sys import intern

import attrs

from cobalance.coordinator.dump import KeyState, State
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.requests import TOKEN_SUMS
from cobalance.settings import GroupSettings
from proof.explore.codec import (
    FREED,
    GROUP_TIME,
    HIGHEST_TOKEN,
    INCARNATION,
    NEWS,
    NUMBER,
    STORE_VERSION,
    TOKEN,
    VERSION,
    Kinds,
    Numbers,
)
from proof.explore.scope import GROUP_MS

GROUP = "g"
KEYS = group_keys(GROUP)
PREFIX = KEYS[0].rsplit(":", 1)[0] + ":"

_JOURNAL, _STATE, _RESOURCES, _DEADLINES, _FREE = (
    (PREFIX + name).encode() for name in ("journal", "state", "resources", "deadlines", "free")
)

STUCK = 2**52
"""Entries of ``free`` from this score on are resources that nobody could work in some round. The current round is here;
the scripts number rounds from 0.
"""

_FAR_MS = GROUP_MS + 500_000
"""Tombstones and kept offsets outlive every exploration: their timers stand still."""

_OWNED = re.compile(r"^(\S+ )(k\d|p|r)(\d{16})( \S+)$")
_FEED = re.compile(r"^(\S+ )(\d{16})( \S+)$")
_TIMES = ("recovering", "quiet_until", "calm_at", "barrier", "due", "walk_until")

_SUM = "sum"
"""Precedes the terms of a sum, which is computed when the data is written back."""

Word = tuple[str, tuple[tuple[str, int], ...]]
"""A text with a slot (``%d``) for each of the numbers that follow, with their kinds."""


def plain(text: str) -> Word:
    """A word without numbers."""
    return text, ()


def one(kind: str, value: int) -> Word:
    """A word that is a number; 0 and negative numbers have meanings of their own and are kept."""
    return plain(str(value)) if value <= 0 else ("%d", ((kind, value),))


def time(value: int) -> Word:
    """A time on the group's clock. Past times become now."""
    if value == 0 or value >= _FAR_MS:
        return plain(str(value))
    return one(GROUP_TIME, max(value, GROUP_MS))


@attrs.frozen
class Around:
    """The context of a group's scalars: it decides which of them can still matter."""

    highest_token: int
    first_deadline: int
    held: tuple[tuple[str, int], ...]
    """Owner and token of the owned resources."""

    @classmethod
    def of(cls, state: State) -> Around:
        parts = {key.key: key.contents for key in state}
        records = [packed.decode().split(" ") for packed in parts.get(_RESOURCES, ())[1::2]]
        deadlines = [int(at) for at in parts.get(_DEADLINES, ())[1::2]]
        held = sorted((owner, int(token)) for _, owner, token, *_ in records if owner != "-")
        highest = max((int(record[2]) for record in records), default=1)
        return cls(highest, min(deadlines, default=_FAR_MS), tuple(held))

    def sum(self, member: str, written: str) -> Word:
        """The sum of a member's tokens as its terms, which are renamed; kept as written where the sum differs."""
        tokens = [token for owner, token in self.held if owner == member]
        if _summed(tokens) != written:
            return plain(written)
        return _SUM + "+%d" * len(tokens), tuple((TOKEN, token) for token in tokens)


def _summed(tokens: Iterable[int]) -> str:
    return str(sum(tokens) % TOKEN_SUMS)


Skeleton = tuple[str, ...]
"""One text for each key."""

Encoded = tuple[Skeleton, Numbers, Kinds]


class Canonical:
    """Turns dumps into skeletons. What can be dropped depends on the group's settings.

    Most keys are the same in many dumps, so each is encoded once.
    """

    def __init__(self, settings: GroupSettings, *, has_lists: bool = False) -> None:
        self._settings, self._has_lists = settings, has_lists
        self._oldest = GROUP_MS - 3 * settings.revocation_timeout_ms
        self._encoded: dict[tuple[KeyState, Around | None], tuple[str, Numbers, Kinds]] = {}

    def encode(self, state: State) -> Encoded:
        """Returns skeleton, numbers and kinds."""
        texts: list[str] = []
        numbers: list[int] = []
        kinds: list[str] = []
        around = Around.of(state)
        for key in _unwound(state):
            if not key.contents:
                continue
            if key.key == _JOURNAL:
                for text, pairs in _torn_lines(key, state):
                    texts.append(text)
                    numbers += [value for _, value in pairs]
                    kinds += [kind for kind, _ in pairs]
                continue
            text, found, of_kinds = self._of_key(key, around if key.key == _STATE else None)
            texts.append(text)
            numbers += found
            kinds += of_kinds
        return tuple(texts), tuple(numbers), tuple(kinds)

    def _of_key(self, key: KeyState, around: Around | None) -> tuple[str, Numbers, Kinds]:
        found = self._encoded.get((key, around))
        if found is None:
            name = key.key.decode()[len(PREFIX) :]
            words = list(self._words(name, [part.decode() for part in key.contents], around))
            text = intern("\x1f".join([name, key.kind, *(word for word, _ in words)]))
            pairs = [pair for _, found in words for pair in found]
            found = text, tuple(value for _, value in pairs), tuple(kind for kind, _ in pairs)
            self._encoded[key, around] = found
        return found

    def _words(self, name: str, flat: list[str], around: Around | None) -> Iterator[Word]:
        pairs = [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]
        if around is not None:
            yield from self._state(dict(pairs), around)
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

    def _state(self, fields: dict[str, str], around: Around) -> Iterator[Word]:
        self._drop_dead(fields, around)
        for field, value in sorted(fields.items()):
            # The scripts read a missing field as 0 or empty. What a member has heard matters only after a rollback, and
            # there is none here.
            if value not in ("0", "") and field[:2] != "h:":
                yield plain(field)
                yield around.sum(field[2:], value) if field[:2] == "k:" else _scalar(field, value)

    def _drop_dead(self, fields: dict[str, str], around: Around) -> None:
        """Silences and gatherings that are over are never read again, and missing counts start again at zero."""
        settings = self._settings
        self._drop_comparison(fields)
        if int(fields.get("token", "0")) >= around.highest_token:
            fields["token"] = str(HIGHEST_TOKEN)
        if int(fields.get("recovering", "0")) == 0:
            fields["began"] = "0"
        self._shorten_silence(fields, GROUP_MS - 2 * settings.session_timeout_ms - int(fields.get("heard", "0")))
        if "gap_at" in fields and self._is_gap_over(fields, around):
            del fields["gap_from"], fields["gap_at"]
        if int(fields.get("quiet_until", "0")) <= GROUP_MS:
            fields.pop("quiet_until", None)
        if int(fields.get("calm_at", "0")) <= GROUP_MS:
            fields.pop("calm_at", None)
            fields.pop("burst", None)

    def _drop_comparison(self, fields: dict[str, str]) -> None:
        """Where quotas set the shares, loads are never compared; else a comparison's progress matters until it ends."""
        for field in ("ceilings", "round", *(() if self._has_lists else ("uneven",))):
            fields.pop(field, None)
        if fields.get("uneven") != "2":
            fields["passed"] = fields["scan"] = ""

    @staticmethod
    def _shorten_silence(fields: dict[str, str], by_ms: int) -> None:
        """Two sessions of silence are as good as more: the next call ends one that is long enough in any case, and what
        ended before then keeps its distance from its beginning.
        """
        if by_ms <= 0 or "heard" not in fields:
            return
        fields["heard"] = str(int(fields["heard"]) + by_ms)
        for field, value in fields.items():
            if field[:2] in {"r:", "g:"}:
                *request, ends = value.split(" ")
                if int(ends) < GROUP_MS:
                    fields[field] = " ".join([*request, str(min(int(ends) + by_ms, GROUP_MS))])

    def _is_gap_over(self, fields: dict[str, str], around: Around) -> bool:
        """A silence postpones the end of sessions, graces and deadlines. It no longer matters once all those that run,
        and that it excuses, end later anyway: whatever begins from now on is not affected by it.
        """
        settings, gap_from = self._settings, int(fields["gap_from"])
        session_over = int(fields["gap_at"]) + settings.session_timeout_ms // 2
        force_over = int(fields["gap_at"]) + settings.revocation_timeout_ms
        if max(session_over, force_over) <= GROUP_MS:
            return True
        if int(fields.get("barrier", "0")) > 0 or 0 < settings.rejoin_grace_ms < session_over - GROUP_MS:
            return False
        left = {"r:": settings.session_timeout_ms // 2, "g:": 0}
        ends = [(int(value.split(" ")[-1]), left[field[:2]]) for field, value in fields.items() if field[:2] in left]
        excused = [end for end, left_ms in ends if end - left_ms >= gap_from]
        return session_over <= min(excused, default=_FAR_MS) and force_over <= around.first_deadline


def _unwound(state: State) -> Iterator[KeyState]:
    """Gathers resources that nobody can work: this round's at one place, earlier ones behind all other free ones."""
    scalars = next((key.contents for key in state if key.key == _STATE), ())
    current = STUCK + int(dict(zip(scalars[::2], scalars[1::2], strict=True)).get(b"round", b"0"))
    for key in state:
        scores = [int(score) for score in key.contents[1::2]] if key.key == _FREE else []
        if max(scores, default=0) < STUCK:
            yield key
            continue
        found = [STUCK if it >= current else it - STUCK // 4 * (it >= STUCK) for it in scores]
        words = [word for name, at in zip(key.contents[::2], found, strict=True) for word in (name, str(at).encode())]
        yield KeyState(key.key, key.kind, None, tuple(words))


def _torn_lines(journal: KeyState, state: State) -> Iterator[Word]:
    """Keeps the journal as far as a repair will read it, where a script died: nothing else ever does. Its tokens are
    not needed, since the group's own stands for the highest of all; nor is what the lines of a repair say, since it at
    most says it again.
    """
    scalars = next((key.contents for key in state if key.key == _STATE), ())
    fields = {field.decode(): value.decode() for field, value in zip(scalars[::2], scalars[1::2], strict=True)}
    if not fields.get("pulse", "").startswith("torn "):
        return
    words = [plain("journal"), plain("stream")]
    for flat in journal.contents[2::2]:
        line = {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}
        if int(line["seq"]) > int(fields.get("version", "0")):
            named = [f"{name} {line[name]}" for name in ("kind", "resource", "member") if name in line]
            words.append(joined([plain("seq"), one(VERSION, int(line["seq"])), *map(plain, named)]))
    if len(words) > 2:
        yield joined(words, "\x1f")


@cache
def _resource(oldest: int, packed: str) -> Word:
    status, owner, token, since, deadline, rank, removing, avoid, _ended = packed.split(" ")
    words = [plain(status), plain(owner), one(TOKEN, int(token))]
    words.append(_since(oldest, int(since)) if status == "pending" else plain(str(GROUP_MS)))
    is_late = deadline[0] == "-"
    words += [joined([plain("-"), time(-int(deadline))], "") if is_late else time(int(deadline))]
    words += [plain(rank), plain(removing)]
    member, _, until = avoid.partition("@")
    until, _, tries = until.partition("@")
    avoided = joined([plain(f"{member}@"), time(int(until or "0")), plain(f"@{tries}")], "")
    words += [avoided if until else plain(avoid), plain("0")]
    return joined(words)


def _since(oldest: int, value: int) -> Word:
    """Only the order among pending ones matters; none is older than ``oldest``."""
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
    """Joins several words into one."""
    return separator.join(text for text, _ in words), tuple(number for _, found in words for number in found)


_KINDS = {
    "version": STORE_VERSION,
    "incarnation": INCARNATION,
    "heard": GROUP_TIME,
    "gap_from": GROUP_TIME,
    "began": GROUP_TIME,
    "gap_at": GROUP_TIME,
}


@cache
def _scalar(field: str, value: str) -> Word:
    kind = NEWS + field[2:] if field.startswith("c:") else _KINDS.get(field)
    if kind is not None:
        return one(kind, int(value))
    if field in _TIMES:
        return time(int(value))
    if field[:2] in {"r:", "g:", "u:"}:
        return _of_one(field, value)
    if field == "pulse" and value and not value.startswith("torn "):
        server, incarnation, rest = value.split(" ", 2)
        return joined([plain(server), one(INCARNATION, int(incarnation)), plain(rest)])
    return plain(value)


def _of_one(field: str, value: str) -> Word:
    """A field about a member or a subscription."""
    before, _, until = value.rpartition(" ")
    if field[:2] == "g:":
        return one(GROUP_TIME, int(value))
    if field[:2] == "u:":
        return joined([plain(before), time(int(until))])
    return joined([one(NUMBER + field[2:], int(before)), one(GROUP_TIME, int(until))])


@cache
def _member(name: str, packed: str) -> Word:
    status, capacity, instance, _joined, incarnation, request, *words = packed.split(" ")
    return joined(
        [
            *(plain(status), plain(capacity), plain(instance), plain(str(GROUP_MS))),
            *(one(INCARNATION, int(incarnation)), one(NUMBER + name, int(request)), *map(plain, words)),
        ]
    )


def _score(name: str, entry: str, score: int) -> Word:
    if name == "free":
        return plain(str(score)) if score == STUCK else one(FREED, score)
    if name == "deadlines":
        return time(score)
    if name == "timers":
        return plain(str(GROUP_MS + 600_000)) if entry[:2] in {"t:", "o:"} else time(score)
    return plain(str(score))


def decode(skeleton: Skeleton, numbers: Numbers) -> State:
    """Restores the data, as a store or a Redis can load it."""
    if not skeleton:
        return ()
    return tuple([_key(text) for text in ("\x1e".join(skeleton) % numbers).split("\x1e")])


@lru_cache(maxsize=200_000)
def _key(text: str) -> KeyState:
    name, kind, *words = text.split("\x1f")
    if kind == "stream":
        last = f"{GROUP_MS - 1}-{len(words)}".encode()
        rows = [(f"{GROUP_MS - 1}-{at}".encode(), tuple(line.encode().split(b" "))) for at, line in enumerate(words, 1)]
        return KeyState((PREFIX + name).encode(), kind, None, (last, *(part for row in rows for part in row)))
    contents = [_summed(map(int, word.split("+")[1:])) if word.startswith(_SUM) else word for word in words]
    return KeyState((PREFIX + name).encode(), kind, None, tuple(word.encode() for word in contents))


def without_heard(state: State, member: str, cursor: int) -> State:
    """Drops the answer to a repeat of the member's last request, and the news it has heard. The member must have no
    request in flight: nobody will ask for them again, and the next call that reads its news would remove them.
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
