"""How much fits into a call. Small groups of members that page like large ones need smaller pages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cobalance.member import declaration, holdings, joining, offsets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SIZES: tuple[tuple[ModuleType, str], ...] = (
    (joining, "CLAIMS_A_PAGE"),
    (declaration, "NAMES_A_PAGE"),
    (holdings, "RELEASES_A_CALL"),
    (holdings, "NEWS_A_CALL"),
    (offsets, "COMMITS_A_CALL"),
)
"""Everything that a session sends page by page. How much a reply brings is a setting of the group: ``moves_per_call``."""


@contextmanager
def pages_of(most: int | None) -> Iterator[None]:
    """Meanwhile, no session of this process sends more than ``most`` of anything in a call; None: as shipped."""
    shipped = [getattr(module, name) for module, name in SIZES]
    for module, name in SIZES if most is not None else ():
        setattr(module, name, most)
    try:
        yield
    finally:
        for (module, name), size in zip(SIZES, shipped, strict=True):
            setattr(module, name, size)
