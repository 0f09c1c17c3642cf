"""Reads Lua 5.1 bytecode, just enough to see which globals a script uses."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lupa.lua51 import LuaRuntime

GETGLOBAL, SETGLOBAL = 5, 7
HEADER_SIZE = 12


def globals_of(source: str) -> tuple[set[str], set[str]]:
    """The names of the globals that a script reads, and of those it writes, in any branch."""
    lua = LuaRuntime(encoding=None)
    dump = lua.eval(b"function(source) return string.dump(assert(loadstring(source))) end")
    uses = list(_Reader(dump(source.encode())).function())
    return {name for opcode, name in uses if opcode == GETGLOBAL}, {
        name for opcode, name in uses if opcode == SETGLOBAL
    }


class _Reader:
    """Reads a precompiled chunk, front to back."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk, self._at = chunk, HEADER_SIZE

    def _read(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self._chunk, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def _skip(self, size: int) -> None:
        self._at += size

    def _string(self) -> str:
        size = self._read("Q")
        self._skip(size)
        return self._chunk[self._at - size : self._at - 1].decode() if size else ""

    def _constant(self) -> str:
        kind = self._read("B")
        if kind == 4:
            return self._string()
        self._skip({0: 0, 1: 1, 3: 8}[kind])
        return ""

    def function(self) -> Iterator[tuple[int, str]]:
        """(opcode, name) of every access to a global, in this function and nested ones."""
        self._string()
        self._skip(2 * 4 + 4)
        code = [self._read("I") for _ in range(self._read("i"))]
        constants = [self._constant() for _ in range(self._read("i"))]
        for instruction in code:
            if instruction & 0x3F in (GETGLOBAL, SETGLOBAL):
                yield instruction & 0x3F, constants[instruction >> 14]
        for _ in range(self._read("i")):
            yield from self.function()
        self._skip_debug()

    def _skip_debug(self) -> None:
        self._skip(4 * self._read("i"))
        for _ in range(self._read("i")):
            self._string()
            self._skip(8)
        for _ in range(self._read("i")):
            self._string()
