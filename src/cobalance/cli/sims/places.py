"""Whether a result will have a place to go: asked before the work is done, not after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from cobalance.errors import UsageError


def check_file(file: Path) -> None:
    """That a file of this name can be written; its folder is made. What is there already stays as it is.

    Raises:
        UsageError: it cannot.
    """
    with writing(file):
        _try_folder(file.parent)
        if file.exists():
            file.open("a").close()


def check_folder(folder: Path) -> None:
    """That files can be made in this folder, which is made itself.

    Raises:
        UsageError: they cannot.
    """
    with writing(folder):
        _try_folder(folder)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Inside, what the system refuses is told in our words."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{place} cannot be written ({error.strerror}): name another place with --out.") from None


def _try_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    TemporaryFile(dir=folder).close()
