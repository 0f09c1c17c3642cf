"""``cobalance sims sweep``: a grid of settings, churn and seeds, simulated on Spark into Parquet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from cobalance.cli.options import duration_ms
from cobalance_sims.spark.errors import INSTALL, SparkMissing
from cobalance_sims.spark.grid import PARAMETERS, SETTINGS, Grid, known, make_grid, read_grid, some
from cobalance_sims.spark.interruption import quiet_interrupts, sigterm_interrupts

FAILED, USAGE = 1, 2
SHOWN = 20
"""So many failed runs are listed."""

EPILOG = """\
A value may be given several times, and every combination is simulated: --session-timeout 6s 10s --seeds 1..50. Settings are
those of `cobalance group configure`, parameters of churn those of cobalance_sims/simulate/churn.py (--base names one to start from);
times that go by the session timeout are written session, session/3, session*2. What is given here replaces the same in GRID.

The same command again makes only what is missing, after an interruption or with a larger grid. Exit codes: 0 all runs kept
their promises, 1 some failed (they are listed with the command that tells them again), 2 wrong usage.
"""


def main(words: Sequence[str]) -> int:
    """Runs the command; its exit code."""
    parser = _parser()
    try:
        options = parser.parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    grid = make_grid(_tables(options), skip_impossible=options.skip_impossible)
    _say(f"{len(grid.points):,} combinations, {len(grid.seeds):,} seeds: {grid.runs:,} runs")
    if grid.skipped:
        _say(f"{len(grid.skipped):,} impossible combinations are left out: {some(grid.skipped)}")
    return 0 if options.dry_run else _sweep(options, grid)


def _sweep(options: argparse.Namespace, grid: Grid) -> int:
    try:
        from cobalance_sims.spark.progress import Told
        from cobalance_sims.spark.session import session_of
        from cobalance_sims.spark.sweep import Sweep
    except ImportError as error:
        raise SparkMissing(f"Spark cannot be loaded ({error}): {INSTALL}") from None
    with sigterm_interrupts(), session_of(options) as spark, quiet_interrupts():
        sweep = Sweep(spark=spark, out=options.out, events_share=options.events, wave_s=options.wave / 1000)
        try:
            done = sweep.run(grid, Told(Console(stderr=True)))
        except KeyboardInterrupt:
            sys.stderr.write(f"All finished waves are kept in {sweep.out}; the same command goes on from there.\n")
            raise
    _say(f"{done.made:,} runs made, {done.there:,} were there; all are in {sweep.out}")
    if done.failed:
        _say(f"{len(done.failed):,} FAILED:")
        for row in done.failed[:SHOWN]:
            _say(f"FAILED {row['run']}: {row['error']}\nreplay: {row['replay']}")
        if len(done.failed) > SHOWN:
            _say(f"and {len(done.failed) - SHOWN:,} more: they have status 'failed' in {sweep.out}/outcomes")
    return FAILED if done.failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    from cobalance_sims.spark.session import add_spark_options

    parser = argparse.ArgumentParser(
        prog="cobalance sims sweep",
        description="Simulate a grid of settings, churn and seeds on Spark.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "grid", nargs="?", type=Path, metavar="GRID", help="a TOML file; see cobalance_sims/spark/grid.py"
    )
    parser.add_argument("--out", required=True, help="folder or URI: a new one, or one of an earlier sweep")
    parser.add_argument("--seeds", nargs="+", metavar="A..B", help="1..10 by default")
    parser.add_argument(
        "--checks", choices=("none", "cheap", "all"), help="promises checked on the way; cheap by default"
    )
    parser.add_argument(
        "--events", type=_share, default=1.0, metavar="SHARE", help="of the runs, whose events are kept; 1 by default"
    )
    parser.add_argument(
        "--wave",
        type=_duration,
        default=120_000,
        metavar="TIME",
        help="how much work an interruption may cost; 2m by default",
    )
    parser.add_argument(
        "--skip-impossible", action="store_true", help="leave out combinations that contradict themselves"
    )
    parser.add_argument("--dry-run", action="store_true", help="say how many runs it would be")
    add_spark_options(parser)
    for title, names in (("settings", SETTINGS), ("churn", PARAMETERS)):
        group = parser.add_argument_group(title)
        for name in names:
            flag = f"--{name.removesuffix('_ms').replace('_', '-')}"
            group.add_argument(flag, nargs="+", dest=f"{title}.{name}", metavar="VALUE", help=argparse.SUPPRESS)
    return parser


def _tables(options: argparse.Namespace) -> dict[str, Any]:
    """The grid of the file, with what was given as arguments put over it."""
    tables = read_grid(options.grid) if options.grid else {}
    for name in ("seeds", "checks"):
        if getattr(options, name) is not None:
            tables[name] = getattr(options, name)
    _put_over(tables, "settings", _given(options, "settings"))
    blocks = tables.get("churn", {})
    for block in blocks if isinstance(blocks, list) else [blocks]:
        _put_over({"churn": block}, "churn", _given(options, "churn"))
    tables["churn"] = blocks
    return tables


def _put_over(tables: dict[str, Any], name: str, given: dict[str, Any]) -> None:
    table = tables.setdefault(name, {})
    if not given or not isinstance(table, dict):
        return
    names = SETTINGS if name == "settings" else PARAMETERS
    for word in [word for word in table if known(name, word, names) in given]:
        del table[word]
    table.update(given)


def _given(options: argparse.Namespace, title: str) -> dict[str, list[Any]]:
    found = {}
    for name, words in vars(options).items():
        if name.startswith(f"{title}.") and words is not None:
            found[name.removeprefix(f"{title}.")] = [_value(word) for word in words]
    return found


def _value(word: str) -> Any:
    """Numbers and truth values as such; text stays text."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(word.lower(), word)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: give a number from 0 to 1")
    return share


def _duration(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
