"""How long single operations take on this machine, measured before the story is run: nothing here is fitted to the
story's figures.

A call is what the engine's caller thread makes of it: handed over by one thread, run by Redis, handed back. A hint is
timed from before PUBLISH to the other thread that waits for it. A channel is opened, guarded, subscribed and closed by
the production consumer. The rest is taken from the journal and the diaries of real member processes: they share idle
partitions as they come and go, which shows the overhead of Python between their threads, and handle messages of a known
length.
"""

from __future__ import annotations

import os
import queue
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import redis

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import hint_channel
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Header, Heartbeat, Join, Request
from cobalance.journal import JournalEntry
from cobalance.lab.diary import DiaryEntry, HandlerRun, time_of_day_ms
from cobalance.lab.load import key_of_each
from cobalance.lab.message import NumberedMessage
from cobalance.lab.stage import Stage
from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent, PartitionState
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.wire.connection import BrokerConnection

CALLS = 200
CHANNELS = 30
MEMBERS = 4
VISITORS = 11
"""So many more come and go, one after the other. As in the story, about four handovers of five are of two or three partitions at a time,
the others of the first members, of up to six: these wait for each other."""
MESSAGES_EACH = 10
KNOWN_MS = 50
"""How long the handlers of the measured messages take."""

WAIT_S = 30.0


@attrs.frozen(kw_only=True)
class Machine:
    """Samples are in ms, in order."""

    call_ms: tuple[float, ...]
    hint_ms: tuple[float, ...]
    open_ms: tuple[float, ...]
    close_ms: tuple[float, ...]
    """The channel alone; also part of ``let_go_ms``."""
    ask_ms: tuple[float, ...]
    """First part of an idle handover: from ``revoking`` in the journal to ``on_revoked``: hint, call, and Python."""
    let_go_ms: tuple[float, ...]
    """Second part: from ``on_revoked`` to ``released`` in the journal: closing the channel, and the call."""
    tell_ms: tuple[float, ...]
    """Third part: from ``granted`` to ``on_assigned``: hint, call, and Python."""
    overrun_ms: tuple[float, ...]
    """How much longer than asked a handler sleeps."""
    way_ms: tuple[float, ...]
    """From before a message is published to its handler."""
    load: str
    """The load averages of the machine at the time, and the niceness of this process."""

    def median(self, name: str) -> float:
        """The median of the samples with that name."""
        samples: tuple[float, ...] = getattr(self, name)
        return statistics.median(samples)


SAMPLED = tuple(it.name for it in attrs.fields(Machine) if it.name != "load")


def measure(stage: Stage) -> Machine:
    """Measures on the servers of this stage, which are otherwise idle."""
    open_ms, close_ms = _channels(stage)
    members = _members(stage)
    return Machine(
        call_ms=_calls(stage),
        hint_ms=_hints(stage),
        open_ms=open_ms,
        close_ms=close_ms,
        **members,
        load=conditions(),
    )


def conditions() -> str:
    """How busy the machine is."""
    averages = "/".join(f"{it:.1f}" for it in os.getloadavg())
    return f"{os.cpu_count()} CPUs, load {averages}, nice {os.nice(0)}{_session_nice()}"


def _session_nice() -> str:
    """On a Linux that groups processes by session, the group's niceness counts against other sessions."""
    try:
        return f", session {Path('/proc/self/autogroup').read_text().split(' ', 1)[1].strip()}"
    except (OSError, IndexError):
        return ""


def _ms_since(began_ns: int) -> float:
    return (time.perf_counter_ns() - began_ns) / 1e6


def _sorted(samples: list[float]) -> tuple[float, ...]:
    return tuple(round(it, 3) for it in sorted(samples))


# -- Redis ---------------------------------------------------------------------------------------------------------------


def _calls(stage: Stage) -> tuple[float, ...]:
    """Heartbeats of a member, by another thread, one every 5 ms."""
    transport = open_transport(stage.redis_url)
    group = Coordinator(transport, f"{stage.job.group}-calls")
    group.create(stage.job.settings)
    asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
    answered: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def serve() -> None:
        while (request := asked.get()) is not None:
            answered.put(group.execute(request))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    samples = []
    reply = None
    for number in range(1, CALLS + 2):
        seen = (reply.incarnation, reply.version, reply.cursor) if reply else ()
        payload = Heartbeat() if reply else Join(settings=stage.job.settings)
        began = time.perf_counter_ns()
        asked.put(Request(Header("by-hand", number, *seen), payload))
        reply = answered.get(timeout=WAIT_S)
        samples.append(_ms_since(began))
        time.sleep(0.005)
    asked.put(None)
    thread.join()
    transport.close()
    return _sorted(samples[1:])


