"""Hides internal methods of public classes from ``dir()``, so that notebooks and shells complete only public names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

C = TypeVar("C", bound=type)


def hides(*names: str) -> Callable[[C], C]:
    """Class decorator that leaves these names, which only this library calls, out of the class's ``dir()``."""

    def decorate(cls: C) -> C:
        shown: Any = cls.__dir__

        def without(self: object) -> Iterable[str]:
            return [name for name in shown(self) if name not in names]

        cls.__dir__ = without  # type: ignore[assignment]
        return cls

    return decorate
