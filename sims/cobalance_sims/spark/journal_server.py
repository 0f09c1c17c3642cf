"""Journals on their Redis: which there are, where they begin and end, and what lies between, as Redis sends it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, cast

from cobalance.coordinator.keys import SCHEMA, journal_key
from cobalance.coordinator.open import open_transport
from cobalance.errors import PermissionMissing, ProtocolMismatch, UnknownGroup, Unreachable
from cobalance.names import validate_name
from cobalance_sims.spark.journal_position import LAST_IN_MS, Position, before_ms
from cobalance_sims.spark.journal_reply import ReplyFields, Unclear
from cobalance_sims.spark.journal_rows import ListFields

if TYPE_CHECKING:
    from cobalance.coordinator.redis.cluster import ClusterTransport
    from cobalance.coordinator.redis.transport import RedisTransport
    from cobalance_sims.spark.journal_options import JournalOptions
    from cobalance_sims.spark.journal_rows import Fields

PAGE = 5_000
"""Entries in a request: Redis is busy with them for about 5 ms."""

ROOM = 64 * 1_024
"""Bytes of the first page; later ones are expected to be as long as the one before, and a little more."""

_CALL_TIMEOUT_MS = 10_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0

T = TypeVar("T")
Entry = list[object]
"""[id, [name, value, …]], in bytes."""


class JournalServer:
    """One connection (to a cluster: one for each node), for one thread."""

    def __init__(self, options: JournalOptions, *, is_raw: bool = True) -> None:
        """Connects at the first request. Without `is_raw`, a parser reads each page.

        Raises:
            InvalidSettings, UsageError: the address is missing or invalid.
        """
        self._transport = cast(
            "RedisTransport | ClusterTransport", open_transport(options.redis_url(), call_timeout_ms=_CALL_TIMEOUT_MS)
        )
        self._retry_s, self._prefix = options.retry_s, options.key_prefix
        self._is_raw, self._room = is_raw, ROOM

    def groups(self, wanted: tuple[str, ...]) -> list[str]:
        """Returns the groups that are named, or match.

        Raises:
            UsageError: a name is not valid for a group.
            UnknownGroup: a named group does not exist, or nothing given matches.
            ProtocolMismatch: a group exists, but another version of Cobalance made it.
        """
        patterns = [word for word in wanted if is_pattern(word)]
        names = [validate_name("group", word) for word in wanted if not is_pattern(word)]
        if patterns or any(self.first(name) is None for name in names):
            names += self._found(names, patterns)
        return sorted(set(names))

    def _found(self, names: list[str], patterns: list[str]) -> list[str]:
        there = self._asked(lambda: self._transport.list_groups(self._prefix))
        matching = _matching(there, patterns)
        for missing in (name for name in names if name not in there):
            self._explain(missing, there)
        if not matching and not names:
            self._explain(" or ".join(patterns), there)
        return matching

    def matching(self, patterns: Sequence[str]) -> list[str]:
        """Returns the groups that match, perhaps none."""
        return _matching(self._asked(lambda: self._transport.list_groups(self._prefix)), patterns) if patterns else []

    def _explain(self, wanted: str, there: list[str]) -> None:
        others = self._of_other_schemas()
        found = sorted(name for name in others if name == wanted or fnmatchcase(name, wanted))
        if found:
            raise ProtocolMismatch(
                f"The group {found[0]} has its journal in schema {others[found[0]]}, and this version reads schema {SCHEMA}: "
                "read it with the version of Cobalance that its members run."
            )
        listed = f"it has {', '.join(there[:10])}{', …' if len(there) > 10 else ''}" if there else "it has no groups"
        raise UnknownGroup(f"There is no group {wanted} in this Redis; {listed}.")

    def _of_other_schemas(self) -> dict[str, str]:
        keys = self._asked(lambda: self._transport.list_keys(f"{self._prefix}:*:{{*}}:state"))
        found = (re.fullmatch(rf"{re.escape(self._prefix)}:(\w+):\{{(.+)\}}:state", key) for key in keys)
        return {it[2]: it[1] for it in found if it and it[1] != str(SCHEMA)}

    def first(self, group: str, at_ms: int = 0) -> Position | None:
        """The first entry from a time on."""
        return self._position(group, self._range(self._key(group), f"{at_ms}-0", "+", 1))

    def next(self, group: str, place: Position) -> Position | None:
        """The first entry after a place."""
        return self._position(group, self._range(self._key(group), f"({place.id}", "+", 1))

    def newest(self, group: str, until_ms: int | None = None) -> Position | None:
        """The newest entry, or the newest before a time."""
        key, last = self._key(group), "+" if until_ms is None else str(before_ms(until_ms))
        return self._position(group, cast("list[Entry]", self._asked(lambda: self._transport.read_newest(key, last))))

    def last_within_ms(self, group: str, start: Position, count: int) -> Position:
        """The entry at most `count` after one, within the same millisecond."""
        last = f"{start.ms}-{LAST_IN_MS}"
        found = self._range(self._key(group), start.id, last, min(count, PAGE) + 1)
        return self._position(group, found[-1:]) or start

    def pages(self, group: str, after: str, last: str) -> Iterator[Fields]:
        """Yields all entries after an id, up to another one."""
        key = self._key(group)
        while len(page := self._page(key, f"({after}", last)):
            yield page
            if len(page) < PAGE:
                return
            after = page.ids()[-1].as_py().decode()

    def _page(self, key: str, first: str, last: str) -> Fields:
        """The reply is split as it came where that is possible, else parsed."""
        if self._is_raw:
            try:
                return ReplyFields(*self._raw_range(key, first, last))
            except PermissionMissing:
                self._is_raw = False
            except Unclear:
                pass
        return ListFields(self._range(key, first, last, PAGE))

    def _raw_range(self, key: str, first: str, last: str) -> tuple[bytearray, int]:
        found = self._asked(lambda: self._transport.read_range_raw(key, first, last, PAGE, self._room))
        self._room = ROOM + found[1] + found[1] // 8
        return found

    def _range(self, key: str, first: str, last: str, count: int) -> list[Entry]:
        return cast("list[Entry]", self._asked(lambda: self._transport.read_range(key, first, last, count)))

    def _asked(self, ask: Callable[[], T]) -> T:
        """Retries while Redis does not answer: reading twice does no harm, and a failed task costs more."""
        deadline_s, pause_s = time.monotonic() + self._retry_s, _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except Unreachable:
                if time.monotonic() + pause_s > deadline_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _key(self, group: str) -> str:
        return journal_key(group, self._prefix)

    @staticmethod
    def _position(group: str, entries: list[Entry]) -> Position | None:
        return Position.of(group, entries[0]) if entries else None

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _matching(groups: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [group for group in groups if any(fnmatchcase(group, pattern) for pattern in patterns)]


def is_pattern(word: str) -> bool:
    """Whether it stands for several groups: names hold none of these characters."""
    return any(character in word for character in "*?[")
