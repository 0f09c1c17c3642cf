"""What happened, as lines a person can read, and the hash of all of them."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

KEPT_LINES = 200_000


class Trace:
    """Keeps the last lines; the hash covers every line there ever was.

    Tokens are microseconds and unreadable, so lines name them t1, t2 … in order of appearance.
    """

    def __init__(self, *, verbose: bool = True) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._hash = blake2b(digest_size=16)
        self._tags: dict[int, str] = {}
        self._verbose = verbose

    def add(self, now: int, who: str, text: str) -> None:
        line = f"{now:>9}  {who:<6} {text}"
        if self._verbose:
            self.lines.append(line)
        self._hash.update(line.encode())
        self._hash.update(b"\n")

    def fold(self, content: str) -> None:
        """Adds something to the hash without a line: a final state, for instance."""
        self._hash.update(content.encode())

    def tag(self, token: int | None) -> str:
        """The short name of a token."""
        if not token:
            return "-"
        return self._tags.setdefault(token, f"t{len(self._tags) + 1}")

    @property
    def digest(self) -> str:
        """The hash so far, in hexadecimal."""
        return self._hash.hexdigest()

    def tail(self, count: int) -> list[str]:
        return list(self.lines)[-count:]


class Untold(Trace):
    """For sweeps: nothing is kept, and nothing hashed."""

    def add(self, now: int, who: str, text: str) -> None: ...

    def fold(self, content: str) -> None: ...

    def tag(self, token: int | None) -> str:
        del token
        return "-"
