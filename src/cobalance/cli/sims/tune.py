"""``cobalance sims tune``: recommends a group's timeouts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
from cyclopts import App, Parameter

from cobalance.cli.exits import OK
from cobalance.cli.options import KeyPrefix
from cobalance.cli.sims.places import check_file, writing
from cobalance.cli.sims.spark_options import HERE, SparkOptions
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.errors import UsageError, counted
from cobalance.names import validate_name
from cobalance.redact import redact
from cobalance.settings import GroupSettings, duration_ms
from cobalance_sims.simulate.churn import CHURNS
from cobalance_sims.spark.errors import SparkMissing
from cobalance_sims.spark.interruption import interruptible, quiet_interrupts
from cobalance_sims.spark.journal_options import DEFAULT_VARIABLE
from cobalance_sims.tune.costs import COSTS

if TYPE_CHECKING:
    from cobalance.coordinator.client import Coordinator
    from cobalance_sims.tune.kept import Kept
    from cobalance_sims.tune.preferences import Preferences
    from cobalance_sims.tune.source import ChurnSource

REFUSED = 5

EPILOGUE = (
    "Costs that may be limited and weighed (NAME, its weight by default in resource-seconds of standstill, what it is):\n"
    + "\n".join(f"  {it.name:<15}{it.weight:<8g}{it.meaning}, {it.unit}" for it in COSTS.values())
    + "\n\nExit codes: 0 there is a recommendation (or today's settings are as good), 1 it failed, 2 wrong usage, 5 it refuses to\n"
    "recommend anything, and says why and what would help. Runs are kept in FILE.runs until there is a recommendation: after an\n"
    "interruption, or with more seeds, the same command goes on with them.\n"
)

app = App(name="tune", help_epilogue=EPILOGUE, help_format="plaintext")


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Wishes:
    """What a recommendation must satisfy, and how it is judged."""

    limit: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="NAME=NUMBER, an upper bound on a cost; repeatable."),
    ] = ()
    max_duplicates_per_day: Annotated[float | None, Parameter(help="The same as --limit duplicates=N.")] = None
    heal_within_s: Annotated[float | None, Parameter(help="The same as --limit heal=S.")] = None
    weight: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="NAME=NUMBER, the weight of one unit of a cost; repeatable."),
    ] = ()

    def preferences(self, source: ChurnSource) -> Preferences:
        """Duplicates count for nothing, unless they are wished for, where the messages that they rest on were assumed."""
        from cobalance_sims.tune.preferences import Preferences, parse

        given = (("duplicates", self.max_duplicates_per_day), ("heal", self.heal_within_s))
        words = [f"{name}={value}" for name, value in given if value is not None]
        limits, weights = parse([*self.limit, *words], "limit"), parse(list(self.weight), "weight")
        if not source.knows_messages and "duplicates" not in limits:
            weights = {"duplicates": 0.0, **weights}
        return Preferences(limits, weights)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Today:
    """Where the group is, and what it runs today."""

    group: Annotated[
        str | None,
        Parameter(help=f"Its current settings are read where --redis-url or {DEFAULT_VARIABLE} says that it is."),
    ] = None
    redis_url: Annotated[str | None, Parameter(help=f"Where the group is; else {DEFAULT_VARIABLE}.")] = None
    key_prefix: KeyPrefix = DEFAULT_PREFIX
    store: Annotated[
        bool,
        Parameter(
            negative="",
            help="Store what is decided beside the group in Redis, for the dashboard; settings stay as they are.",
        ),
    ] = False
    today: Annotated[
        tuple[str, ...],
        Parameter(
            negative="", help="SETTING=TIME, a current setting that is neither known nor the default; repeatable."
        ),
    ] = ()

    @property
    def where(self) -> str | None:
        """The URL of the group's Redis, as far as one is given."""
        return self.redis_url or (os.environ.get(DEFAULT_VARIABLE) or None if self.group else None)

    def check(self) -> None:
        """Raises UsageError if an option is wrong, or lacks another one."""
        if self.group:
            validate_name("group", self.group)
        if self.store and not self.group:
            raise UsageError("--store needs --group NAME, beside which it is stored.")
        if self.store and self.today:
            raise UsageError("--store is for the settings that the group has: leave out --today, or --store.")
        if self.store and not self.where:
            raise UsageError(f"--store needs --redis-url, or {DEFAULT_VARIABLE}: where the group is.")

    def settings(self, source: ChurnSource) -> tuple[GroupSettings, tuple[str, ...]]:
        """The settings of the group or of the calibration, overridden by given ones; and the times in neither."""
        given = dict(given_time(word, "--today") for word in self.today)
        known = {*given, *source.today}
        if self.where:
            with self._coordinator(self.where) as coordinator:
                settings = coordinator.settings()
            known = {*attrs.asdict(settings)}
        else:
            settings = source.settings()
        today = attrs.evolve(settings, **given)  # type: ignore[arg-type]  # mode is not among them
        return today, tuple(name for name in attrs.asdict(today) if name.endswith("_ms") and name not in known)

    def keep(
        self, source: ChurnSource, today: GroupSettings, decided: dict[str, Any], searched: Collection[str]
    ) -> None:
        """Stores a decision, of the form that tune/written.py gives it, if that is asked for."""
        if not (self.store and self.where):
            return
        from cobalance.operate.tuned import Tuned, store

        gain, settings = decided.get("gain"), (decided.get("recommended") or {}).get("settings", {})
        before = attrs.asdict(today)
        with self._coordinator(self.where) as coordinator:
            from_ms, to_ms = source.span if source.span and source.group == self.group else (None, None)
            tuned = Tuned(
                at_ms=coordinator.tick().now_ms,
                from_ms=from_ms,
                to_ms=to_ms,
                decision=decided["decision"],
                today=today,
                recommended={name: it for name, it in settings.items() if name in searched or it != before[name]},
                gain=gain and (gain["value"], gain["low"], gain["high"]),
                sentences=[*decided.get("trade", ()), *decided["reasons"], *decided.get("collect", ())],
            )
            store(coordinator, tuned)
        sys.stdout.write(f"Stored beside group {self.group}, for the dashboard.\n")

    def keep_refusal(self, source: ChurnSource, reasons: list[str]) -> None:
        """The same if nothing is searched."""
        if self.store:
            self.keep(source, self.settings(source)[0], {"decision": "refused", "reasons": reasons}, ())

    @contextmanager
    def _coordinator(self, redis_url: str) -> Iterator[Coordinator]:
        from cobalance.coordinator.client import Coordinator
        from cobalance.coordinator.open import open_transport

        if not self.group:
            raise UsageError("--redis-url needs --group NAME, whose settings are read there.")
        transport = open_transport(redis_url)
        try:
            yield Coordinator(transport, self.group, key_prefix=self.key_prefix)
        finally:
            transport.close()


