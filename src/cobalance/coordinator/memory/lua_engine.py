"""Chooses the Lua that runs the in-memory Redis, and loads its files."""

from __future__ import annotations

import importlib
import os
from importlib.resources import files
from typing import Any

from cobalance.errors import UsageError

ENGINES = ("luajit21", "lua51", "lua54")
"""In order of preference: LuaJIT is three times as fast; Dragonfly runs 5.4."""

_MODULES = (
    *("values", "order", "sorted", "keyspace"),
    *("generic", "hashes", "zsets", "zranges", "streams"),
    *("sandbox", "store"),
)

_PRELOAD = b"function(name, text) package.preload[name] = assert((loadstring or load)(text, '=' .. name)) end"

_MORE_TRACES = b"if jit then jit.opt.start('maxtrace=20000', 'maxmcode=16384', 'sizemcode=256') end"
"""LuaJIT discards all compiled code beyond 1,000 traces. The verbs together exceed that, and simulated groups run them
in turn: recompiling took a fifth of their time.
"""

_ENVIRONMENT_VARIABLE = "COBALANCE_LUA"


class LuaEngine:
    """One Lua state with one in-memory Redis. `store` is the table that ``store.lua`` returns."""

    def __init__(self, name: str | None = None) -> None:
        self.name, module = _find(name or os.environ.get(_ENVIRONMENT_VARIABLE) or None)
        self._runtime: Any = module.LuaRuntime(
            encoding=None, unpack_returned_tuples=False, register_eval=False, register_builtins=False
        )
        self._runtime.execute(_MORE_TRACES)
        self.store: Any = self._load_store()

    def table(self, values: list[Any]) -> Any:
        """Converts a list, which may contain lists, to a Lua table."""
        return self._runtime.table_from(values, recursive=True)

    def _load_store(self) -> Any:
        preload = self._runtime.eval(_PRELOAD)
        folder = files("cobalance.coordinator") / "lua_redis"
        for name in _MODULES:
            preload(name.encode(), (folder / f"{name}.lua").read_bytes())
        return self._runtime.eval(b"(require 'store')")


def _find(name: str | None) -> tuple[str, Any]:
    if name is not None and name not in ENGINES:
        raise UsageError(
            f"There is no Lua engine {name!r}; {_ENVIRONMENT_VARIABLE} may be one of {', '.join(ENGINES)}."
        )
    for candidate in [name] if name else ENGINES[:2]:
        try:
            return candidate, importlib.import_module(f"lupa.{candidate}")
        except ImportError:
            continue
    wanted = name or "Lua"
    raise UsageError(
        f"memory:// needs {wanted} in the process, from the package lupa: pip install 'cobalance[embedded]'."
    )
