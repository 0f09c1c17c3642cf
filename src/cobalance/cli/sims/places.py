"""Checks that a result can be written before the work is done."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import attrs

from cobalance.errors import UsageError
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.journal_server import JournalServer


def check_file(file: Path) -> None:
    """Checks that a file of this name can be written, and creates its folder. An existing file is left unchanged.

    Raises:
        UsageError: it cannot be written.
    """
    with writing(file):
        _try_folder(file.parent)
        if file.exists():
            file.open("a").close()


def check_folder(folder: Path) -> None:
    """Checks that files can be created in this folder, which is created if necessary.

    Raises:
        UsageError: they cannot.
    """
    with writing(folder):
        _try_folder(folder)


def check_target(place: str) -> None:
    """Checks that files can be created in this folder, if it is one of this machine. URIs are left to Spark.

    Raises:
        UsageError: they cannot.
    """
    if not re.match(r"[a-z0-9]+:", place, re.IGNORECASE):
        check_folder(Path(place).expanduser())


def check_sources(places: Iterable[str], master: str | None) -> None:
    """Checks that folders to be read exist, which Spark tells after half a minute. Where another machine reads them, and
    for URIs and patterns, that is left to Spark.

    Raises:
        UsageError: one does not.
    """
    if not (master or os.environ.get("SPARK_REMOTE") or os.environ.get("MASTER") or "local").startswith("local"):
        return
    for place in places:
        if not re.search(r"^[a-z0-9]+:/|[*?\[{]", place, re.IGNORECASE) and not Path(place).expanduser().is_dir():
            raise UsageError(f"There is no folder {place}: give what cobalance sims journal or sweep wrote with --out.")


def check_groups(journal: JournalOptions) -> None:
    """Checks that Redis answers, and has the groups whose journals are to be read.

    Raises:
        Unreachable: it does not answer.
        UnknownGroup, ProtocolMismatch: it has no such group, or one of another version.
    """
    with JournalServer(attrs.evolve(journal, retry_s=0)) as server:
        server.groups(journal.groups)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Translates errors of the operating system in the block."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{place} cannot be written ({error.strerror}): name another place with --out.") from None


def _try_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    TemporaryFile(dir=folder).close()
