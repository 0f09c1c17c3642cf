"""Random histories of a tenure, each from its seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from proof.partitions.broker import BrokenHistory, Wrong
from proof.partitions.choices import Choice, choices
from proof.partitions.stage import KINDS, Stage

STEPS = 60

OFTEN = ("message", "take 1", "take all", "turn", "open-ok", "consume-ok", "lock", "unlock", "close-ok")
MANY = ("done", "timer")
"""What mostly happens; the rest is rarer, so that a history gets somewhere."""

RIVALS = ("in use", "lock refused")
"""In some histories another consumer, or reader, is first again and again."""


def walk(seed: int) -> None:
    """Plays one history.

    Raises:
        BrokenHistory: a promise is broken.
    """
    random = Random(seed)
    stage = Stage(KINDS[seed % len(KINDS)])
    steps = [str(stage.kind)]
    try:
        for name, happen in _chosen(stage, random):
            steps.append(name)
            happen()
            stage.check()
        steps.append("all is let go of")
        stage.wind_down()
    except Wrong as wrong:
        raise BrokenHistory(seed, wrong, steps) from wrong
    except Exception as problem:  # the core itself has failed
        raise BrokenHistory(seed, problem, steps) from problem


def _chosen(stage: Stage, random: Random) -> Iterator[Choice]:
    often = (*OFTEN, *RIVALS) if random.random() < 0.3 else OFTEN
    yield next(it for it in choices(stage) if it[0] == "start")
    for _ in range(random.randrange(STEPS)):
        possible = choices(stage)
        usual = [it for it in possible if it[0] in often or it[0].startswith(MANY)]
        yield random.choice(usual if usual and random.random() < 0.85 else possible)
