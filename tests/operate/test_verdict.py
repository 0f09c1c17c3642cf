"""Verdicts on resources, from histories as they occur."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from tests.operate.described import group, member

from cobalance.description import Backlog, GroupDescription, Verdict
from cobalance.operate.verdict import Sample, Standing, judge, sample, worst
from cobalance.operate.watch import Histories

EVERY_MS = 5_000
WINDOW_MS = 60_000
LONG = WINDOW_MS // EVERY_MS + 1
"""Samples that reach back a whole window."""


def history(*samples: dict[str, Any], standing: Standing = "worked", token: int = 7) -> list[Sample]:
    """One sample every five seconds."""
    common: dict[str, Any] = {"standing": standing, "token": token}
    return [Sample(at_ms=number * EVERY_MS, **common | given) for number, given in enumerate(samples)]


def stuck(count: int, **given: Any) -> list[dict[str, Any]]:
    """The same message in flight, ever older, before two that wait."""
    return [{"lag": 3, "in_flight": 3, "oldest_ms": number * EVERY_MS, **given} for number in range(count)]


IDLE = [{"lag": 0, "in_flight": 0}] * LONG
BUSY = [{"lag": 50 + number % 3, "in_flight": 50, "oldest_ms": 120} for number in range(LONG)]
WAITING = [{"lag": 4, "in_flight": 0}] * LONG

HISTORIES: dict[str, tuple[list[Sample], Verdict | None]] = {
    "idle": (history(*IDLE), "OK"),
    "idle, then one message": (history(*IDLE, {"lag": 1, "in_flight": 1, "oldest_ms": 900}), "OK"),
    "busy, and as fast as what comes": (history(*BUSY), "OK"),
    "busy for the first two samples": (history(*BUSY[:2]), "OK"),
    "a long lag that shrinks": (
        history(*({"lag": 9_000 - n, "in_flight": 9, "oldest_ms": 4} for n in range(LONG))),
        "OK",
    ),
    "falling behind for a whole window": (
        history(*({"lag": 100 + n, "in_flight": 9, "oldest_ms": 4} for n in range(LONG))),
        "WARN",
    ),
    "falling behind for a moment": (
        history(*({"lag": 100 + n, "in_flight": 9, "oldest_ms": 4} for n in range(3))),
        "OK",
    ),
    "a stuck handler": (history(*stuck(LONG)), "STALL"),
    "a stuck handler, and more comes": (
        history(*({**it, "lag": 3 + n} for n, it in enumerate(stuck(LONG)))),
        "STALL",
    ),
    "a stuck handler whose member does not answer one look": (
        history(*stuck(LONG - 4), {"lag": 3, "in_flight": 3}, *stuck(LONG + 4)[LONG - 3 :]),
        "STALL",
    ),
    "a stuck handler whose member does not answer now": (history(*stuck(LONG), {"lag": 3, "in_flight": 3}), "STALL"),
    "a stuck handler of which one look told nothing": (
        history(*stuck(LONG - 4), {}, *stuck(LONG + 4)[LONG - 3 :]),
        "STALL",
    ),
    "messages wait, and one look told nothing": (history(*WAITING, {}, *WAITING[:1]), "STALL"),
    "looks that tell nothing are no lag": (history({"lag": 0}, {}, {"lag": 1, "in_flight": 0}), "OK"),
    "a lag that fell while nothing was known": (
        history({"lag": 9, "in_flight": 0}, {}, *[{"lag": 3, "in_flight": 0}] * (LONG - 2)),
        "OK",
    ),
    "nobody there, and one look told nothing": (history(*WAITING[:1], {}, *WAITING[:1], standing="unworked"), "STOP"),
    "a stuck handler whose messages went back": (history(*stuck(LONG), {"lag": 3, "in_flight": 0}), "STALL"),
    "a stuck handler whose messages went back and came again": (
        history(*stuck(LONG), {"lag": 3, "in_flight": 0}, {"lag": 3, "in_flight": 3, "oldest_ms": 900}),
        "STALL",
    ),
    "as fast as what comes, now and then between two messages": (
        history(*[{"lag": 1, "in_flight": 1, "oldest_ms": 100}, {"lag": 1, "in_flight": 0}] * LONG),
        None,
    ),
    "a handler that took its time while its member did not answer": (
        history(*stuck(LONG - 1), {"lag": 3, "in_flight": 3}, {"lag": 3, "in_flight": 3, "oldest_ms": 2_000}),
        "OK",
    ),
    "a handler that takes half a window": (history(*stuck(LONG // 2)), None),
    "a handler that took its time": (
        history(*stuck(LONG - 1), {"lag": 3, "in_flight": 2, "oldest_ms": 4_000}),
        "OK",
    ),
    "messages wait, and nobody takes them": (history(*WAITING), "STALL"),
    "halted": (history(*stuck(2), standing="halted"), "STOP"),
    "halted, and not a queue": (history({}, standing="halted"), "STOP"),
    "given up again and again, and retried": (history({"lag": 1}, standing="paused"), "STALL"),
    "nobody there, nothing to do": (history(*IDLE, standing="unworked"), "OK"),
    "nobody there, and messages wait": (history(*WAITING[:2], standing="unworked"), "STOP"),
    "nobody there, and the first message came": (
        history({"lag": 0}, {"lag": 1, "in_flight": 0}, standing="unworked"),
        None,
    ),
    "nobody there, and messages wait, at the first look": (history(*WAITING[:1], standing="unworked"), "STOP"),
    "messages wait, at the first look": (history(*WAITING[:1]), None),
    "nobody there, and not a queue": (history({}, {}, standing="unworked"), None),
    "draining, and getting on": (history(*BUSY[:3], standing="moving"), "OK"),
    "draining, with a handler that does not return": (history(*stuck(4), standing="moving"), "WARN"),
    "recovering": (history(*WAITING[:2], standing="moving"), "WARN"),
    "recovering, nothing to do": (history(*IDLE[:2], standing="moving"), "OK"),
    "moved, and nobody gets on with it": (
        [attrs.evolve(it, token=n // 4) for n, it in enumerate(history(*WAITING))],
        "WARN",
    ),
    "unknown lag": (history(*([{}] * LONG)), None),
    "lag that has just become unknown": (history(*WAITING, {}), None),
    "lag that was unknown until now": (history({}, *WAITING[:2]), None),
    "a stream that is read": (history(*({"lag": 10, "committed": n} for n in range(LONG))), "OK"),
    "a stream of which nothing is committed": (history(*([{"lag": 10, "committed": 3}] * LONG)), "STALL"),
    "counted by RabbitMQ only": (history(*([{"lag": 10, "in_flight": 10}] * LONG)), None),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_each_history_has_its_verdict(name: str) -> None:
    """Every five seconds for a minute, unless it says otherwise."""
    samples, expected = HISTORIES[name]
    assert judge(samples, WINDOW_MS) == expected


def test_a_verdict_changes_only_with_what_is_known() -> None:
    """A stuck handler: not known for a minute, then a stall, and well as soon as its message is done."""
    samples = history(*stuck(LONG + 2), {"lag": 2, "in_flight": 2, "oldest_ms": 10})
    told = [judge(samples[: number + 1], WINDOW_MS) for number in range(len(samples))]
    assert told == [None] * (LONG - 1) + ["STALL"] * 3 + ["OK"]


def test_a_look_that_tells_nothing_ends_no_stall() -> None:
    """Neither at the next look, nor when a window has gone by; and what never has a lag piles nothing up."""
    histories, found = Histories(), []
    for number in range(4 * LONG):
        lag = None if number == LONG + 2 else 2
        looked = group(backlog=Backlog(lag=lag, in_flight=lag and 2, oldest_ms=lag and 5_000 * number))
        found.append(histories.judge(attrs.evolve(looked, at_ms=5_000 * number), looked.resources[0]))
    assert found == [None] * (LONG - 1) + ["STALL"] * 3 + [None] + ["STALL"] * (3 * LONG - 3)
    folders = Histories()
    for number in range(4 * LONG):
        assert folders.judge(attrs.evolve(group(), at_ms=5_000 * number), group().resources[0]) is None
    assert not any(folders._of.values())


def test_what_was_done_before_a_pause_of_looks_is_no_sign() -> None:
    """Somebody looks, and again ten minutes later, and a minute after that."""
    histories, found = Histories(), []
    for at_s, lag in ((0, 9), (5, 8), (10, 7), (610, 90), (670, 90)):
        looked = group(backlog=Backlog(lag=lag, in_flight=3, oldest_ms=1_000 * max(0, at_s - 10)))
        found.append(histories.judge(attrs.evolve(looked, at_ms=1_000 * at_s), looked.resources[0]))
    assert found == [None, "OK", "OK", "STALL", "STALL"]


def test_a_clock_that_was_set_back_begins_a_history_anew() -> None:
    """As Redis's may be after a loss of data: what was done before it is no sign that anything is done now."""
    histories, found = Histories(), []
    for at_s, lag in (*((5 * n, 90 - n) for n in range(30)), *((5 * n - 3_600, 90) for n in range(30, 60))):
        looked = group(backlog=Backlog(lag=lag, in_flight=0))
        found.append(histories.judge(attrs.evolve(looked, at_ms=1_000 * at_s), looked.resources[0]))
    assert found[29:31] == ["OK", None]
    assert found[-1] == "STALL"


