"""``cobalance sims replay``: replays a churn against a group of one's own, and compares with the prediction."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import attrs
from cyclopts import App, Parameter
from cyclopts.validators import Number

from cobalance.cli.exits import FAILED, OK, UNFINISHED
from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, ManagementUrl, RedisOptions, duration_option
from cobalance.cli.output import print_json, remark
from cobalance.cli.sims.agent import posts_of
from cobalance.cli.sims.tune import REFUSED
from cobalance.coordinator.client import Coordinator
from cobalance.errors import CobalanceError, UsageError
from cobalance.journal import Journal
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL
from cobalance.threads.gate import Gate
from cobalance.threads.signals import ENDING, signals_handled
from cobalance_sims.simulate.churn import CHURNS, Churn

if TYPE_CHECKING:
    from cobalance.settings import GroupSettings
    from cobalance_sims.replay.limits import Limits
    from cobalance_sims.replay.performance import Performance
    from cobalance_sims.replay.plan import Plan
    from cobalance_sims.replay.posts import Posts
    from cobalance_sims.replay.stage import ReplayStage
    from cobalance_sims.replay.written import ReplayOutcome
    from cobalance_sims.verify.as_journal import Outcome

CODES: dict[ReplayOutcome, int] = {"as predicted": OK, "otherwise": REFUSED, "unknown": 6, "aborted": UNFINISHED}

LAG_EVERY_S = 2.0
MORE_EXPIRIES = 5
LOOK_S, AGAIN_S = 3.0, 0.5
"""How long one look at the group afterwards waits for the processes that there are, and the pause before the next."""

SLACK_S = 5.0
STARTS_S = 30.0
"""How long processes that were started again may take to join."""

EPILOGUE = """\
Start the members of a group that is made for trials by `cobalance sims agent`, have them work, and look at the plan before it is
carried out:

    cobalance sims replay --churn DIR --group staging --minutes 10 --seed 1
    cobalance sims replay --churn DIR --group staging --minutes 10 --seed 1 --yes

However it ends, also by Ctrl-C, what is frozen goes on, and as many members run as before.