def _hints(stage: Stage) -> tuple[float, ...]:
    transport = open_transport(stage.redis_url)
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    listener = transport.listen(lambda _, version: heard.put(version))
    channel = hint_channel(f"{stage.job.group}-hints", "by-hand")
    listener.subscribe(channel)
    samples = []
    with redis.Redis.from_url(stage.redis_url) as client:
        heard.get(timeout=WAIT_S)  # the news that it listens
        for number in range(CALLS):
            began = time.perf_counter_ns()
            client.publish(channel, str(number))
            heard.get(timeout=WAIT_S)
            samples.append(_ms_since(began))
            time.sleep(0.005)
    listener.close()
    transport.close()
    return _sorted(samples)


# -- RabbitMQ ------------------------------------------------------------------------------------------------------------


def _channels(stage: Stage) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Opened and subscribed, then closed, one after the other on one connection."""
    connection = BrokerConnection(stage.amqp_url, "truth measures")
    connection.connect()
    opened, closed = [], []
    for number in range(CHANNELS):
        consuming = threading.Event()
        consumer = PartitionConsumer(
            connection,
            stage.topic.queues[number % stage.topic.partitions],
            token=number + 1,
            on_ready=lambda: None,
            on_event=_when_consuming(consuming),
        )
        began = time.perf_counter_ns()
        consumer.start()
        consuming.wait(WAIT_S)
        opened.append(_ms_since(began))
        began = time.perf_counter_ns()
        consumer.release().result(WAIT_S)
        closed.append(_ms_since(began))
    connection.close()
    return _sorted(opened), _sorted(closed)


def _when_consuming(consuming: threading.Event) -> Callable[[PartitionEvent], None]:
    def hear(event: PartitionEvent) -> None:
        if event.state is PartitionState.CONSUMING:
            consuming.set()

    return hear


# -- member processes ----------------------------------------------------------------------------------------------------


def _members(stage: Stage) -> dict[str, tuple[float, ...]]:
    """Members share the partitions and handle messages of a known length one at a time; then others come and go."""
    with stage.beside(f"{stage.job.group}-members") as measured:
        measured.coordinator.create(stage.job.settings)
        hosts = [f"measured{number}" for number in range(MEMBERS)]
        for name in hosts:
            _come(measured, name)
        sent = _publish(measured)
        handled = "members handle their messages"
        measured.wait_until(lambda: _ended(measured.read_diaries()[0]) == len(sent), handled, WAIT_S)
        for number in range(VISITORS):
            name = f"visitor{number}"
            _come(measured, name)
            measured.members[name].leave()
            measured.members[name].wait_left()
            _await_settled(measured)
        runs, noted = measured.read_diaries()
        moved = _handovers(measured.look(), noted)
        for name in hosts:
            measured.members[name].leave()
            measured.members[name].wait_left()
        return {**_handling(runs, sent), **moved}


def _come(stage: Stage, name: str) -> None:
    stage.prepare(name)
    stage.wait_ready()
    stage.members[name].join()
    _await_settled(stage)


def _await_settled(stage: Stage) -> None:
    stage.wait_until(lambda: not stage.why_unsettled(), "members share everything evenly", WAIT_S)


def _ended(runs: Sequence[HandlerRun]) -> int:
    return sum(run.ended_ns is not None for run in runs)


def _handovers(entries: Sequence[JournalEntry], noted: Sequence[DiaryEntry]) -> dict[str, tuple[float, ...]]:
    """The handovers of idle partitions, in three parts."""
    at = {(entry.kind, entry.token): float(entry.at_ms) for entry in entries}
    at |= {(it.kind, it.token): time_of_day_ms(it.at_ns) for it in noted if it.kind in ("assigned", "revoked")}

    def took(begin: str, end: str) -> tuple[float, ...]:
        tokens = [token for kind, token in at if kind == begin and (end, token) in at]
        return _sorted([max(0.0, at[end, token] - at[begin, token]) for token in tokens])

    return {
        "ask_ms": took("revoking", "revoked"),
        "let_go_ms": took("revoked", "released"),
        "tell_ms": took("granted", "assigned"),
    }


def _publish(stage: Stage) -> dict[NumberedMessage, int]:
    """Message → time of publication. Never two at once to a partition, so that none has to wait."""
    sent = {}
    with Publisher(stage.amqp_url, stage.topic, name="truth measures") as publisher:
        for number in range(1, MESSAGES_EACH + 1):
            for queue, key in key_of_each(stage.topic).items():
                message = NumberedMessage(queue, number, KNOWN_MS)
                sent[message] = time.monotonic_ns()
                publisher.publish(key, message.body(), wait=False)
                time.sleep(0.005)
            time.sleep(2 * KNOWN_MS / 1000)
    return sent


def _handling(runs: Sequence[HandlerRun], sent: Mapping[NumberedMessage, int]) -> dict[str, tuple[float, ...]]:
    ways = [(run.begun_ns - sent[run.message]) / 1e6 for run in runs]
    overruns = [(run.ended_ns - run.begun_ns) / 1e6 - KNOWN_MS for run in runs if run.ended_ns is not None]
    return {"way_ms": _sorted(ways), "overrun_ms": _sorted(overruns)}
