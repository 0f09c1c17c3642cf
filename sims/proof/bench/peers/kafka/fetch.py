"""Fetches Kafka into the user's cache folder. Versions are pinned, and everything is checked against a hash before it runs.

`broker.sha256` lists what Maven resolves for org.apache.kafka:kafka_2.13, and a log4j, as paths in Maven's central repository;
`client.requirements` is confluent-kafka with the hashes of its wheels. Neither is a dependency of the library or of its tests.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from rich.progress import track

from cobalance.errors import CobalanceError

CENTRAL = "https://repo.maven.apache.org/maven2/"
HERE = Path(__file__).parent
VERSION = "4.3.1"
"""The broker's."""

TIMEOUT_S = 120


class KafkaUnavailable(CobalanceError):
    """Kafka cannot be measured here; the message says why."""


def cache_folder() -> Path:
    """The user's, as XDG has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "cobalance", "kafka")


def fetch_broker() -> Path:
    """Returns the folder of its jars, all of which have the known hashes.

    Raises:
        KafkaUnavailable: one cannot be fetched, or is another than the known one.
    """
    folder = cache_folder() / f"broker-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    listed = [line.split() for line in (HERE / "broker.sha256").read_text("utf-8").splitlines()]
    missing = [(sha256, path) for sha256, path in listed if not _has(folder / Path(path).name, sha256)]
    for sha256, path in track(missing, f"fetching Kafka {VERSION}", disable=not missing, transient=True):
        _fetch(CENTRAL + path, sha256, folder / Path(path).name)
    return folder


def fetch_client() -> Path:
    """Returns a folder for the import path that has confluent-kafka for this Python.

    Raises:
        KafkaUnavailable: pip cannot install it.
    """
    requirements = HERE / "client.requirements"
    edition = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"client-{sys.implementation.cache_tag}-{edition}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as part:
            _install(requirements, Path(part, "client"))
            shutil.move(Path(part, "client"), folder)
    return folder


def _install(requirements: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--target",
        str(folder),
        "--requirement",
        str(requirements),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise KafkaUnavailable(f"pip could not install confluent-kafka into the cache:\n{done.stderr.strip()}")


def _has(file: Path, sha256: str) -> bool:
    return file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == sha256


def _fetch(url: str, sha256: str, file: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310  # always https
            content = response.read()
    except OSError as error:
        raise KafkaUnavailable(f"{url} cannot be fetched: {error}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise KafkaUnavailable(f"{url} is not the file that was expected, by its SHA-256: it is not run.")
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(file)