def test_the_worst_verdict_is_that_of_the_group() -> None:
    """What is unknown hides nothing that is wrong; but beside it, nobody knows that all is well."""
    assert worst([]) is None
    assert worst([None, None]) is None
    assert worst(["OK", None]) is None
    assert worst(["OK", "OK"]) == "OK"
    assert worst(["OK", None, "STALL", "WARN"]) == "STALL"
    assert worst(["OK", "STOP", "STALL"]) == "STOP"


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (group(), "worked"),
        (group("Reconciling", state="pending", deadline_in_ms=5), "moving"),
        (group("Assigning", state="granted"), "moving"),
        (group("Assigning", state="free", owner=None), "moving"),
        (group("Stable", member(capacity=0), state="free", owner=None), "unworked"),
        (group("Assigning", state="free", owner=None, is_named=False), "unworked"),
        (group("Reconciling", state="graced"), "moving"),
        (group("Recovering"), "moving"),
        (group("Empty", member(state="silent")), "unworked"),
        (group(state="halted", owner=None, halted="failed"), "halted"),
        (group(state="halted", owner=None, halted="failed", tried_in_ms=5), "paused"),
        (group("Recovering", state="halted", owner=None, halted="failed"), "halted"),
    ],
)
def test_how_a_resource_stands(found: GroupDescription, standing: Standing) -> None:
    """Whether somebody works it, or will by a deadline."""
    (resource,) = found.resources
    assert sample(found, resource) == Sample(at_ms=1, standing=standing, token=1)


def test_a_sample_has_what_is_known_of_the_backlog() -> None:
    """None stays None."""
    found = group(committed=4, backlog=Backlog(lag=3, in_flight=2))
    assert sample(found, found.resources[0]) == Sample(
        at_ms=1, standing="worked", token=1, lag=3, in_flight=2, committed=4
    )
