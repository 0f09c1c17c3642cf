"""A group setting stands in several places, and a new one in all of them."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
from tests.readme_sections import READMES, ROOT, read

from cobalance import GroupSettings
from cobalance.cli.options import SettingOptions
from cobalance.dashboard.tuning import _LOOKS
from cobalance.settings import STORED_NAMES
from cobalance_sims.records import SETTINGS
from cobalance_sims.simulate.kernel import NOT_IN_ROWS

LUA = ROOT / "src/cobalance/coordinator/lua"
PAGE = ROOT / "src/cobalance/dashboard/static/pages/tuning.js"
NAMES = {field.name for field in attrs.fields(GroupSettings)}


def table(path: Path, name: str) -> str:
    """A table of a Lua file."""
    found = re.search(rf"^local {name} = {{(.*?)}}", path.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_scripts_know_every_setting() -> None:
    """They store each, a first member brings each in their order, ahead of subscription and claims, and an administrator
    may change each.
    """
    stored = set(
        re.findall(r"'(\w+)'", "".join(table(LUA / "_prelude/10_group.lua", it) for it in ("TEXTS", "NUMBERS")))
    )
    assert set(STORED_NAMES) == NAMES
    assert set(STORED_NAMES.values()) <= stored
    assert list(STORED_NAMES.values()) == re.findall(r"'(\w+)'", table(LUA / "join.lua", "SETTINGS"))
    positions = re.search(
        r"malformed\('hnwwwww(n+)w', 'who'\).* = ARGV\[13\], ARGV\[14\], ARGV\[(\d+)\].*^local CLAIMS = (\d+)",
        (LUA / "join.lua").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert positions is not None
    assert len(positions[1]) == len(STORED_NAMES) - 1  # all but the mode are numbers
    assert (int(positions[2]), int(positions[3])) == (15 + len(STORED_NAMES), 16 + len(STORED_NAMES))
    settable = set(re.findall(r"(\w+) = true", table(LUA / "configure.lua", "SETTABLE")))
    assert settable == {*STORED_NAMES.values(), "offsets_known"}


def test_every_setting_is_documented_and_an_option_of_the_commands() -> None:
    """In a table of a README, and of `create` and `configure`."""
    documented = {name for path in READMES for name in re.findall(r"^\| `(\w+)` \|", read(path), re.MULTILINE)}
    assert documented >= NAMES
    assert {field.name for field in attrs.fields(SettingOptions)} == NAMES


def test_the_rows_of_sweeps_have_every_setting() -> None:
    """But for those that the kernel leaves out."""
    assert {column.name for column in SETTINGS} | set(NOT_IN_ROWS) == NAMES


def test_the_dashboard_has_a_row_for_every_setting() -> None:
    """With what the journal says of it, if anything, and with a title and a sentence."""
    titles = re.search(r"^const TITLES = {(.*?)^};", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert titles is not None
    assert set(re.findall(r"^  (\w+): \[", titles[1], re.MULTILINE)) == NAMES
    assert set(_LOOKS) == NAMES
