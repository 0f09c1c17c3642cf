"""A file on this machine that records which member has an instance id, locked by its process for as long as it lives.

The kernel releases the lock when the last process that has it is gone, even after ``kill -9``, and no sooner. So a
process that gets the lock knows that the member named in the file is dead, and may take over without waiting for its
session to expire. Process ids, which mean little across containers, are not compared. In any doubtful case, such as
another machine, a copy of the file, a new container or a system without such locks, nothing is known, and the session has
to expire first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cobalance.group.event_log import log

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from cobalance.coordinator.client import Coordinator

MOST_BYTES = 1_000
"""More than a member id and a place need."""

TRIES = 10
"""To lock a file that others of its name remove meanwhile."""


class InstanceFile:
    """The file of one instance id in one group. Groups at other servers, in other databases and under other key prefixes
    have other files.
    """

    def __init__(self, coordinator: Coordinator, instance_id: str) -> None:
        self._group, self._instance_id = coordinator.group, instance_id
        server = getattr(coordinator.transport, "place", "")
        self._name = hashlib.sha256(f"{server}\0{coordinator.scope}\0{instance_id}".encode()).hexdigest()[:32]
        self._file: int | None = None
        self._written = self._has_logged = False

    def take(self, coordinator: Coordinator) -> str:
        """Locks the file. Returns the previous member with this instance id, if its process is dead and the group still
        lists it; else "".
        """
        former = self._lock()
        if not former or coordinator.state()["recovering"] != "0":
            return ""
        return next(
            (it.id for it in coordinator.members() if (it.id, it.instance_id) == (former, self._instance_id)), ""
        )

    def write(self, member: str) -> None:
        """Records that this process is that member."""
        try:
            if self._file is None:
                self._file = _locked(self._name)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{member} {_place(self._file)}".encode() if member else b"", 0)
            self._written = True
        except OSError as error:  # another process has it, or the disk is full: nothing is recorded
            self._log(error)

    def close(self) -> None:
        """Unlocks the file after a normal end. Removes it, unless it still records a former member, since this process
        never was one.
        """
        if self._file is not None:
            if self._written:
                self.write("")
            with suppress(OSError):
                _remove_empty(self._name, self._file)
            os.close(self._file)
            self._file = None

    def _lock(self) -> str:
        """Returns the member on record, or "" if it cannot be locked, or was not written here."""
        try:
            if self._file is None:
                self._file = _locked(self._name)
            member, _, place = os.pread(self._file, MOST_BYTES, 0).decode("ascii", "replace").partition(" ")
            return member if place == _place(self._file) else ""
        except OSError as error:  # another process has it, or the file system has no such locks
            self._log(error)
            return ""

    def _log(self, error: OSError) -> None:
        if not self._has_logged:
            self._has_logged = True
            why = "another process has it" if isinstance(error, BlockingIOError) else error.strerror
            log.info(
                "group %s: the file of instance id %r cannot be used (%s), so after a kill the session may have to expire first",
                *(self._group, self._instance_id, why),
            )


def _locked(name: str) -> int:
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    for _ in range(TRIES):
        opened = os.open(_folder() / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(name, opened):
                return opened
        except OSError:
            os.close(opened)
            raise
        os.close(opened)  # its process has just removed it
    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))


def _is_there(name: str, file: int) -> bool:
    """Whether the name is still that of the open file: others lock what has it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), (_folder() / name).lstat())
    return False


def _remove_empty(name: str, file: int) -> None:
    """Removes the locked file if it records nobody. Only who has the lock may, so no other is removed."""
    if not os.fstat(file).st_size and _is_there(name, file):
        (_folder() / name).unlink()


def _place(file: int) -> str:
    """Where a lock of this file is known to all who may have it: the machine since it was booted, its name, which copies of one
    virtual machine may not share, and the file itself. Some shared file systems keep locks to each machine.
    """
    boot, found = "-", os.fstat(file)
    with suppress(OSError):  # macOS
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot} {found.st_dev} {found.st_ino} {socket.gethostname()}"


def _folder() -> Path:
    """Only this user may say who is dead, so the folder must be private."""
    folder = Path(tempfile.gettempdir()) / f"cobalance-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(errno.EACCES, f"{folder} is not private", str(folder))
    return folder