NO_WISHES = Wishes()
UNKNOWN = Today()


@app.default
def tune(
    *,
    churn: Annotated[
        str, Parameter(help=f"The folder of a calibration, a JSON or TOML file, or one of {', '.join(CHURNS)}.")
    ],
    out: Annotated[Path, Parameter(help="A file for cobalance sims report.")] = Path("tune.json"),
    wishes: Wishes = NO_WISHES,
    search: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            show_default=False,
            consume_multiple=True,
            help="Only these settings; by default all that the churn informs.",
        ),
    ] = (),
    group: Today = UNKNOWN,
    seeds: Annotated[int, Parameter(help="Runs of each final candidate; half as many during the search.")] = 64,
    tolerance: Annotated[float, Parameter(help="How much cheaper another choice may be, as a share.")] = 0.1,
    despite_mismatch: Annotated[
        bool, Parameter(negative="", help="Go on with a churn that does not do what its journal shows.")
    ] = False,
    in_process: Annotated[bool, Parameter(negative="", help="Run without Spark on one core, for few runs.")] = False,
    spark: SparkOptions = HERE,
) -> int:
    """Recommend session, revocation, heartbeat, grace and gathering times for a churn and your preferences."""
    from cobalance_sims.tune.axes import choose
    from cobalance_sims.tune.kept import Kept
    from cobalance_sims.tune.source import find
    from cobalance_sims.tune.tuning import tune as searched
    from cobalance_sims.tune.written import as_json, page

    if seeds < 4 or not 0 < tolerance < 1:
        raise UsageError("Give at least 4 --seeds, and a --tolerance between 0 and 1.")
    check_file(out)
    group.check()
    source = find(churn)
    if source.mismatches and not despite_mismatch:
        group.keep_refusal(source, source.mismatches)
        return _refuse_the_churn(source)
    preferences, chosen, (today, unknown) = (
        wishes.preferences(source),
        choose(source, list(search)),
        group.settings(source),
    )
    name = group.group or source.group or "GROUP"
    if not chosen.axes:
        why = [f"{setting} was not searched: {reason}." for setting, reason in chosen.left.items()]
        group.keep_refusal(source, why)
        return _refuse_to_search(chosen.left)
    runs = Kept(out.with_name(f"{out.name}.runs"), source.churns)
    with _made(runs, source, None if in_process else spark):
        found = searched(
            runs,
            today,
            chosen,
            preferences,
            seeds=seeds,
            tolerance=tolerance,
            report=_progress,
            churns=source.churns,
        )
    sys.stdout.write(page(found, group=name, key_prefix=group.key_prefix, unknown=unknown))
    sys.stdout.writelines([*whereabouts(group.where), *_mismatched(source), *_little(source, preferences)])
    written = as_json(
        found,
        churn=source.churn.table(),
        group=name,
        key_prefix=group.key_prefix,
        unknown=unknown,
        check=source.check,
    )
    with writing(out):
        out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    group.keep(source, today, written, [it.name for it in chosen.axes])
    if found.verdict.decision == "refused":
        return REFUSED  # the runs are kept, so they count if there are more seeds
    runs.file.unlink(missing_ok=True)
    return OK


