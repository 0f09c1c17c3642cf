"""``cobalance sims tune``: which timeouts a group should run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cobalance.cli.options import duration_ms
from cobalance.errors import CobalanceError, UsageError
from cobalance.names import validate_name
from cobalance.redact import redact
from cobalance.settings import GroupSettings
from cobalance_sims.commands.places import check_file, writing
from cobalance_sims.commands.redis_options import add_key_prefix
from cobalance_sims.simulate.churn import CHURNS
from cobalance_sims.spark.errors import INSTALL, SparkMissing
from cobalance_sims.spark.journal_options import DEFAULT_VARIABLE
from cobalance_sims.tune.costs import COSTS

if TYPE_CHECKING:
    from cobalance_sims.tune.preferences import Preferences
    from cobalance_sims.tune.source import Source
    from cobalance_sims.tune.trials import Runner

FAILED, USAGE, REFUSED = 1, 2, 5

EPILOG = (
    "Costs that may be limited and weighed (NAME, its weight by default in resource-seconds of standstill, what it is):\n"
    + "\n".join(f"  {it.name:<15}{it.weight:<8g}{it.meaning}, {it.unit}" for it in COSTS.values())
    + "\n\nExit codes: 0 there is a recommendation (or today's settings are as good), 1 it failed, 2 wrong usage, 5 it refuses to\n"
    "recommend anything, and says why and what would help. Runs are kept in FILE.runs until there is a recommendation: after an\n"
    "interruption, or with more seeds, the same command goes on with them.\n"
)


def main(words: Sequence[str]) -> int:
    """Runs the command; its exit code."""
    try:
        options = _parser().parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    try:
        return _tune(options)
    except CobalanceError as error:
        sys.stderr.write(f"error: {error}\n")
        return USAGE if isinstance(error, UsageError) else FAILED


def _parser() -> argparse.ArgumentParser:
    from cobalance_sims.spark.session import add_spark_options

    parser = argparse.ArgumentParser(
        prog="cobalance sims tune",
        description="Recommend session, revocation, heartbeat, grace and gathering times for a churn and your preferences.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--churn",
        required=True,
        metavar="CHURN",
        help=f"the folder of a calibration, a JSON or TOML file, or one of {', '.join(CHURNS)}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("tune.json"),
        help="for cobalance sims report; tune.json by default",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="a cost that must not be exceeded; repeatable",
    )
    parser.add_argument("--max-duplicates-per-day", type=float, metavar="N", help="the same as --limit duplicates=N")
    parser.add_argument("--heal-within-s", type=float, metavar="S", help="the same as --limit heal=S")
    parser.add_argument(
        "--weight", action="append", default=[], metavar="NAME=NUMBER", help="what one less is worth; repeatable"
    )
    parser.add_argument(
        "--search",
        nargs="+",
        default=[],
        metavar="SETTING",
        help="only these; by default all that the churn tells about",
    )
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="for the command that makes the change; with --redis-url its settings are today's",
    )
    parser.add_argument("--redis-url", metavar="URL", help="where the group is")
    add_key_prefix(parser)
    parser.add_argument(
        "--today",
        action="append",
        default=[],
        metavar="SETTING=TIME",
        help="today's, if they are neither known nor the defaults",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=64,
        metavar="N",
        help="runs of each choice that is judged; half of that in the search; 64 by default",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="by which something else may be cheaper; 0.1 by default",
    )
    parser.add_argument("--in-process", action="store_true", help="without Spark, on one core: for few runs")
    add_spark_options(parser)
    return parser


def _tune(options: argparse.Namespace) -> int:
    from cobalance_sims.tune.axes import choose
    from cobalance_sims.tune.kept import Kept
    from cobalance_sims.tune.source import find
    from cobalance_sims.tune.tuning import tune
    from cobalance_sims.tune.written import as_json, page

    if options.seeds < 4 or not 0 < options.tolerance < 1:
        raise UsageError("Give at least 4 --seeds, and a --tolerance between 0 and 1.")
    check_file(options.out)
    if options.group:
        validate_name("group", options.group)
    source = find(options.churn)
    preferences, chosen, (today, unknown) = (
        _preferences(options),
        choose(source, options.search),
        _today(options, source),
    )
    group = options.group or source.group or "GROUP"
    if not chosen.axes:
        return _refuse_to_search(chosen.left)
    kept = options.out.with_name(f"{options.out.name}.runs")
    with _runner(options, source) as runner:
        runs = Kept(runner, kept, source.churn)
        if runs.count:
            _progress(f"{kept}: {runs.count:,} runs of a search that was interrupted, or refused, are taken up")
        found = tune(runs, today, chosen, preferences, seeds=options.seeds, tolerance=options.tolerance, told=_progress)
    sys.stdout.write(page(found, group=group, unknown=unknown))
    sys.stdout.writelines([*whereabouts(options.redis_url), *_little(source)])
    written = as_json(found, churn=source.churn.table(), group=group, unknown=unknown)
    with writing(options.out):
        options.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    if found.verdict.decision == "refused":
        return REFUSED  # the runs are kept: with more seeds, they count as well
    kept.unlink(missing_ok=True)
    return 0


def whereabouts(redis_url: str | None) -> list[str]:
    """Which Redis the command is for. Its URL may hold a password, so it is not part of the command."""
    if redis_url is None:
        return []
    return [f"The command is for the Redis at {redact(redis_url)}: have its URL in {DEFAULT_VARIABLE} for it.\n"]


def _little(source: Source) -> list[str]:
    """What of the churn is not well known, so that everything here is no surer than that."""
    words = {"few": "rests on little", "assumed": "is assumed"}
    return [f"{name} {words[source.bases[name]]}: {note}.\n" for name, note in source.notes.items()]


def _refuse_to_search(left: dict[str, str]) -> int:
    sys.stdout.write("NO RECOMMENDATION\nThe calibration tells too little of any setting:\n")
    sys.stdout.writelines(f"  {name}: {why}.\n" for name, why in left.items())
    sys.stdout.write("Collect more, or name what is to be searched all the same with --search.\n")
    return REFUSED


def _progress(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _preferences(options: argparse.Namespace) -> Preferences:
    from cobalance_sims.tune.preferences import Preferences, parse

    given = (("duplicates", options.max_duplicates_per_day), ("heal", options.heal_within_s))
    words = [f"{name}={value}" for name, value in given if value is not None]
    return Preferences(parse([*options.limit, *words], "limit"), parse(options.weight, "weight"))


def _today(options: argparse.Namespace, source: Source) -> tuple[GroupSettings, tuple[str, ...]]:
    """As the group has them, or as the calibration knows them; what is given goes before both. And which times nobody has told."""
    given = dict(_given(word) for word in options.today)
    known = {*given, *source.today}
    if options.redis_url:
        from cobalance.coordinator.client import Coordinator
        from cobalance.coordinator.open import open_transport

        if not options.group:
            raise UsageError("--redis-url needs --group NAME, whose settings are read there.")
        transport = open_transport(options.redis_url)
        try:
            settings = Coordinator(transport, options.group, key_prefix=options.key_prefix).settings()
            known = {*attrs.asdict(settings)}
        finally:
            transport.close()
    else:
        settings = source.settings()
    today = attrs.evolve(settings, **given)  # type: ignore[arg-type]  # mode is not among them
    return today, tuple(name for name in attrs.asdict(today) if name.endswith("_ms") and name not in known)


def _given(word: str) -> tuple[str, int]:
    name, _, time = word.partition("=")
    plain = f"{name.strip('-').replace('-', '_').removesuffix('_ms')}_ms"
    try:
        if plain not in attrs.asdict(GroupSettings()):
            raise ValueError(f"there is no setting {name!r}")
        return plain, duration_ms(time)
    except ValueError as error:
        raise UsageError(f"--today {word!r}: {error}; give something like session-timeout=10s.") from None


@contextmanager
def _runner(options: argparse.Namespace, source: Source) -> Iterator[Runner]:
    from cobalance_sims.tune.runners import InProcess, OnSpark

    if options.in_process:
        yield InProcess(source.churn)
        return
    try:
        from cobalance_sims.spark.session import session_of
    except ImportError as error:
        raise SparkMissing(f"Spark cannot be loaded ({error}): {INSTALL}, or give --in-process.") from None
    with session_of(options) as spark:
        yield OnSpark(source.churn, spark)
