"""``cobalance sims run``: one run, told line by line."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import App, Parameter

from cobalance.cli.exits import FAILED, OK
from cobalance.errors import UsageError
from cobalance_sims.simulate.churn import CHURNS

app = App(name="run")


@app.default
def run(
    churn: Annotated[str | None, Parameter(help=f"One of {', '.join(CHURNS)}.")] = None,
    /,
    *,
    params: Annotated[
        str | None, Parameter(help="A row of a sweep instead: its parameters as JSON, as its replay has them.")
    ] = None,
    seed: Annotated[int | None, Parameter(help="0 by default.")] = None,
    quiet: Annotated[bool, Parameter(negative="", help="The verdict only.")] = False,
    tail: Annotated[int | None, Parameter(help="Only that many of the last lines.")] = None,
    lua: Annotated[str | None, Parameter(help="The engine; the fastest there is by default.")] = None,
) -> int:
    """Tell one run of a churn, and check every promise after every step.

    Exit code 1 when a promise was broken. These are more checks than a sweep has: what it found is found again, and perhaps more is.
    """
    from cobalance_sims.simulate.kernel import Row

    if (churn is None) == (params is None):
        raise UsageError(f"Give --params, or the name of a churn: {', '.join(CHURNS)}.")
    row = Row.parse(params or json.dumps({"churn": churn}), seed=seed, lua=lua)
    outcome = row.run(verbose=True, checks="all").tell()
    if not quiet:
        print("\n".join(outcome.lines if tail is None else outcome.lines[-tail:]))
    print(outcome.verdict)
    return FAILED if outcome.failure else OK
