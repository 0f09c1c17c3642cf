"""Whether another process of this machine is gone, as its kernel knows for certain.

A process tells who it is in a text that others can compare: on which kernel and in which namespace it runs, its process
id, and when it began, since ids are used again. Whoever shares kernel and namespace can look for it there. Nothing is
said, and nobody is taken for gone, where there is no ``/proc`` (macOS), and in other containers and on other machines.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

_STATE, _STARTED = 0, 19
"""In ``/proc/PID/stat``, counted from behind the name, which may have blanks."""

_DEAD = {"Z", "X"}
"""States of threads that run no more: a zombie waits for its parent to notice."""


def own_process() -> str:
    """Who this process is, or "" where that cannot be told."""
    with suppress(OSError, IndexError):
        pid = os.getpid()
        return f"{_here()} {pid} {_stat(Path(f'/proc/{pid}/stat'))[_STARTED]}"
    return ""


def is_gone(process: str) -> bool:
    """Whether the process that said this of itself has surely ended. False if that cannot be told from here."""
    with suppress(OSError, ValueError, IndexError):
        here, pid, started = process.rsplit(" ", 2)
        return here == _here() and _has_ended(int(pid), started)
    return False


def _here() -> str:
    """The kernel since it was booted, the namespaces of process ids and of the time since then, and the host's name, which
    two copies of one virtual machine may not share.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespaces = [Path(f"/proc/self/ns/{it}") for it in ("pid", "time")]  # that of time since Linux 5.6
    return " ".join([boot, *(str(it.readlink()) for it in namespaces if it.is_symlink()), socket.gethostname()])


def _has_ended(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)  # ``/proc`` may hide the processes of other users
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    if _stat(Path(f"/proc/{pid}/stat"))[_STARTED] != started:
        return True  # another one has its id
    return all(_stat(it / "stat")[_STATE] in _DEAD for it in Path(f"/proc/{pid}/task").iterdir())


def _stat(file: Path) -> list[str]:
    return file.read_text().rpartition(")")[2].split()
