"""``cobalance sims sweep``: simulates a grid of settings, churn and seeds on Spark, into Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console

from cobalance.cli.exits import FAILED, OK
from cobalance.cli.options import duration_option
from cobalance.cli.sims.places import check_target
from cobalance.cli.sims.spark_options import HERE, SparkOptions
from cobalance.errors import counted
from cobalance_sims.spark.grid import PARAMETERS, SETTINGS, Grid, known, make_grid, read_grid, some
from cobalance_sims.spark.interruption import interruptible, quiet_interrupts

SHOWN = 20
"""The most failed runs that are listed."""

EPILOGUE = """\
A value may be given several times, and every combination is simulated: --session-timeout 6s 10s --seeds 1..50. Settings are
those of `cobalance group configure`. --base names the churn to start from; `cobalance sims run --help` lists them. Parameters of
churn are such as --members 4 8 --deploy rolling surge --drain lognormal:200:1.0; an unknown name is answered with those that there are;
times relative to the session timeout are written session, session/3, session*2. What is given here replaces the same in GRID.

The same command again makes only what is missing, after an interruption or with a larger grid. Exit codes: 0 all runs kept
their promises, 1 some failed (they are listed with the command that replays them), 2 wrong usage.
"""

app = App(name="sweep", help_epilogue=EPILOGUE)


@app.default
def sweep(
    grid: Annotated[
        Path | None,
        Parameter(
            help="A TOML file with seeds, [[settings]] and [[churn]] tables; the README of cobalance_sims shows one."
        ),
    ] = None,
    /,
    *,
    out: Annotated[str, Parameter(help="Folder or URI; a new one, or that of an earlier sweep.")],
    seeds: Annotated[
        tuple[str, ...],
        Parameter(
            negative="", show_default=False, consume_multiple=True, help="Seeds, such as 7 or 1..100; 1..10 by default."
        ),
    ] = (),
    checks: Annotated[
        Literal["none", "cheap", "all"] | None, Parameter(help="Promises checked during the runs; cheap by default.")
    ] = None,
    events: Annotated[
        float, Parameter(validator=Number(gte=0, lte=1), help="Share of the runs whose events are kept.")
    ] = 1.0,
    wave: Annotated[int, duration_option("wave", "How much work an interruption may cost.", "2m")] = 120_000,
    skip_impossible: Annotated[
        bool, Parameter(negative="", help="Leave out combinations that contradict themselves.")
    ] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Only print the number of runs.")] = False,
    spark: SparkOptions = HERE,
    **values: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True, show=False)],
) -> int:
    """Simulate a grid of settings, churn and seeds on Spark."""
    tables = _tables(grid, values)
    tables.update({name: it for name, it in (("seeds", list(seeds)), ("checks", checks)) if it})
    made = make_grid(tables, skip_impossible=skip_impossible)
    _say(f"{counted(len(made.points), 'combination')}, {counted(len(made.seeds), 'seed')}: {counted(made.runs, 'run')}")
    if made.skipped:
        _say(
            f"{counted(len(made.skipped), 'impossible combination is', 'impossible combinations are')} left out: {some(made.skipped)}"
        )
    return OK if dry_run else _sweep(made, out, events, wave, spark)


def _sweep(grid: Grid, out: str, events: float, wave_ms: int, options: SparkOptions) -> int:
    check_target(out)
    with (
        interruptible(
            lambda: f"all finished waves are kept in {out}; the same command goes on from there"
        ) as interrupted,
        options.session() as spark,
        quiet_interrupts(interrupted),
    ):
        from cobalance_sims.spark.progress import SweepProgress
        from cobalance_sims.spark.sweep import Sweep

        sweep = Sweep(spark=spark, out=out, events_share=events, wave_s=wave_ms / 1000)
        done = sweep.run(grid, SweepProgress(Console(stderr=True)))
    _say(f"{counted(done.made, 'run')} made, {counted(done.there, 'was', 'were')} there; all are in {sweep.out}")
    if done.failed:
        _say(f"{len(done.failed):,} FAILED:")
        for row in done.failed[:SHOWN]:
            _say(f"FAILED {row['run']}: {row['error']}\nreplay: {row['replay']}")
        if len(done.failed) > SHOWN:
            _say(f"and {len(done.failed) - SHOWN:,} more: they have status 'failed' in {sweep.out}/outcomes")
    return FAILED if done.failed else OK


def _say(text: str) -> None:
    print(text, flush=True)


def _tables(grid: Path | None, values: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The grid of the file, overridden by the settings and parameters given as options."""
    tables = read_grid(grid) if grid else {}
    given = {
        known("option", name, (*SETTINGS, *PARAMETERS)): [_value(it) for it in words] for name, words in values.items()
    }
    for part, names in (("settings", SETTINGS), ("churn", PARAMETERS)):
        blocks = tables.setdefault(part, {})
        for block in blocks if isinstance(blocks, list) else [blocks]:
            _put_over(
                block, names, {name: it for name, it in given.items() if (name in SETTINGS) == (part == "settings")}
            )
    return tables


def _put_over(table: Any, names: Sequence[str], given: dict[str, Any]) -> None:
    if not given or not isinstance(table, dict):
        return
    for word in [word for word in table if known("name", word, names) in given]:
        del table[word]
    table.update(given)


def _value(word: str) -> Any:
    """Parses numbers and booleans; other text stays text."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(word.lower(), word)
