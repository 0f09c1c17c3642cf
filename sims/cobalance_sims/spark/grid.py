"""A grid of runs: every combination of settings, variants of churn, and seeds, checked before anything is simulated.

As a TOML file, in which each value may be a list::

    seeds = "1..50"

    [settings]                                  # GroupSettings; what is left out has its default; [[settings]] for several
    session_timeout = ["6s", "10s", "25s"]
    heartbeat_interval = "session/3"
    revocation_timeout = ["session", "30s", "90s"]

    [[churn]]                                   # cobalance_sims.simulate.churn.Churn; as many such tables as one likes
    base = ["rolling_deploy", "autoscaled"]     # the churns to start from
    members = [4, 8]
    drain = ["lognormal:200:1.0", "lognormal:3000:1.0"]
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import attrs

from cobalance.errors import CobalanceError, UsageError
from cobalance.settings import GroupSettings, duration_ms
from cobalance_sims.simulate.churn import CHURNS, Churn
from cobalance_sims.simulate.kernel import CHECKS, DEFAULT_CHURN, VERSION, Row

MOST_RUNS = 2_000_000
"""The most runs of one command, which holds a line for each in memory."""

SHARE = "Several commands with different seeds can share a folder."

SHOWN = 3
"""How many reasons are given why combinations are impossible."""

SETTINGS = tuple(field.name for field in attrs.fields(GroupSettings))
PARAMETERS = ("base", *(field.name for field in attrs.fields(Churn)))
DURATIONS = {it for it in SETTINGS if it.endswith("_ms")} | {
    it.name for it in attrs.fields(Churn) if it.name.endswith("_ms") and isinstance(it.default, int)
}
"""What may be written as 30s; the other times of a churn are distributions."""

Params = dict[str, Any]
Axes = Mapping[str, Sequence[Any]]
"""Name → the values it takes in turn."""


class BadGrid(UsageError):
    """The grid is invalid; the message says which part of it, and what is accepted. Nothing was simulated."""


@attrs.frozen
class Point:
    """One combination of settings and churn, of which each seed makes a run."""

    params: Mapping[str, Any]
    """As the kernel takes them, without a seed."""
    digest: bytes
    shape: str
    """Points of one shape cost about the same."""

    def run(self, seed: int) -> str:
        """The id of a run: what it depends on, hashed."""
        return hashlib.blake2b(self.digest + str(seed).encode(), digest_size=12).hexdigest()

    def row(self, seed: int) -> Params:
        """The parameters of a run."""
        return {**self.params, "seed": seed, "run": self.run(seed)}


@attrs.frozen
class Grid:
    """What is to be simulated."""

    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    skipped: tuple[str, ...] = ()
    """The reason for each impossible combination, not counting seeds."""

    @property
    def runs(self) -> int:
        return len(self.points) * len(self.seeds)


def read_grid(file: Path) -> dict[str, Any]:
    """Reads the tables of a grid file.

    Raises:
        BadGrid: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadGrid(f"{file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadGrid(f"{file} is not TOML: {error}.") from None


def make_grid(tables: Mapping[str, Any], *, skip_impossible: bool = False) -> Grid:
    """Makes a grid from the tables of a grid file.

    Raises:
        BadGrid: a name is unknown, a value bad, a combination impossible (unless those are skipped), or nothing is left.
    """
    for name in tables:
        known("part of a grid", name, ("checks", "churn", "seeds", "settings"))
    seeds, faults, points = seeds_of(tables.get("seeds", "1..10")), list[str](), dict[bytes, Point]()
    combinations, checks = list(_combined(tables)), _checks(tables.get("checks", "cheap"))
    for settings, churn in combinations:
        try:
            point = _point({**settings, **churn, "checks": checks})
        except BadGrid:
            raise
        except (CobalanceError, TypeError, ValueError, AttributeError, OverflowError) as error:
            faults.append(str(error))
        else:
            points.setdefault(point.digest, point)
    if faults and not (skip_impossible and points):
        what = f"{len(faults):,} of {len(combinations):,} combinations" if len(combinations) > 1 else "The combination"
        raise BadGrid(f"{what} cannot be: {some(faults)} Change the values, or leave such out with --skip-impossible.")
    grid = Grid(tuple(points.values()), seeds, tuple(faults))
    if grid.runs > MOST_RUNS:
        raise BadGrid(f"That is {grid.runs:,} runs: at most {MOST_RUNS:,} at once. {SHARE}")
    return grid


def _checks(found: Any) -> str:
    if not isinstance(found, str) or found not in CHECKS:
        raise BadGrid(f"checks is {found!r}: give one of {', '.join(CHECKS)}.")
    return found


def _combined(tables: Mapping[str, Any]) -> Iterator[tuple[Params, Params]]:
    settings = [_axes(_table("settings", it), SETTINGS, "setting") for it in _blocks(tables.get("settings", {}))]
    blocks = [_churn_axes(block) for block in _blocks(tables.get("churn", {}))]
    count = sum(map(_size, settings)) * sum(map(_size, blocks))
    if count > MOST_RUNS:
        raise BadGrid(f"That is {count:,} combinations: at most {MOST_RUNS:,} at once. Give fewer values of something.")
    chosen = [_with_sessions(it) for axes in settings for it in _combinations(axes)]
    for axes in blocks:
        yield from product(chosen, [_as_params(it) for it in _combinations(axes)])


def _blocks(found: Any) -> list[Any]:
    return found if isinstance(found, list) and found else [found]


def _churn_axes(block: Any) -> Axes:
    axes = _axes(_table("churn", block), PARAMETERS, "parameter of a churn")
    for name in axes.get("base", []):
        known("churn", str(name), CHURNS)
    return axes


def _size(axes: Axes) -> int:
    return math.prod(map(len, axes.values()))


def _as_params(words: Params) -> Params:
    """Names as the kernel has them."""
    return {"churn" if name == "base" else name: value for name, value in words.items()}


def _point(params: Params) -> Point:
    scenario, changes = Row.read({**params, "seed": 0}).scenario, dict(params)
    story: Params = {name: changes.pop(name) for name in ("churn", "checks") if name in changes}
    own = {name: value for name, value in changes.items() if name not in SETTINGS}
    story["churn"] = Churn.of(story.get("churn", DEFAULT_CHURN)).changed(**own).table()
    shape = _digest(story).hex()[:8]
    whole = {**story, **attrs.asdict(scenario.settings), "kernel": VERSION}
    return Point(params, _digest(whole), f"{shape}/{scenario.settings.heartbeat_interval_ms}")


def _digest(words: Mapping[str, Any]) -> bytes:
    return hashlib.blake2b(json.dumps(words, sort_keys=True).encode(), digest_size=16).digest()


def seeds_of(value: Any) -> tuple[int, ...]:
    """Parses ``"1..100"``, a number, or a list of both.

    Raises:
        BadGrid: it is none of these.
    """
    ranges = [_range(word) for word in (value if isinstance(value, list | tuple) else [value])]
    count = sum(it.stop - it.start for it in ranges)
    if count > MOST_RUNS:
        raise BadGrid(f"That is {count:,} runs: at most {MOST_RUNS:,} at once. {SHARE}")
    return tuple(dict.fromkeys(seed for it in ranges for seed in it))


def known(kind: str, name: str, names: Iterable[str]) -> str:
    """Returns the name as it is spelled there, with ``_ms`` added where it was left out.

    Raises:
        BadGrid: it is not among them; the message has similar names.
    """
    names = list(names)
    for spelled in (name, name.replace("-", "_"), f"{name.replace('-', '_')}_ms"):
        if spelled in names:
            return spelled
    near = difflib.get_close_matches(name, names, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}."
    raise BadGrid(f"There is no {kind} {name!r}; {hint}")


def some(faults: Sequence[str]) -> str:
    """The first few of them."""
    distinct = list(dict.fromkeys(faults))
    more = f" And {len(distinct) - SHOWN} more." if len(distinct) > SHOWN else ""
    return " ".join(f"{it.rstrip('.')}." for it in distinct[:SHOWN]) + more


def _table(name: str, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise BadGrid(f"{name} is {found!r}: give a table of names and values.")
    return found


def _axes(table: Mapping[str, Any], names: Sequence[str], kind: str) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for name, value in table.items():
        spelled = known(kind, name, names)
        values = value if _is_axis(spelled, value) else [value]
        if not values:
            raise BadGrid(f"{name} has no value.")
        if spelled in axes:
            raise BadGrid(f"{spelled} is given twice, once as {name}.")
        axes[spelled] = [_plain(spelled, it) for it in values]
    return axes


def _is_axis(name: str, value: Any) -> bool:
    if name == "capacities":  # which is a list itself
        return isinstance(value, list) and bool(value) and isinstance(value[0], list)
    return isinstance(value, list)


def _combinations(axes: Axes) -> Iterator[Params]:
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _plain(name: str, value: Any) -> Any:
    """A duration in ms, if it is one."""
    if isinstance(value, Mapping) and name != "drain_ms_of":
        raise BadGrid(f"{name} is {value!r}: give a value or a list of values.")
    if name not in DURATIONS or not isinstance(value, str) or value.startswith("session"):
        return value
    try:
        return duration_ms(value)
    except ValueError as error:
        raise BadGrid(f"{name}: {error}, or session, session/3, session*2.") from None


def _with_sessions(words: Params) -> Params:
    """Resolves times that were given as multiples of the session timeout."""
    session_ms = words.get("session_timeout_ms", GroupSettings().session_timeout_ms)
    return {name: _relative(value, session_ms) for name, value in words.items()}


def _relative(value: Any, session_ms: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("session"):
        return value
    found = re.fullmatch(r"session(?:([*/])(\d+(?:\.\d+)?))?", value)
    if found is None or not isinstance(session_ms, int) or (found[2] and float(found[2]) == 0):
        raise BadGrid(f"{value!r} is not a multiple of the session timeout: write session, session/3 or session*2.")
    factor = float(found[2] or 1)
    return int(session_ms / factor if found[1] == "/" else session_ms * factor)


def _range(word: Any) -> range:
    found = re.fullmatch(r"\s*(\d+)(?:\.\.(\d+))?\s*", str(word))
    if found is None or isinstance(word, bool) or (found[2] and int(found[2]) < int(found[1])):
        raise BadGrid(f"{word!r} is neither a seed nor a range like 1..100.")
    return range(int(found[1]), int(found[2] or found[1]) + 1)
