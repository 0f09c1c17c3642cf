"""Installs servers from Debian's or Ubuntu's packages, without starting them as services."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cobalance.servers.unavailable import ServerUnavailable

POLICY = Path("/usr/sbin/policy-rc.d")
"""Debian runs this program before a package starts its service; exit code 101 forbids the start."""

OUR_POLICY = "#!/bin/sh\n# cobalance installs servers for its own use, not as services\nexit 101\n"

LOCK = Path("/run/lock/cobalance-apt.lock")

LOCK_TIMEOUT_S = 300
"""Another package manager may be running, for instance on a machine that has just booted."""


def can_install() -> bool:
    """Whether this is Debian or Ubuntu, and this process may install packages."""
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get") is not None


@contextlib.contextmanager
def only_installer() -> Iterator[None]:
    """Waits until no other process of this library is installing. Look again afterwards: it may have done it."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(packages: Sequence[str]) -> None:
    """Installs the packages; their services do not start, now or later in this session."""
    print(f"cobalance: installing {' and '.join(packages)} with apt-get", file=sys.stderr, flush=True)  # noqa: T201
    with services_forbidden():
        _apt_get("update")
        _apt_get("install", "-y", "--no-install-recommends", *packages)


def _apt_get(*arguments: str) -> None:
    command = ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT_S}", *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise ServerUnavailable(f"`{' '.join(command)}` failed with exit code {done.returncode}:\n{tail}")


@contextlib.contextmanager
def services_forbidden() -> Iterator[None]:
    """Keeps packages from starting services. A policy that the machine already has stays in force."""
    ours = not POLICY.exists() or POLICY.read_text() == OUR_POLICY  # or one left behind by a killed installer
    if ours:
        POLICY.write_text(OUR_POLICY)
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink()
