"""The messages of a story, as data: when each is published, to which partition, and how long its handler takes.

Both runs use the very same messages, so that handler times need not be averaged.
"""

from __future__ import annotations

from random import Random

import attrs

from proof.fidelity.story import Story


@attrs.frozen(order=True)
class PlannedMessage:
    """One message. Those of a partition are published in this order, numbered from 1."""

    at_ms: int
    partition: int
    handle_ms: int


def messages(story: Story, seed: int) -> list[PlannedMessage]:
    """Returns all messages, in order. They arrive at random at an even rate (Poisson), for each partition alone."""
    random = Random(f"{story.name} {seed}")
    every = 1000.0 / story.rate
    load = []
    for partition in range(story.partitions):
        at = random.expovariate(1.0) * every
        while at < story.length_ms:
            load.append(PlannedMessage(int(at), partition, story.handler.sample(random)))
            at += random.expovariate(1.0) * every
    slow = [
        PlannedMessage(step.at_ms, partition, step.for_ms)
        for step in story.steps
        if step.kind == "slow"
        for partition in range(story.partitions)
    ]
    return sorted([*load, *slow])
