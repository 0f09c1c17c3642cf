"""Plays the story on every peer, round by round, so that a busy minute of the machine meets all of them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import attrs

from cobalance.servers import running
from proof.bench import machine
from proof.bench.peers.cobalance import Cobalance
from proof.bench.peers.external import VARIABLE, External, given_program
from proof.bench.peers.kafka.fetch import KafkaUnavailable
from proof.bench.peers.kafka.peer import PROTOCOLS, private_kafka
from proof.bench.peers.rabbitmq import SingleActiveConsumer, why_no_super_streams
from proof.bench.peers.results import Played
from proof.bench.peers.story import play

if TYPE_CHECKING:
    from rich.console import Console

    from proof.bench.peers.peer import Peer

KINDS = ("classic", "quorum")
KAFKA = tuple(it.name for it in PROTOCOLS)
ON_RABBITMQ = tuple(f"{product}-{kind}" for product in ("cobalance", "rabbitmq") for kind in KINDS)
NAMES = (*ON_RABBITMQ, *KAFKA, "iggy")


@attrs.define
class Measured:
    """What was played, and who took no part."""

    played: list[Played] = attrs.Factory(list)
    left_out: dict[str, str] = attrs.Factory(dict)
    """Peer → why."""


def measure(names: Sequence[str], rounds: int, seed: int, console: Console) -> Generator[Measured]:
    """Yields the same object after each story, so that Ctrl-C loses only what was under way.

    Raises:
        KafkaUnavailable: Kafka was asked for by name, and cannot be measured here.
    """
    measured, chance = Measured(), random.Random(seed)
    with ExitStack() as stack:
        peers = list(_peers(names, stack, measured))
        for reason in measured.left_out.values():
            console.print(reason, highlight=False, soft_wrap=True)
        for number in range(rounds):
            # Each peer follows and precedes others in other rounds.
            for place in range(len(peers)):
                peer = peers[(place + number) % len(peers)]
                measured.played.append(_played(peer, number, chance))
                console.print(_line(measured.played[-1]), highlight=False, soft_wrap=True)
                yield measured


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Within the block, SIGTERM is as Ctrl-C: what was started is stopped."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _peers(names: Sequence[str], stack: ExitStack, measured: Measured) -> Iterator[Peer]:
    chosen = names or NAMES
    if set(chosen).intersection(ON_RABBITMQ):
        servers = stack.enter_context(running())
        redis_url, amqp_url = servers.redis_url, servers.amqp_url
        ours: list[Peer] = [Cobalance(kind, redis_url, amqp_url) for kind in KINDS]
        raw: list[Peer] = [SingleActiveConsumer(kind, amqp_url) for kind in KINDS]
        yield from (it for it in [*ours, *raw] if it.name in chosen)
        measured.left_out["RabbitMQ's super streams"] = why_no_super_streams(servers.amqp_url)
    if set(chosen).intersection(KAFKA):
        try:
            kafka = stack.enter_context(private_kafka())
        except KafkaUnavailable as reason:
            if names:
                raise
            measured.left_out["Kafka"] = f"Kafka takes no part. {reason}"
        else:
            yield from (it for it in kafka.peers() if it.name in chosen)
    if "iggy" in chosen:
        if (program := given_program(os.environ)) is None:
            measured.left_out["Iggy"] = (
                f"Iggy takes no part, since {VARIABLE} names no program that serves and uses it."
            )
        else:
            yield stack.enter_context(External("iggy", "Iggy", program))


def _played(peer: Peer, number: int, chance: random.Random) -> Played:
    began = time.monotonic()
    story = play(peer, chance)
    return Played(
        peer=peer.name,
        title=peer.title,
        round=number,
        load=machine.load(),
        seconds=round(time.monotonic() - began, 1),
        published=len(story.published),
        outcomes=story.outcomes(),
    )


def _line(it: Played) -> str:
    costs = "; ".join(
        f"{o.kind}: {o.moves} of {o.minimum} moved"
        + (f", gap {sorted(o.gaps_ms)[len(o.gaps_ms) // 2]:,.0f} ms" if o.gaps_ms else "")
        for o in it.outcomes
    )
    return f"round {it.round + 1}, {it.title}: {costs} ({it.seconds:.0f} s, load {it.load[0]:.1f})"