def whereabouts(redis_url: str | None) -> list[str]:
    """The Redis for the command. Its URL may contain a password, so it is not part of the command."""
    if redis_url is None:
        return []
    return [f"The command is for the Redis at {redact(redis_url)}: have its URL in {DEFAULT_VARIABLE} for it.\n"]


def _little(source: ChurnSource, preferences: Preferences) -> Iterator[str]:
    """What is uncertain about the churn, and so about every result."""
    words = {"few": "rests on little", "assumed": "is assumed"}
    if not source.knows_messages and not preferences.weight("duplicates"):
        yield "Duplicates are left out of what is weighed, since no message was seen: give --weight duplicates=1 to count what is assumed.\n"
    yield from [f"{name} {words[source.bases[name]]}: {note}.\n" for name, note in source.notes.items()]


def _mismatched(source: ChurnSource) -> list[str]:
    """Why no figure above is to be believed."""
    if source.bases and not source.check:
        return ["The churn was not checked against its journal: run cobalance sims calibrate again.\n"]
    if source.bases and not source.is_compared:
        return ["The churn could not be compared with its journal, which is too short: collect a longer one.\n"]
    return [f"DESPITE A MISMATCH: {it}\n" for it in source.mismatches]


def _refuse_the_churn(source: ChurnSource) -> int:
    sys.stdout.write("NO RECOMMENDATION\nThe churn does not do what its journal shows:\n")
    sys.stdout.writelines(f"  {it}\n" for it in source.mismatches)
    sys.stdout.write(
        "Collect a longer journal, or give what the journal cannot tell (--assume) to cobalance sims calibrate. "
        "--despite-mismatch goes on with it.\n"
    )
    return REFUSED


def _refuse_to_search(left: dict[str, str]) -> int:
    sys.stdout.write("NO RECOMMENDATION\nThe calibration tells too little of any setting:\n")
    sys.stdout.writelines(f"  {name}: {why}.\n" for name, why in left.items())
    sys.stdout.write("Collect more, or name what is to be searched all the same with --search.\n")
    return REFUSED


def _progress(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def given_time(word: str, option: str) -> tuple[str, int]:
    """A setting and its ms from a word such as ``session-timeout=10s``, as given with this option.

    Raises:
        UsageError: it is not of that form.
    """
    name, _, time = word.partition("=")
    plain = f"{name.strip('-').replace('-', '_').removesuffix('_ms')}_ms"
    try:
        if plain not in attrs.asdict(GroupSettings()):
            raise ValueError(f"there is no setting {name!r}")
        return plain, duration_ms(time)
    except ValueError as error:
        raise UsageError(f"{option} {word!r}: {error}; give something like session-timeout=10s.") from None


@contextmanager
def _made(runs: Kept, source: ChurnSource, spark: SparkOptions | None) -> Iterator[None]:
    """Gives what makes the missing runs. An interruption says which are kept."""
    from cobalance_sims.tune.runners import InProcess, OnSpark

    if runs.count:
        _progress(f"{runs.file}: {counted(runs.count, 'run')} taken up, of a search that was interrupted, or refused")

    def left() -> str:
        return f"{counted(runs.count, 'run is', 'runs are')} kept in {runs.file}; the same command goes on from there"

    with interruptible(left) as interrupted, ExitStack() as stack:
        if spark is None:
            runs.runner = InProcess(source.churns)
        else:
            try:
                session = stack.enter_context(spark.session())
            except SparkMissing as error:
                raise SparkMissing(f"{error}, or give --in-process.") from None
            stack.enter_context(quiet_interrupts(interrupted))
            runs.runner = OnSpark(source.churns, session)
        yield
