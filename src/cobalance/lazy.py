"""Imports what a package exports when it is first used (PEP 562), so that a command does not load the whole library."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 -- here, and logging, since hooks registered last run first at a fork
import logging  # noqa: F401
import os
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


importing = threading.RLock()
"""Held while something is imported after the start, since pika's modules import each other in circles: two threads that
begin at different ones would both get half of it. A fork waits for it, or the child would find a module locked for
good; and it does so before it takes the locks of logging and of executors, which imports need.
"""
os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)


def exports(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its name.
        homes: module → the names that the package exports from there.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    module = sys.modules[package]

    def get(name: str) -> object:
        if name in home_of:
            with importing:
                value: object = getattr(import_module(home_of[name]), name)
            setattr(module, name, value)
            return value
        submodule = f"{package}.{name}"
        if name.isidentifier() and not name.startswith("_"):  # After `import cobalance`, there is `cobalance.rabbitmq`.
            try:
                with importing:
                    return import_module(submodule)
            except ModuleNotFoundError as error:
                if error.name != submodule:
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)

    return get, lambda: sorted({*vars(module), *home_of})
