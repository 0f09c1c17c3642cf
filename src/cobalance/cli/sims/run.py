"""``cobalance sims run``: one run, line by line."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import App, Parameter

from cobalance.cli.exits import FAILED, OK
from cobalance.cli.options import Json
from cobalance.cli.output import print_json
from cobalance.errors import UsageError
from cobalance_sims.simulate.churn import CHURNS

app = App(name="run")


@app.default
def run(
    churn: Annotated[str | None, Parameter(help=f"One of {', '.join(CHURNS)}.")] = None,
    /,
    *,
    params: Annotated[
        str | None, Parameter(help="Instead, a row of a sweep: its parameters as JSON, as in its replay.")
    ] = None,
    seed: Annotated[int | None, Parameter(help="0 by default.")] = None,
    as_json: Json = False,
    quiet: Annotated[bool, Parameter(negative="", help="Print the verdict only.")] = False,
    tail: Annotated[int | None, Parameter(help="Print only the last lines, this many.")] = None,
    lua: Annotated[str | None, Parameter(help="The Lua engine; by default the fastest available.")] = None,
) -> int:
    """Show one run of a churn, and check every promise after every step.

    The exit code is 1 if a promise was broken. A run has more checks than a sweep, so it finds everything that the
    sweep found, and perhaps more.
    """
    from cobalance_sims.simulate.kernel import Row

    if (churn is None) == (params is None):
        raise UsageError(f"Give --params, or the name of a churn: {', '.join(CHURNS)}.")
    row = Row.parse(params or json.dumps({"churn": churn}), seed=seed, lua=lua)
    outcome = row.run(verbose=True, checks="all").tell()
    lines = [] if quiet else outcome.lines if tail is None else outcome.lines[-tail:]
    if as_json:
        print_json({"verdict": outcome.verdict, "failure": outcome.failure or None, "lines": lines})
    else:
        print("\n".join([*lines, outcome.verdict]))
    return FAILED if outcome.failure else OK
