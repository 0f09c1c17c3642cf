"""A file of this machine that says which member has an instance id. Its process keeps it locked for as long as it lives.

The kernel gives a lock free when the last process that has it is gone, be it by ``kill -9``, and no sooner. So whoever gets the lock knows that
the member in the file is dead, and may take its place without waiting for its session to end. No process ids are compared, which mean little
across containers. Where anything is in doubt, such as on another machine, in a new container, or on a system without such locks,
nothing is known, and the session is waited for.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from cobalance.coordinator.client import Coordinator

MOST_BYTES = 200
"""Longer than any member id."""


class InstanceFile:
    """Of one instance id in one group."""

    def __init__(self, group: str, instance_id: str) -> None:
        self._instance_id = instance_id
        self._name = hashlib.sha256(f"{group}\0{instance_id}".encode()).hexdigest()[:32]
        self._file: int | None = None

    def take(self, coordinator: Coordinator) -> str:
        """Locks it. Returns the member that had the instance id, if its process is dead and the group still counts on it; else nothing."""
        former = self._lock()
        if not former or coordinator.state()["recovering"] != "0":
            return ""
        return next(
            (it.id for it in coordinator.members() if (it.id, it.instance_id) == (former, self._instance_id)), ""
        )

    def write(self, member: str) -> None:
        """This process is that member from now on."""
        with suppress(OSError):  # somebody has it, or the disk is full: then nothing is known of us
            if self._file is None:
                self._file = _locked(self._name)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, member.encode(), 0)

    def close(self) -> None:
        """The membership ended in order."""
        if self._file is not None:
            self.write("")
            os.close(self._file)
            self._file = None

    def _lock(self) -> str:
        """What is in it; nothing where it cannot be locked."""
        try:
            if self._file is None:
                self._file = _locked(self._name)
            return os.pread(self._file, MOST_BYTES, 0).decode("ascii", "replace")
        except OSError:  # somebody has it, or such locks do not work there
            return ""


def _locked(name: str) -> int:
    if fcntl is None:
        raise OSError
    opened = os.open(_folder() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


def _folder() -> Path:
    """This user's own: nobody else can say who is dead."""
    folder = Path(tempfile.gettempdir()) / f"cobalance-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(str(folder))
    return folder
