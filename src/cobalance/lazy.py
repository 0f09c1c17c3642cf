"""Imports what a package exports when it is first used (PEP 562), so that a command does not load the whole library."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


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
            value: object = getattr(import_module(home_of[name]), name)
            setattr(module, name, value)
            return value
        submodule = f"{package}.{name}"
        if not name.startswith("_"):  # After `import cobalance`, `cobalance.rabbitmq` can be used, too.
            try:
                return import_module(submodule)
            except ModuleNotFoundError as error:
                if error.name != submodule:
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)

    return get, lambda: sorted({*vars(module), *home_of})
