"""Where this machine keeps its server programs."""

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
"""Searched after PATH: Homebrew's RabbitMQ and Debian's sbin are often missing from it."""

DEBIAN_RABBITMQ_SCRIPTS = "/usr/lib/rabbitmq/bin"


@attrs.frozen
class RabbitMQProgram:
    """A RabbitMQ that can be run as a private node."""

    server: Path
    """Its own `rabbitmq-server` script, which runs as whoever starts it."""
    epmd: Path
    """Erlang's port mapper."""


def find_redis() -> Path | None:
    """The Redis server program (Valkey's will do), or None."""
    return _program("redis-server") or _program("valkey-server")


def find_rabbitmq() -> RabbitMQProgram | None:
    """The RabbitMQ server script and its Erlang, or None when one of them is missing.

    Distributions put a wrapper on PATH that switches to a system user and a system-wide node. The script wanted here
    is the one that lies beside its `rabbitmq-env`.
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
    """PATH, and after it the usual folders it does not name."""
    return os.pathsep.join(_folders())


def _folders() -> Iterable[str]:
    named = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return dict.fromkeys([*named, *USUAL_FOLDERS])


def _program(name: str) -> Path | None:
    found = shutil.which(name, path=search_path())
    return Path(found) if found else None


def _epmd_of_erlang() -> Path | None:
    """Erlang keeps epmd beside its virtual machine; not every package links it into a folder of PATH."""
    erl = _program("erl")
    homes = (erl.resolve().parent.parent, erl.resolve().parent.parent / "lib/erlang") if erl else ()
    found = [epmd for home in homes for epmd in sorted(home.glob("erts-*/bin/epmd"))]
    return found[-1] if found else None
