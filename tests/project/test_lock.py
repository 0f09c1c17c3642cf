"""requirements-dev.lock has what pyproject.toml asks for, on every supported Python."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def asked() -> list[Requirement]:
    """The requirements of the project with all its extras, and of its build."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    found = [Requirement(line) for line in [*project["dependencies"], *extras, *pyproject["build-system"]["requires"]]]
    return [requirement for requirement in found if requirement.name != project["name"]]


def locked(python: str) -> dict[str, str]:
    """Package → version installed on this Python."""
    lines = re.findall(r"^(\S+==.*?) \\$", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE)
    found = [Requirement(line) for line in lines]
    machine = {"python_version": python, "python_full_version": f"{python}.99", "sys_platform": "linux"}
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in found
        if requirement.marker is None or requirement.marker.evaluate(machine)
    }


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_what_pyproject_asks_for(python: str) -> None:
    """A dependency that is added, or whose range changes, needs `make lock`."""
    versions = locked(python)
    missing = [str(it) for it in asked() if not it.specifier.contains(versions.get(canonicalize_name(it.name), "0"))]
    assert not missing, "run `make lock`"
