"""Finds the churn: a name, a file, or the output of ``calibrate``; and what is known of today's settings."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import attrs

from cobalance.coordinator.advice import command
from cobalance.errors import UsageError
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.drawing import DrawnChurns, Open
from cobalance_sims.calibrate.of_group import NOT_TO_COLLECT
from cobalance_sims.calibrate.parameter import Basis
from cobalance_sims.calibrate.written import CHECK, CHURN, KNOWN
from cobalance_sims.records import JOURNAL
from cobalance_sims.simulate.churn import CHURNS, Churn


class BadSource(UsageError):
    """There is no such churn."""


@attrs.frozen(kw_only=True)
class ChurnSource:
    """A churn, and where it comes from."""

    churn: Churn
    today: dict[str, int | str] = attrs.field(factory=dict)
    """Settings that were in force when it was observed, as far as known."""
    group: str | None = None
    """The group whose journal it was calibrated from, if it was one group's."""
    bases: dict[str, Basis] = attrs.field(factory=dict)
    """What each calibrated parameter rests on. Empty for a churn that was named or written by hand."""
    open: Open = attrs.field(factory=dict)
    """What the calibration leaves open of its parameters."""
    notes: dict[str, str] = attrs.field(factory=dict)
    """What to collect for parameters that are not well known."""
    span: tuple[int, int] | None = None
    """From when to when that journal was, in group time."""
    check: dict[str, Any] = attrs.field(factory=dict)
    """How a calibrated churn compares with its journal, as verify/check.py writes it."""

    @property
    def knows_messages(self) -> bool:
        """Whether the churn's messages are more than an assumption: a group without a broker has none."""
        return not any(self.bases.get(name) == "assumed" for name in ("messages_per_s", "handle_ms"))

    @property
    def is_compared(self) -> bool:
        """Whether the journal had enough of any figure to compare the churn with it."""
        return any(it["agreement"] != "unknown" for it in self.check.get("figures", ()))

    @property
    def mismatches(self) -> list[str]:
        """In what the churn does not do what its journal shows."""
        return [str(it) for it in self.check.get("mismatches", ())]

    @property
    def churns(self) -> DrawnChurns:
        """A churn for each seed."""
        return DrawnChurns(self.churn, self.open)

    def settings(self) -> GroupSettings:
        """Today's settings; unknown ones have their default."""
        return GroupSettings(**self.today)  # type: ignore[arg-type]  # GroupSettings checks them


def find(text: str) -> ChurnSource:
    """Finds a churn by name, a JSON or TOML file of one, or the folder of a calibration.

    Raises:
        BadSource: there is none, or it cannot be read.
        BadChurn: its content is not a churn.
    """
    if text in CHURNS:
        return ChurnSource(churn=CHURNS[text])
    path = Path(text)
    if path.is_dir():
        return _calibrated(path)
    if path.is_file():
        return ChurnSource(churn=Churn.of(_table(path)))
    raise BadSource(
        f"There is no churn {text!r}: give a file, the folder of a calibration, or one of {', '.join(CHURNS)}."
    )


def _calibrated(folder: Path) -> ChurnSource:
    if not (folder / CHURN).is_file():
        raise BadSource(
            f"{folder} holds no {CHURN}: make it with {command('sims calibrate …', key_prefix=None, out=folder)}."
        )
    churn = Churn.of(_table(folder / CHURN))
    if not (folder / KNOWN).is_file():
        return ChurnSource(churn=churn)
    try:
        known = _known(churn, _table(folder / KNOWN))
        return attrs.evolve(known, check=_table(folder / CHECK)) if (folder / CHECK).is_file() else known
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise BadSource(
        f"{folder / KNOWN} is not of the form that this version reads ({problem}): run cobalance sims calibrate again."
    )


def _known(churn: Churn, known: dict[str, Any]) -> ChurnSource:
    parameters, runs, today = known.get("parameters", []), known.get("runs", []), known.get("settings", {})
    if strange := sorted(set(today) - set(attrs.fields_dict(GroupSettings))) or not isinstance(today, dict):
        raise TypeError(f"there are no such settings: {strange}")
    spans = known.get("group", {}).get("spans", [])
    is_group = len(runs) == 1 and known.get("source", JOURNAL) == JOURNAL
    return ChurnSource(
        churn=churn,
        today=today,
        group=runs[0] if is_group else None,
        span=(spans[0]["from_ms"], spans[0]["to_ms"]) if is_group and spans else None,
        bases={it["name"]: it["basis"] for it in parameters},
        open={it["name"]: it["open"] for it in parameters if it.get("open")},
        notes={it["name"]: it["note"] for it in parameters if _is_to_collect(it)},
    )


def _is_to_collect(parameter: dict[str, Any]) -> bool:
    return bool(parameter["basis"] != "measured" and parameter["note"] and parameter["name"] not in NOT_TO_COLLECT)


def _table(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise BadSource(f"{path} is not {'TOML' if path.suffix == '.toml' else 'JSON'}: {error}.") from None
    if not isinstance(found, dict):
        raise BadSource(f"{path} holds no table of parameters.")
    return found
