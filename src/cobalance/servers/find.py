"""Finds the server programs installed on this machine."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import attrs

USUAL_FOLDERS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/opt/homebrew/sbin",
    "/opt/homebrew/bin",
    "/opt/homebrew/opt/rabbitmq/sbin",
    "/usr/local/opt/rabbitmq/sbin",
    "/home/linuxbrew/.linuxbrew/sbin",
    "/home/linuxbrew/.linuxbrew/bin",
)
"""Searched after PATH, which often lacks Homebrew's RabbitMQ and Debian's sbin."""

DEBIAN_RABBITMQ_SCRIPTS = "/usr/lib/rabbitmq/bin"


@attrs.frozen
class RabbitMQProgram:
    """A RabbitMQ that can be run as a private node."""

    server: Path
    """Its `rabbitmq-server` script, which does not switch users."""
    epmd: Path
    """Erlang's port mapper."""


def find_redis() -> Path | None:
    """The Redis (or Valkey) server program, or None."""
    return _program("redis-server") or _program("valkey-server")


def find_rabbitmq() -> RabbitMQProgram | None:
    """The RabbitMQ server script and Erlang's port mapper, or None if one of them is missing.

    Distributions put a wrapper on PATH that switches to a system user and a system-wide node. The script needed here is
    the one next to `rabbitmq-env`.
    """
    epmd = _program("epmd") or _epmd_of_erlang()
    if epmd is None:
        return None
    for folder in (DEBIAN_RABBITMQ_SCRIPTS, *_folders()):
        server = Path(folder, "rabbitmq-server")
        if os.access(server, os.X_OK) and (server.resolve().parent / "rabbitmq-env").exists():
            return RabbitMQProgram(server=server.resolve(), epmd=epmd)
    return None


def search_path() -> str:
    """PATH, followed by the usual folders that it lacks."""
    return os.pathsep.join(_folders())


def _folders() -> Iterable[str]:
    named = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return dict.fromkeys([*named, *USUAL_FOLDERS])


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=search_path())
    return Path(found) if found else None


def _epmd_of_erlang() -> Path | None:
    """Erlang keeps epmd next to its virtual machine; not every package links it into a folder of PATH."""
    erl = _program("erl")
    homes = (erl.resolve().parent.parent, erl.resolve().parent.parent / "lib/erlang") if erl else ()
    found = [epmd for home in homes for epmd in sorted(home.glob("erts-*/bin/epmd"))]
    return found[-1] if found else None
