"""A member process with any combination of options, which keeps a diary. It is forked from one that has imported everything."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import anyio
import attrs
from prometheus_client import CollectorRegistry
from tests.chaos.combinations import Row, part

from cobalance import BlockingConsumerGroup, ConsumerGroup, Delivery, GroupSettings, MemberSettings, StreamSettings, run
from cobalance.coordinator.open import open_transport
from cobalance.errors import CobalanceError
from cobalance.lab.diary import Diary
from cobalance.lab.message import NumberedMessage
from cobalance.operate import ProcessMetrics, Telemetry
from cobalance.rabbitmq.dropin import GroupConnection
from cobalance.rabbitmq.dropin.connection import DropinOptions

ONCE, ALWAYS = "once", "always"
"""How often a handler fails whose message has this for an order."""

GATHERED, GATHER_S = 5, 0.1
"""How many messages are acknowledged together, and how long one waits for the next."""


class FailedOnPurpose(Exception):
    """What handlers raise."""


@attrs.frozen(kw_only=True)
class Job:
    """What a member is to do, and where."""

    row: Row
    name: str
    group: str
    source: Any
    queues: tuple[str, ...]
    redis_url: str
    amqp_url: str
    management_url: str
    settings: GroupSettings
    folder: Path


class Member:
    """One membership, of any kind."""

    def __init__(self, job: Job) -> None:
        self._job, self._row = job, job.row
        self._diary = Diary(job.folder / f"{job.name}.diary")
        self._numbers = itertools.count()
        self._tokens: dict[str, int] = {}
        self._finished: SimpleQueue[Delivery] = SimpleQueue()
        self._replies = self._row["publish.reply_to"] and self._row["way"] != "dropin"
        self.group: Any = None
        threading.Thread(target=self._acknowledge, daemon=True).start()

    # -- handlers ------------------------------------------------------------------------------------------------------

    def _steps(self, given: Any) -> Iterator[float]:
        """What a handler does, and for how long it waits in between."""
        deliveries = given if isinstance(given, list) else [given]
        messages = [NumberedMessage.read(it.body) for it in deliveries]
        manual = self._row["consumer.ack"] == "manual"
        if manual and [it.order for it in messages] == [ALWAYS]:  # it is given up at once, without a failure
            self.group.reject(deliveries[0])
            return
        if any(it.order == ALWAYS or (it.order == ONCE and self._is_first(it)) for it in messages):
            raise FailedOnPurpose
        for it, message in zip(deliveries, messages, strict=True):
            number = next(self._numbers)
            self._diary.begin(number, it, "")
            yield message.handle_ms / 1000 / len(messages)
            if self._replies:
                it.reply(it.body)
            self._diary.end(number)
            if manual:
                self._finished.put(it)

    def _is_first(self, message: NumberedMessage) -> bool:
        with suppress(FileExistsError):
            (self._job.folder / f"failed {message.key} {message.number}").touch(exist_ok=False)
            return True
        return False

    def _plain(self, given: Any) -> None:
        for it in self._steps(given):
            time.sleep(it)

    async def _async(self, given: Any) -> None:
        try:
            for it in self._steps(given):
                await anyio.sleep(it)
        except FailedOnPurpose:
            task = asyncio.current_task() if self._row["failing"] == "cancelled" else None
            if task is None:
                raise
            task.cancel()
            await asyncio.sleep(0)

    def _awaitable(self, given: Any) -> Any:
        return self._async(given)

    def _on_message(self, queue: str, channel: Any, method: Any, _: Any, body: bytes) -> None:
        token, redelivered = self._tokens[queue], method.redelivered
        try:
            self._plain(SimpleNamespace(queue=queue, token=token, redelivered=redelivered, offset=None, body=body))
        except FailedOnPurpose:
            channel.basic_nack(method.delivery_tag)
        else:
            channel.basic_ack(method.delivery_tag)

    def _acknowledge(self) -> None:
        """Settles by hand, in another thread: what has gathered for a while, the latest first."""
        while True:
            found = [self._finished.get()]
            with suppress(Empty):
                while len(found) < GATHERED:
                    found.append(self._finished.get(timeout=GATHER_S))
            for it in reversed(found):
                self.group.ack(it)

    # -- kinds of members ----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Until SIGTERM."""
        way, place = self._row["way"], (self._job.group, self._job.source)
        handler = {"async": self._async, "plain": self._plain, "awaitable": self._awaitable}[self._row["handler"]]
        if way == "dropin":
            self._serve_dropin()
        elif way == "blocking":
            self.group = BlockingConsumerGroup(*place, handler, **self._options())
            self._serve_blocking()
        else:
            self.group = ConsumerGroup(*place, handler, **self._options())
            if way == "start":
                asyncio.run(self._serve_started())
            else:
                run(self.group, backend="trio" if way == "trio" else "asyncio")

    async def _serve_started(self) -> None:
        asked, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, asked.set)
        await self.group.start()
        loop.add_signal_handler(signal.SIGUSR1, self._pause)
        loop.add_signal_handler(signal.SIGUSR2, self.group.resume)
        over = [asyncio.ensure_future(it) for it in (asked.wait(), self.group.wait_left())]
        await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        await self.group.stop()
        await asyncio.gather(*over[1:], return_exceptions=True)

    def _serve_blocking(self) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt), self.group:
            signal.signal(signal.SIGUSR1, lambda *_: self._pause())
            signal.signal(signal.SIGUSR2, lambda *_: self.group.resume())
            self.group.wait_left()

    def _serve_dropin(self) -> None:
        names = {*DropinOptions.__annotations__, "redis_url"}
        options = {name: it for name, it in self._options().items() if name in names}
        with GroupConnection(self._job.amqp_url, group=self._job.group, **options) as connection:
            channel = connection.channel()
            ended = channel.stop_consuming
            signal.signal(signal.SIGTERM, lambda *_: connection.add_callback_threadsafe(ended))
            channel.basic_qos(prefetch_count=self._row["consumer.prefetch"])
            for name in self._job.queues:
                channel.basic_consume(name, partial(self._on_message, name))
            channel.start_consuming()

    def _pause(self) -> None:
        if self.group.tenures:
            self.group.pause(*self.group.tenures)

    def _options(self) -> dict[str, Any]:
        row, job = self._row, self._job
        options, member, url = part(row, "consumer"), part(row, "member"), job.management_url
        member["instance_id"] = job.name.partition(".")[0] if row["member.instance_id"] else None
        member["capacity"] = row["member.capacity"] if job.name == "m3" else 1
        made = {
            "redis_url": job.redis_url, "amqp_url": job.amqp_url, "settings": job.settings, "member": MemberSettings(**member),
            "management_url": url if options["management_url"] or row["source"] in {"matching", "bound"} else None,
            "streams": StreamSettings(**part(row, "streams")), "transport": open_transport(job.redis_url) if options["transport"] else None,
            "metrics": ProcessMetrics(CollectorRegistry()) if options["metrics"] else None,
            "telemetry": Telemetry() if options["telemetry"] else None,
            "on_failure": (lambda *_: self._diary.note("failure")) if options["on_failure"] else None,
        }  # fmt: skip
        if row["listeners"] or row["way"] == "dropin":  # which knows tokens by them
            made |= {f"on_{kind}": self._listener(kind) for kind in ("assigned", "revoked", "lost")}
        return options | made

    def _listener(self, kind: str) -> Any:
        def note(tenures: Any) -> None:
            for it in tenures:
                self._tokens[it.resource] = it.token
                self._diary.note(kind, it.resource, it.token)

        return note


def serve(job: Job) -> None:
    """Runs the process; its exit code is 1 if it ended by an error of ours, or of a handler."""
    words = os.open(job.folder / f"{job.name}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(words, 1)
    os.dup2(words, 2)
    try:
        Member(job).serve()
    except (CobalanceError, FailedOnPurpose) as error:
        traceback.print_exc()
        os.write(2, f"{type(error).__name__}: {error}".encode())
        raise SystemExit(1) from None
