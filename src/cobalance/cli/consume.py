"""``cobalance consume``."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import anyio
import attrs
from cyclopts import Parameter

from cobalance.admin.offset_target import read_time
from cobalance.cli.health import PROBE_PORT
from cobalance.cli.options import (
    NO_SETTINGS,
    THIS_REDIS,
    AmqpUrl,
    ConnectTimeout,
    ManagementUrl,
    RedisOptions,
    SettingOptions,
    duration_option,
)
from cobalance.cli.output import remark
from cobalance.errors import CobalanceError, UsageError
from cobalance.group.runner import drain_timed_out, obey_signals
from cobalance.names import validate_name
from cobalance.operate.http_listener import LOCALHOST, Pages
from cobalance.operate.probes import ProbeServer
from cobalance.rabbitmq import BoundQueues, MatchingQueues, Queue, StreamSettings
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.consume.key_settings import Order
from cobalance.rabbitmq.model.stream_settings import Place, Start
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL
from cobalance.settings import MemberSettings

if TYPE_CHECKING:
    from cobalance.operate.process_metrics import ProcessMetrics

Source = str | BoundQueues | MatchingQueues | list[str | Queue]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SourceOptions:
    """Instead of a topic."""

    queue: Annotated[tuple[str, ...], Parameter(negative="", help="An existing queue; repeatable.")] = ()
    bound_to: Annotated[
        str | None, Parameter(help="The queues bound to this exchange, updated continuously. Asks the management API.")
    ] = None
    matching: Annotated[
        str | None,
        Parameter(help="The queues whose whole name matches this regular expression. Asks the management API."),
    ] = None
    management_url: ManagementUrl = None

    def source(self, topic: str | None) -> Source:
        """The given source.

        Raises:
            UsageError: there is not exactly one.
        """
        if sum(map(bool, (topic, self.queue, self.bound_to, self.matching))) != 1:
            raise UsageError("Give one of: a topic, --queue (any number of times), --bound-to, --matching.")
        if self.bound_to:
            return BoundQueues(self.bound_to)
        if self.matching:
            return MatchingQueues(self.matching)
        return validate_name("topic", topic) if topic else list(self.queue)


STREAM_DEFAULTS = StreamSettings()


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class StreamOptions:
    """For streams only."""

    start: Annotated[
        str,
        Parameter(
            help="Where a new group starts in a stream: first, last, next, an offset, or 2026-01-31T12:00:00 (UTC)."
        ),
    ] = "first"
    on_unknown_offset: Annotated[
        Literal["stop", "first"] | None,
        Parameter(
            help="If it is unknown how far a stream was read. By default first if that is the start, otherwise stop."
        ),
    ] = None
    commit_every: Annotated[int, Parameter(help="Commit after this many messages of a stream …")] = (
        STREAM_DEFAULTS.commit_every
    )
    commit_interval_ms: Annotated[int, duration_option("commit-interval", "… or so long after the first of them.")] = (
        int(STREAM_DEFAULTS.commit_interval_ms)
    )
    lock: Annotated[bool, Parameter(negative="", help="Guard each stream by an exclusive queue, lock.GROUP NAME.")] = (
        False
    )

    def settings(self) -> StreamSettings:
        return StreamSettings(
            start=_start(self.start),
            on_unknown_offset=self.on_unknown_offset,
            commit_every=self.commit_every,
            commit_interval_ms=self.commit_interval_ms,
            lock=self.lock,
        )


def _start(text: str) -> Start:
    if text.isdecimal():
        return int(text)
    time: datetime | None = read_time("--start", text) if "-" in text else None
    return cast("Place", text) if time is None else time


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ProbeOptions:
    """What may ask this process how it is."""

    probe_port: Annotated[
        int | None,
        Parameter(env_var=PROBE_PORT, help="Answer /livez and /readyz at this port, and `cobalance health`."),
    ] = None
    probe_host: Annotated[
        str,
        Parameter(env_var="COBALANCE_PROBE_HOST", help="The address to listen at; 0.0.0.0 for all, as httpGet needs."),
    ] = LOCALHOST
    probe_name: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="A host name under which it may be asked, besides this machine's; repeatable."),
    ] = ()

    metrics: Annotated[
        bool, Parameter(negative="", help="Answer /metrics there, too, for Prometheus: what the handler does.")
    ] = False

    def meter(self) -> ProcessMetrics | None:
        """What counts; nothing unless it can be asked for."""
        if not self.metrics:
            return None
        if self.probe_port is None:
            raise UsageError("--metrics needs --probe-port, where they are asked for.")
        from cobalance.operate.process_metrics import ProcessMetrics

        return ProcessMetrics()

    def server(self, member: ConsumerGroup) -> AbstractContextManager[object]:
        """What answers; nothing without a port."""
        if self.probe_port is None:
            return nullcontext()
        return ProbeServer(
            member, host=self.probe_host, port=self.probe_port, hosts=self.probe_name, pages=self._pages()
        )

    def _pages(self) -> Pages | None:
        if not self.metrics:
            return None
        from cobalance.operate.metrics_page import metrics_pages

        return metrics_pages()


NO_PROBES = ProbeOptions()
NO_SOURCES = SourceOptions()
NO_STREAMS = StreamOptions()


class HandlerFailed(CobalanceError):
    """The user's handler raised an exception."""


