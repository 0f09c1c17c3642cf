"""Tells a meter what becomes of published messages. Without one nothing of this runs."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, Self

from cobalance.rabbitmq.model.meters import log_meter_failure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage
    from cobalance.rabbitmq.wire.connection import BrokerConnection


class Sent(Protocol):
    """One message, as a meter follows it."""

    headers: Mapping[str, Any] | None
    """Those that it is published with."""

    def ended(self, message: UnconfirmedMessage | None, error: BaseException | None) -> None:
        """Its outcome is known, or the call has raised; without a message, nothing was sent. Any thread."""


class PublishMeter(Protocol):
    """See :class:`cobalance.operate.Telemetry`."""

    def publishing(self, topic: str, headers: Mapping[str, Any] | None, connection: BrokerConnection) -> Sent:
        """A message is about to be published."""


class Publishing:
    """The publishing of one message: the ``with`` around the call, beyond which its outcome may come.

    Args:
        meter: what follows it.
        topic: where it goes.
        headers: those that the program gives it.
        connection: the publisher's.
    """

    __slots__ = ("_message", "_open", "_topic", "headers")

    def __init__(
        self, meter: PublishMeter, topic: str, headers: Mapping[str, Any] | None, connection: BrokerConnection
    ) -> None:
        self._topic, self.headers = topic, headers
        self._message: UnconfirmedMessage | None = None
        self._open: list[Sent] = []  # whoever takes it ends it
        try:
            sent = meter.publishing(topic, headers, connection)
        except Exception as error:  # noqa: BLE001 -- what fails is logged, and does not keep the message from being sent
            log_meter_failure(f"publisher to {topic}", error)
        else:
            self.headers = sent.headers
            self._open.append(sent)

    def follow(self, message: UnconfirmedMessage) -> None:
        """It is sent once it has a place in the window."""
        self._message = message
        message.outcome.add_done_callback(self._settled)

    def _settled(self, outcome: Future[int]) -> None:
        self._end(Future.exception(outcome))  # Outcome's own method would count as a look at the failure

    def _end(self, error: BaseException | None) -> None:
        try:
            sent = self._open.pop()
        except IndexError:
            return
        message = self._message
        try:
            sent.ended(message if message is not None and message.is_inside else None, error)
        except Exception as failure:  # noqa: BLE001
            log_meter_failure(f"publisher to {self._topic}", failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._end(error)
