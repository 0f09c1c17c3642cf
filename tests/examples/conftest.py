"""Programs that check files for others."""

from __future__ import annotations

import shutil

import pytest

from cobalance.servers import apt
from cobalance.servers.find import search_path


@pytest.fixture(scope="session")
def promtool() -> str:
    """Part of Debian's and Homebrew's package `prometheus`."""
    if found := shutil.which("promtool", path=search_path()):
        return found
    assert apt.can_install(), "promtool is missing: install prometheus"
    with apt.only_installer():
        if shutil.which("promtool", path=search_path()) is None:
            apt.install(["prometheus"])
    found = shutil.which("promtool", path=search_path())
    assert found is not None
    return found