def consume(
    topic: Annotated[str | None, Parameter(help="The topic.")] = None,
    /,
    *,
    group: Annotated[str, Parameter(help="The consumer group to join.")],
    handler: Annotated[str, Parameter(help="package.module:function; called with each delivery.")],
    prefetch: Annotated[int, Parameter(help="Unacknowledged messages per partition.")] = 100,
    retries: Annotated[int, Parameter(help="How often a failed message is retried in place.")] = 3,
    on_error: Annotated[
        Literal["pause", "raise", "dead-letter", "halt", "park"],
        Parameter(
            help="What then becomes of a failed message: pause its partition ever longer, end this process, dead-letter it, "
            "halt its partition, or, by key, have its key alone wait."
        ),
    ] = "pause",
    order: Annotated[
        Order, Parameter(help="Handle a partition's messages in order, or those of each key, side by side.")
    ] = "partition",
    concurrency: Annotated[
        int | None, Parameter(help="With --order key: handlers at a time in this process.", show_default="64")
    ] = None,
    log_exceptions: Annotated[
        bool, Parameter(help="Log what the handler raises, with its traceback; it may quote messages.")
    ] = True,
    instance_id: Annotated[
        str | None,
        Parameter(
            env_var="COBALANCE_INSTANCE_ID",
            help="A name that survives restarts: what the process held is kept for its return.",
        ),
    ] = None,
    drain_timeout: Annotated[
        int, duration_option("drain-timeout", "How long finishing may take after SIGTERM; then the rest is given up.")
    ] = MemberSettings().drain_timeout_ms,
    max_processing: Annotated[
        int,
        duration_option(
            "max-processing", "How long a handler may run; then it is considered hung, and its message fails."
        ),
    ] = MemberSettings().max_processing_ms,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    connect_timeout: ConnectTimeout = 0,
    streams: StreamOptions = NO_STREAMS,
    sources: SourceOptions = NO_SOURCES,
    settings: SettingOptions = NO_SETTINGS,
    probes: ProbeOptions = NO_PROBES,
) -> None:
    """Consume a topic, or existing queues, as a member of a group until SIGTERM or Ctrl-C; then finish, hand over and
    leave.

    A second signal ends it at once. The settings are stored by the first member of a new group.
    """
    source = sources.source(topic)
    _set_up_logging()
    member = ConsumerGroup(
        group,
        source,
        load_handler(handler),
        amqp_url=amqp_url,
        redis_url=redis.redis_url,
        key_prefix=redis.key_prefix,
        connect_timeout_s=connect_timeout / 1000,
        prefetch=prefetch,
        streams=streams.settings(),
        management_url=sources.management_url,
        retries=retries,
        on_error="dead_letter" if on_error == "dead-letter" else on_error,
        order=order,
        concurrency=concurrency,
        log_exceptions=log_exceptions,
        metrics=probes.meter(),
        settings=settings.settings(),
        member=MemberSettings(
            instance_id=instance_id, drain_timeout_ms=drain_timeout, max_processing_ms=max_processing
        ),
    )
    try:
        with probes.server(member):
            anyio.run(_serve, member)
    except BaseExceptionGroup as errors:
        raise _first(errors, handler, log_exceptions) from None
    except CobalanceError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a handler raises
        raise _handler_failed(handler, error, log_exceptions) from None


def _set_up_logging() -> None:
    """Logs our messages and the handler's, one line each."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")


def load_handler(path: str) -> Callable[..., Any]:
    """Imports a function by its path, searching the working folder first.

    Raises:
        UsageError: there is no such function.
    """
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"--handler {path!r} is not of the form package.module:function.")
    if os.getcwd() not in sys.path:  # noqa: PTH109 -- sys.path holds strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        found = importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001 -- importing runs the user's code
        raise UsageError(
            f"--handler {path!r}: importing {module_name} failed ({type(error).__name__}: {error})."
        ) from None
    function: Callable[..., Any] | None = getattr(found, name, None)
    if not callable(function):
        raise UsageError(f"--handler {path!r}: the module {module_name} has no function {name!r}.")
    return function


async def _serve(member: ConsumerGroup) -> None:
    async with anyio.create_task_group() as tasks:
        serving = anyio.CancelScope()
        await tasks.start(obey_signals, member, serving, _say_how_to_end)
        with serving:
            await _be_member(member)
        tasks.cancel_scope.cancel()
    if member.given_up:
        raise drain_timed_out(member)


async def _be_member(member: ConsumerGroup) -> None:
    async with member:  # cancelling it is a graceful end: what it holds is drained and handed over
        remark(f"joined group {member.name} as {member.member}")
        await member.wait_left()


def _say_how_to_end() -> None:
    remark("finishing what has begun; a second signal ends this at once")


def _first(errors: BaseExceptionGroup[BaseException], handler: str, log_exceptions: bool) -> BaseException:
    """The first error, taken out of its exception groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Exception) and not isinstance(error, CobalanceError):
        return _handler_failed(handler, error, log_exceptions)
    return error


def _handler_failed(handler: str, error: Exception, log_exceptions: bool) -> HandlerFailed:
    words = f"{type(error).__name__}: {error}" if log_exceptions else type(error).__name__
    return HandlerFailed(
        f"The handler {handler} failed ({words}); its message stays in its queue. Correct the handler, "
        "or give up such messages with --on-error dead-letter."
    )