Exit codes: 0 the group did what was predicted (or the plan was shown), 1 it failed, or the group is not well afterwards, 2 wrong usage,
3 Redis cannot be reached, 4 it was ended early, 5 the group did otherwise, 6 too little happened to tell, 130 Ctrl-C.
"""

app = App(name="replay", help_epilogue=EPILOGUE, help_format="plaintext")


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class AbortOptions:
    """What ends a replay early."""

    abort_unworked: Annotated[
        int | None,
        duration_option("abort-unworked", "End early if a resource has no owner for longer; by default 60s or more."),
    ] = None
    abort_expiries: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=0),
            help=f"End early if more sessions expire; by default the plan's kills and freezes, and {MORE_EXPIRIES}.",
        ),
    ] = None
    abort_lag: Annotated[
        int | None,
        Parameter(validator=Number(gte=0), help="End early if more messages wait in all partitions together."),
    ] = None

    def limits(self, plan: Plan, settings: GroupSettings) -> Limits:
        from cobalance_sims.replay.limits import Limits

        longest_ms = max(60_000, 2 * settings.session_timeout_ms + settings.revocation_timeout_ms)
        likely = plan.counts["kill"] + plan.counts["freeze"] + MORE_EXPIRIES
        return Limits(
            unworked_ms=longest_ms if self.abort_unworked is None else self.abort_unworked,
            expiries=likely if self.abort_expiries is None else self.abort_expiries,
            lag=self.abort_lag,
        )


NO_WISH = AbortOptions()


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Piece:
    """What is replayed."""

    churn: Annotated[
        str, Parameter(help=f"The folder of a calibration, a JSON or TOML file, or one of {', '.join(CHURNS)}.")
    ]
    minutes: Annotated[float, Parameter(validator=Number(gte=0.1, lte=1_440), help="How long.")] = 10.0
    seed: Annotated[int, Parameter(validator=Number(gte=0), help="The same seed gives the same plan.")] = 0
    speed: Annotated[
        float, Parameter(validator=Number(gt=0, lte=1_000), help="How many times as often something happens.")
    ] = 1.0

    def plan(self, churn: Churn, stage: ReplayStage, settings: GroupSettings) -> Plan:
        from cobalance_sims.replay.plan import draw, staged

        as_staged = staged(
            churn,
            members=len(stage.targets),
            most=len(stage.places),
            resources=stage.resources,
            instances=stage.has_instances,
            length_ms=int(self.minutes * 60_000),
            speed=self.speed,
        )
        return draw(churn, as_staged, settings, self.seed)


@app.default
def replay(
    *,
    piece: Piece,
    group: Annotated[str, Parameter(help="A group whose members were started by `cobalance sims agent`.")],
    yes: Annotated[bool, Parameter(negative="", help="Carry it out; without, the plan is shown.")] = False,
    allow_others: Annotated[
        bool, Parameter(negative="", help="Even if some members were started by no agent. Nothing is done to them.")
    ] = False,
    abort: AbortOptions = NO_WISH,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> int:
    """Do to a group of yours what a churn says: kill, freeze, stop and start its members, as often as it does. Then
    compare what came of it with what simulated members do, to which the same is done at the same moments.
    """
    from cobalance_sims.replay.performance import INTERRUPTED, new_name
    from cobalance_sims.tune.source import find

    source = find(piece.churn)
    for it in source.mismatches:
        remark(f"warning: the churn does not do what its journal shows: {it}")
    with posts_of(group, new_name(), redis) as posts:
        scene = Scene(posts, Coordinator(posts.transport, group, key_prefix=redis.key_prefix), allow_others)
        settings = scene.coordinator.settings()
        stage = scene.look(2 * settings.session_timeout_ms / 1000 + SLACK_S, Gate())
        plan = piece.plan(source.churn, stage, settings)
        if not yes:
            return _show(plan, settings, stage, json=json)
        with _lag_of(group, redis, (amqp_url, management_url), is_wanted=abort.abort_lag is not None) as lag:
            done, unhealed = scene.perform(plan, settings, stage, abort.limits(plan, settings), lag)
    if done.aborted == INTERRUPTED:
        raise KeyboardInterrupt(unhealed or "the group is as it was before")
    return _compare(done, settings, unhealed, json=json)


@attrs.frozen
class Scene:
    """The group, and those who talk about it."""

    posts: Posts
    coordinator: Coordinator
    allow_others: bool

    def look(self, within_s: float, wait: Gate) -> ReplayStage:
        """Waits until the group is ready.

        Raises:
            NotReady, UnknownGroup: it is not; the message says why.
        """
        from cobalance_sims.replay.stage import await_stage, find_agents

        agents = find_agents(self.posts, self.coordinator.group, wait)
        return await_stage(self.coordinator, agents.values(), wait, within_s=within_s, allow_others=self.allow_others)

    def perform(
        self, plan: Plan, settings: GroupSettings, stage: ReplayStage, limits: Limits, lag: Callable[[], int | None]
    ) -> tuple[Performance, str]:
        """Carries it out, until Ctrl-C at most; returns what happened, and what is wrong with the group afterwards."""
        from cobalance_sims.replay.limits import LimitWatch
        from cobalance_sims.replay.performance import Performer

        stop, hurry = Gate(), Gate()
        journal = Journal(self.posts.transport, self.coordinator.group, key_prefix=self.coordinator.key_prefix)
        performer = Performer(
            self.posts, journal, stage=stage, plan=plan, watch=LimitWatch(limits, settings), say=remark, lag=lag
        )
        with signals_handled(lambda *_: (hurry if stop.is_open else stop).open(), *ENDING):
            done = performer.perform(stop)
            remark("waiting until the group is as it was")
            heal_s = (2 * settings.session_timeout_ms + settings.revocation_timeout_ms) / 1000 + STARTS_S
            until = time.monotonic() + heal_s
            while True:
                try:
                    self.look(LOOK_S, hurry)
                except CobalanceError as error:  # a process may be started later, once its predecessor has ended
                    if time.monotonic() >= until or hurry.wait(AGAIN_S):
                        return done, str(error)
                else:
                    return done, ""


def _show(plan: Plan, settings: GroupSettings, stage: ReplayStage, *, json: bool) -> int:
    from cobalance_sims.replay.prediction import planned, predicted, runs_for
    from cobalance_sims.replay.written import plan_json, plan_page
    from cobalance_sims.verify.comparison import compare

    runs = runs_for(0)
    length_ms = plan.churn.length_ms
    outcomes = predicted(plan.churn, settings, stage, planned(plan), length_ms=length_ms, runs=runs)
    forecast = compare([], list(_shown(outcomes, runs)))
    if json:
        print_json(plan_json(plan, forecast))
    else:
        sys.stdout.write(plan_page(plan, forecast))
        remark("Nothing was done. Give --yes to carry it out.")
    return OK


def _compare(done: Performance, settings: GroupSettings, unhealed: str, *, json: bool) -> int:
    from cobalance_sims.replay.prediction import carried_out, predicted, runs_for, seen, with_own_drains
    from cobalance_sims.replay.written import Replayed, as_json, page
    from cobalance_sims.verify.comparison import compare

    observed = seen(done)
    runs = runs_for(observed["observed_events"])
    churn = with_own_drains(done, settings)
    outcomes = predicted(churn, settings, done.stage, carried_out(done), length_ms=done.length_ms, runs=runs)
    comparisons = compare([observed], list(_shown(outcomes, runs)))
    found = Replayed(performance=done, comparisons=comparisons, runs=runs, unhealed=unhealed)
    if json:
        print_json(as_json(found))
    else:
        sys.stdout.write(page(found))
    return FAILED if unhealed else CODES[found.outcome]


def _shown(outcomes: Iterable[Outcome], runs: int) -> Iterable[Outcome]:
    """The same, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(
        outcomes, "simulating the same deeds", runs, console=console, transient=True, disable=not console.is_terminal
    )


@contextmanager
def _lag_of(
    group: str, redis: RedisOptions, broker: tuple[str, str | None], *, is_wanted: bool
) -> Iterator[Callable[[], int | None]]:
    """The lag, as it was seconds ago at most: RabbitMQ may take its time, and orders do not wait for that.

    Raises:
        UsageError: it is not known.
        ServerError: it cannot be read.
    """
    newest: list[int | None] = [None]
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(LAG_EVERY_S):
            with suppress(CobalanceError):
                newest[0] = _sum(admin.lag(group))

    with ExitStack() as at_last:
        if is_wanted:
            admin = at_last.enter_context(redis.admin(*broker))
            newest[0] = _sum(admin.lag(group))
            if newest[0] is None:
                raise UsageError(f"The lag of group {group} is not known, so --abort-lag cannot be heeded.")
            thread = threading.Thread(target=follow, name="lag", daemon=True)
            at_last.callback(thread.join)
            at_last.callback(ended.set)
            thread.start()
        yield lambda: newest[0]


def _sum(lags: Mapping[str, int | None]) -> int | None:
    known = [it for it in lags.values() if it is not None]
    return sum(known) if known else None
