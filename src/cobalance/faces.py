"""What a public class shows: notebooks and shells complete names by ``dir()``, and should offer what is for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

C = TypeVar("C", bound=type)


def hides(*names: str) -> Callable[[C], C]:
    """Leaves out of a class's ``dir()`` what only other parts of this library call."""

    def decorate(cls: C) -> C:
        shown: Any = cls.__dir__

        def without(self: object) -> Iterable[str]:
            return [name for name in shown(self) if name not in names]

        cls.__dir__ = without  # type: ignore[assignment]
        return cls

    return decorate
