"""One row of a sweep: parameters in, events, handovers and an outcome out. Pure Python, determined by the seed, without
Spark.

It runs what users run, the coordinator's own Lua files and the production session, in virtual time. ``run_row`` raises
for invalid parameters; a broken promise is an outcome whose status is ``failed``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from cobalance.coordinator.advice import command
from cobalance.coordinator.memory.lua_engine import ENGINES
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.errors import UsageError
from cobalance.limits import parse_json
from cobalance.settings import GroupSettings
from cobalance_sims.outcomes import Event, RunFacts, fold
from cobalance_sims.records import FAILED, OK, SIM
from cobalance_sims.simulate.checks import ALL, L1, L2, L3, S1, S3, S5, Check
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.simulate.recorder import Recorder
from cobalance_sims.simulate.run import Run, RunOutcome
from cobalance_sims.simulate.scenario import Scenario
from cobalance_sims.simulate.server import START_MS

VERSION = "5"
"""Version of the kernel: another one may give other events for the same parameters, so sweeps do not mix versions. A
new field of Churn or GroupSettings gives every run another id anyway.
"""

CHECKS: dict[str, tuple[type[Check], ...]] = {"none": (), "cheap": (S1, S3, S5, L1, L2, L3), "all": ALL}
"""What a run checks. A broken promise reports the run's seed and command; ``cobalance sims run`` checks everything."""

DEFAULT_CHURN = "rolling_deploy"
"""The churn if none is named."""

NOT_IN_ROWS = ("journal_length", "idle_expiry_ms")
"""Settings without a column in records.py."""

_EXAMPLE = '{"churn": "rolling_deploy", "seed": 1}'
_OWN = ("run", "churn", "seed", "checks", "lua")
_SETTINGS = tuple(field.name for field in attrs.fields(GroupSettings))


class BadParameters(UsageError):
    """The parameters are invalid; the message names the one at fault and says what is accepted."""


@attrs.frozen
class RowResult:
    """The result of a run. Rows are tuples in the order of the columns in records.py."""

    events: list[Event]
    handovers: list[tuple[Any, ...]]
    outcome: tuple[Any, ...]


@attrs.frozen
class Row:
    params: dict[str, Any]
    name: str
    scenario: Scenario
    seed: int
    checks: str
    lua: str | None

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> Row:
        """Reads a flat mapping (or JSON object): ``churn`` (a name in CHURNS, or a table), ``seed``, ``checks`` (none,
        cheap or all), ``lua``; any setting of a group; any parameter of a churn. Missing values default to those of the
        churn, or :class:`GroupSettings`. ``run`` may name the run.

        Raises:
            BadParameters, BadChurn, InvalidSettings: the parameters are invalid.
        """
        given = {name: value for name, value in params.items() if value is not None}
        seed, checks, lua = given.get("seed", 0), given.get("checks", "cheap"), given.get("lua")
        if type(seed) is not int or seed < 0:
            raise BadParameters(f"seed is {seed!r}: give a whole number of at least 0")
        if checks not in CHECKS:
            raise BadParameters(f"checks is {checks!r}: give one of {', '.join(CHECKS)}")
        if lua is not None and lua not in ENGINES:
            raise BadParameters(f"lua is {lua!r}: give one of {', '.join(ENGINES)}")
        story = _scenario(given)
        return cls(given, str(given.get("run", "run")), story, seed, checks, lua)

    @classmethod
    def parse(cls, text: str, **changes: Any) -> Row:
        """Parses JSON and applies changes that are not ``None``.

        Raises:
            BadParameters, BadChurn, InvalidSettings: the parameters are invalid.
        """
        try:
            params = parse_json(text, dict)
        except ValueError as error:
            raise BadParameters(f"the parameters are no JSON object ({error}): give one such as {_EXAMPLE}") from error
        return cls.read(params | {name: it for name, it in changes.items() if it is not None})

    @property
    def text(self) -> str:
        """The parameters as JSON."""
        plain = {name: it.table() if isinstance(it, Churn) else it for name, it in self.params.items()}
        return json.dumps(plain, sort_keys=True)

    @property
    def replay(self) -> str:
        """The command that replays the run and shows all that happens in it."""
        return command("sims run", key_prefix=None, params=self.text)

    def run(self, *, verbose: bool = False, checks: str | None = None, store: MemoryStore | None = None) -> Run:
        """Prepares the run without starting it."""
        checkers = CHECKS[checks or self.checks]
        return Run(
            self.scenario,
            self.seed,
            lua=self.lua,
            checks=checkers,
            verbose=verbose,
            traced=verbose,
            store=store,
            replay=self.replay,
        )


def _scenario(given: dict[str, Any]) -> Scenario:
    settings = {name: given[name] for name in _SETTINGS if name in given}
    others = {name: value for name, value in given.items() if name not in _OWN and name not in _SETTINGS}
    return Churn.of(given.get("churn", DEFAULT_CHURN)).changed(**others).scenario(GroupSettings(**settings))


def run_row(params: Mapping[str, Any]) -> RowResult:
    """Runs one row; see :meth:`Row.read` for the parameters.

    Raises:
        BadParameters, BadChurn, InvalidSettings: the parameters are invalid.
    """
    return result_of(Row.read(params))


def result_of(row: Row) -> RowResult:
    """Runs it; returns the result in the columns of records.py."""
    store = _take_store(row.lua)
    run = row.run(store=store)
    recorder = Recorder(run.world, row.name)
    run.world.watch.add(recorder)
    run.on_calm = recorder.stop  # type: ignore[method-assign]  # made for that
    finished = run.tell()
    recorder.stop()
    _STORES.setdefault(store.engine, []).append(store)
    known = RunFacts(START_MS, START_MS + recorder.observed_ms, _header(row, finished, recorder))
    folded = fold(recorder.events, row.name, SIM, known)
    return RowResult(recorder.events, folded.handovers, folded.outcome)


_STORES: dict[str, list[MemoryStore]] = {}
"""Used stores, by engine: compiling the scripts again would take longer than most runs."""


def _take_store(lua: str | None) -> MemoryStore:
    """A store that no other thread uses."""
    for engine in [lua] if lua else ENGINES:
        try:
            return _STORES[engine].pop()
        except LookupError:
            continue
    return MemoryStore(lua=lua)


def _header(row: Row, finished: RunOutcome, recorder: Recorder) -> dict[str, Any]:
    scenario = row.scenario
    settings = attrs.asdict(scenario.settings)
    for name in NOT_IN_ROWS:
        settings.pop(name)
    return {
        **settings,
        "churn": scenario.name,
        "seed": row.seed,
        "members": scenario.members,
        "resources": scenario.resources,
        "params": row.text,
        "kernel": VERSION,
        "status": FAILED if finished.failure else OK,
        "error": finished.failure or None,
        "replay": row.replay,
        "crashes": recorder.crashes,
        "pauses": recorder.pauses,
        "silent_resource_ms": recorder.silent_resource_ms,
        "duplicates_at_risk": recorder.duplicates_at_risk,
        "cpu_s": finished.cpu_s,
    }
