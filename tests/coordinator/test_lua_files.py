"""The Lua files themselves: portable, deterministic, with headers, and without globals."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from tests.coordinator.bytecode import globals_of

from cobalance.coordinator.scripts import VERBS, load

FOLDER = Path(str(files("cobalance.coordinator"))) / "lua"
FILES = sorted(FOLDER.rglob("*.lua"))
VERB_FILES = [FOLDER / f"{verb}.lua" for verb in VERBS]

BANNED = {
    r"\b(SMEMBERS|HGETALL|HKEYS|HVALS|SPOP|SRANDMEMBER|HRANDFIELD|ZRANDMEMBER|RANDOMKEY|SCAN)\b": "has no order",
    r"\bpairs\s*\(": "has no order",
    r"\bnext\s*\(": "has no order",
    r"math\.random|\bos\.|\bio\.": "is not the same everywhere",
    r"\b(cjson|cmsgpack|struct|bit)\b\.": "is not in every Lua",
    r"\bgoto\b|::\w+::|//|<<|>>": "is not in Lua 5.1",
    r"table\.(pack|move)|string\.pack|\butf8\.|math\.(type|tointeger|pow|ldexp|log10)": "is not in every Lua",
    r"'LIMIT', (?!'0'|most_trimmed)": "skips entries one by one, however many there are; ZRANGE finds a rank at once",
    r"\b(setfenv|getfenv|loadstring|load|dofile)\b\s*\(|table\.getn": "is not in every Lua",
}


def code_of(path: Path) -> str:
    """A file without its comments."""
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_unordered_or_unportable_is_used(path: Path) -> None:
    """The same replies and data on Redis, Valkey, Dragonfly and in this process."""
    text = path.read_text(encoding="utf-8")
    assert "#!lua" not in text
    code = code_of(path)
    for pattern, reason in BANNED.items():
        found = re.findall(pattern, code)
        assert not found, f"{path.name}: {found} {reason}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_strings_are_not_compared_by_the_locale(path: Path) -> None:
    """`<` on strings follows the server's locale; names are compared byte by byte."""
    assert not re.search(r"(ARGV\[[^]]+\]|names?\[[^]]+\]|\bname)\s*(<|>)=?", code_of(path)), path.name


@pytest.mark.parametrize("path", VERB_FILES, ids=lambda path: path.stem)
def test_every_verb_says_what_it_takes_and_returns(path: Path) -> None:
    """A header with KEYS, ARGV and Returns; the shared prelude once."""
    text = path.read_text(encoding="utf-8")
    header = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    for word in (f"-- {path.stem}:", "-- KEYS", "-- ARGV", "-- Returns"):
        assert word in header
    assert text.count("--- @prelude\n") == 1


def test_every_file_is_a_verb_or_part_of_the_prelude() -> None:
    """There are no unused files."""
    assert set(FILES) == {*VERB_FILES, *(FOLDER / "_prelude").glob("*.lua")}


@pytest.mark.parametrize("path", sorted((FOLDER / "_prelude").glob("*.lua")), ids=lambda path: path.stem)
def test_every_part_of_the_prelude_begins_with_what_it_is(path: Path) -> None:
    """It starts with a sentence."""
    assert path.read_text(encoding="utf-8").startswith("-- ")


@pytest.mark.parametrize("verb", VERBS)
def test_no_script_touches_a_stray_global(verb: str) -> None:
    """Redis would reject it only when the branch runs; the compiled code shows all of them."""
    read, written = globals_of(load(verb).source)
    assert read <= {"redis", "KEYS", "ARGV", "math", "string", "table", "tonumber", "ipairs", "unpack", "error"}
    assert not written


def test_every_command_that_writes_stops_the_pulse_first() -> None:
    """A writing command that is missing from the list would leave partial writes unnoticed."""
    listed = re.search(r"local WRITES = \{(.*?)\}", load("tick").source, re.DOTALL)
    assert listed
    reading = r"^(TIME|PUBLISH|PUBSUB|HGET|HMGET|HEXISTS|HSCAN|XREVRANGE|Z(SCORE|CARD|COUNT|LEXCOUNT|(REV)?RANGE(BYLEX|BYSCORE)?))$"
    used = {word for verb in VERBS for word in re.findall(r"call(?:_with)?\('(\w+)'", load(verb).source)}
    assert {word for word in used if not re.match(reading, word)} == set(re.findall(r"(\w+) = true", listed[1]))
