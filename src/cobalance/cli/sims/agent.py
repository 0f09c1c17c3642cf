"""``cobalance sims agent``: starts member processes, and does to them what a replay orders."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from cobalance.cli.exits import FAILED, OK
from cobalance.cli.options import THIS_REDIS, RedisOptions, duration_option
from cobalance.cli.output import remark
from cobalance.coordinator.open import open_transport
from cobalance.errors import UsageError
from cobalance.group.engine import process_label
from cobalance.names import validate_name
from cobalance.threads.gate import Gate
from cobalance.threads.signals import ENDING, signals_handled

if TYPE_CHECKING:
    from cobalance_sims.replay.posts import Posts

CALL_MS = 1_000

EPILOGUE = """\
Start one beside the members of a group that is made for trials, on each of its machines, in the place of the members' own supervisor:

    cobalance sims agent --group staging --processes 3 -- python my_member.py

It does nothing to other processes than its own, and to these only what `cobalance sims replay` orders for this group. Ctrl-C, or
SIGTERM, has what is frozen go on, and everything leave; a second one kills what does not. The command has to be the member itself: a
shell script ends in exec.

Exit codes: 0 asked to end, 1 all processes ended by themselves, 2 wrong usage, 3 Redis cannot be reached.
"""

app = App(name="agent", help_epilogue=EPILOGUE, help_format="plaintext")


@app.default
def agent(
    *command: Annotated[str, Parameter(help="The command of a member, after --.")],
    group: Annotated[str, Parameter(help="The group that its processes join.")],
    processes: Annotated[int, Parameter(validator=Number(gte=1, lte=1_000), help="How many to start.")] = 1,
    at_most: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1, lte=1_000), help="How many a replay may have; by default four more, or double."
        ),
    ] = None,
    instances: Annotated[
        str | None,
        Parameter(
            help="Gives each an instance id: this, - and its number, in COBALANCE_INSTANCE_ID.", show_default=False
        ),
    ] = None,
    leave: Annotated[
        int, duration_option("leave", "At the end, or that of a replay, how long they may take to leave.", "60s")
    ] = 60_000,
    redis: RedisOptions = THIS_REDIS,
) -> int:
    """Start members of a group for replays, and do to them what a replay orders: kill, freeze, stop and start them."""
    from cobalance_sims.replay.agent import Agent, Program

    if not command:
        raise UsageError(
            "Give the command of a member after --, as in: cobalance sims agent --group staging -- python my_member.py"
        )
    if shutil.which(command[0]) is None:
        raise UsageError(f"There is no program {command[0]}.")
    most = max(processes + 4, 2 * processes) if at_most is None else at_most
    if most < processes:
        raise UsageError(f"--at-most is {most}, which is less than --processes, {processes}.")
    stop, hurry = Gate(), Gate()

    def end(*_: object) -> None:
        (hurry if stop.is_open else stop).open()

    with posts_of(group, process_label(), redis) as posts, signals_handled(end, *ENDING, signal.SIGHUP):
        program = Program(command=command, processes=processes, at_most=most, instances=instances or "")
        failed = Agent(posts, program, remark, leave_s=leave / 1000).run(stop, hurry)
    return FAILED if failed and not stop.is_open else OK


@contextmanager
def posts_of(group: str, sender: str, redis: RedisOptions) -> Iterator[Posts]:
    """What is said by, and to, this sender.

    Raises:
        UsageError: the name or the URL is not of an accepted form.
    """
    from cobalance_sims.replay.posts import Posts

    if redis.redis_url.startswith("memory:"):
        raise UsageError(
            "A group in memory:// has no members in other processes: give --redis-url with the URL of a Redis."
        )
    transport = open_transport(redis.redis_url, call_timeout_ms=CALL_MS)
    with closing(transport):
        yield Posts(transport, validate_name("group", group), sender, key_prefix=redis.key_prefix)
