"""Faults of members, one function for each kind. Each begins, lasts, and is over when the function returns; the run
then waits for the group.

Faults of servers are in ``server_faults``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.chaos import server_faults
from tests.chaos.options import SETTINGS, Servers

if TYPE_CHECKING:
    from tests.chaos.run import Performance
    from tests.faults.proxy import Direction

Fault = Callable[["Performance", Random], None]

SESSION_S = SETTINGS.session_timeout_ms / 1000
NEWS_DELAY_MS = 300
"""How late a member learns that its partition was moved; its commits arrive at once. Less than a call may take."""

TRIES = 5
"""On a busy machine, the news may arrive before the next commit, or the deadline before a session's end."""


def deploy(play: Performance, random: Random) -> None:
    """No fault: one process comes, another leaves on SIGTERM. Its effects on messages are judged like any others."""
    with play.trouble("deploy"):
        play.stage.start_member()
        play.settle()
        play.someone(random).leave()
        play.settle()


def kill(play: Performance, random: Random) -> None:
    """Kill -9, and another process in its place."""
    member = play.someone(random)
    with play.trouble("kill", member):
        member.kill()
    play.stage.start_member()


def freeze(play: Performance, random: Random) -> None:
    """SIGSTOP for longer than the session, then SIGCONT: the process wakes up believing that it is still a holder."""
    member = play.someone(random)
    with play.trouble("freeze", member):
        member.freeze()
        play.sleep(random.uniform(1.5, 3) * SESSION_S)
        member.thaw()


def nap(play: Performance, random: Random) -> None:
    """SIGSTOP for less than the session, like a long garbage collection: it must have no effect."""
    member = play.someone(random)
    with play.trouble("nap", member):
        member.freeze()
        play.sleep(random.uniform(0.2, 0.5) * SESSION_S)
        member.thaw()


def reset(play: Performance, random: Random) -> None:
    """RST on all connections of a member."""
    member = play.someone(random)
    with play.trouble("reset", member):
        member.redis.reset()
        member.rabbitmq.reset()


def cut_redis(play: Performance, random: Random) -> None:
    """No packet between a member and Redis, in both directions or in one."""
    member = play.someone(random)
    with play.trouble("cut-redis", member):
        member.redis.black_hole(*_directions(random))
        play.sleep(random.uniform(0.5, 2.5) * SESSION_S)
        member.redis.heal()


def cut_rabbitmq(play: Performance, random: Random) -> None:
    """The same for RabbitMQ, which notices by its heartbeats."""
    member = play.someone(random)
    with play.trouble("cut-rabbitmq", member):
        member.rabbitmq.black_hole(*_directions(random))
        play.sleep(random.uniform(0.5, 2.5) * SESSION_S)
        member.rabbitmq.heal()


def cut_both(play: Performance, random: Random) -> None:
    """A member's network cable is pulled."""
    member = play.someone(random)
    with play.trouble("cut-both", member):
        member.redis.black_hole()
        member.rabbitmq.black_hole()
        play.sleep(random.uniform(1.5, 3) * SESSION_S)
        member.redis.heal()
        member.rabbitmq.heal()


def delay(play: Performance, random: Random) -> None:
    """Every packet is delayed, and processes come and go."""
    with play.trouble("delay"):
        for member in play.stage.living:
            member.redis.delay(random.uniform(20, 300))
            member.rabbitmq.delay(random.uniform(20, 300))
        play.stage.start_member()
        play.sleep(SESSION_S)
        play.someone(random).leave()
        play.sleep(SESSION_S)
        for member in play.stage.everybody:
            member.redis.heal()
            member.rabbitmq.heal()


def dawdle(play: Performance, random: Random) -> None:
    """Handlers take longer than the revocation timeout while the group changes.

    A process comes, so that partitions are revoked. The clock of one of their holders stands still, so that it does not
    abort its work ahead of the deadline as it should: its partition is moved by force, and its later commits must be
    refused. Then another process comes and is killed at once, so that the revocations for it may be cancelled.
    """
    with play.trouble("dawdle"):
        for _ in range(TRIES):
            _stop_clock_over_deadline(play)
            play.settle()
            if play.is_fenced():
                break
            play.keep_size()
        for _ in range(TRIES):
            _come_and_be_killed(play)
            if play.is_cancelled():
                break
            play.keep_size()
    del random


def _come_and_be_killed(play: Performance) -> None:
    newcomer = play.everybody_dawdles()
    newcomer.join()
    play.wait_pending()
    with play.trouble("kill", newcomer):
        newcomer.kill()
    play.settle()
    play.nobody_dawdles()


def _stop_clock_over_deadline(play: Performance) -> None:
    play.everybody_dawdles().join()
    pending = play.wait_pending()
    if pending is not None:
        holder, moving = pending
        with play.trouble("stopped-clock", holder):
            holder.stop_clock()
            holder.redis.delay(NEWS_DELAY_MS, "to_client")
            play.sleep((moving.deadline_ms - play.redis_ms()) / 1000 + 1)
            holder.redis.heal()
            holder.start_clock()
            play.wait_told(holder, moving)
    play.nobody_dawdles()


def _directions(random: Random) -> tuple[Direction, ...]:
    ways: tuple[tuple[Direction, ...], ...] = (("to_server", "to_client"), ("to_server",), ("to_client",))
    return random.choice(ways)


FAULTS: dict[str, Fault] = {
    "deploy": deploy,
    "kill": kill,
    "freeze": freeze,
    "nap": nap,
    "reset": reset,
    "cut-redis": cut_redis,
    "cut-rabbitmq": cut_rabbitmq,
    "cut-both": cut_both,
    "delay": delay,
    "dawdle": dawdle,
}


def faults_of(servers: Servers) -> dict[str, Fault]:
    """All faults of a run with such servers."""
    return FAULTS | server_faults.FAULTS[servers]
