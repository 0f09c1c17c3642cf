"""Contexts of OpenTelemetry: what came with a message, and what is current where its handler runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.propagators.textmap import Getter, TextMapPropagator

from cobalance.operate.telemetry_metrics import Series

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext


class Current:
    """Makes a span the current one where a handler runs, beside the baggage that came with its message."""

    __slots__ = ("_inside", "_token", "series", "span")

    def __init__(self, span: Span, inside: Context | None, series: Series) -> None:
        self.span, self._inside, self.series = span, inside, series

    def __enter__(self) -> None:
        if self._inside is not None:
            self._token = context.attach(self._inside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A handler that is closed may be so in another context than its own.
        if self._inside is not None and not isinstance(error, GeneratorExit):
            context.detach(self._token)


class _HeaderGetter(Getter[Mapping[str, Any]]):
    """Any publisher may have set headers, to anything that AMQP holds."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[Any, Any]) -> list[str]:
        return [it for it in carrier if isinstance(it, str)]  # pika has a name that is not UTF-8 as bytes


_GETTER = _HeaderGetter()


def without_span(here: Context) -> Context:
    """A context, but no span. In the group's tasks, the span in which it was entered is still current."""
    is_free = not here or trace.get_current_span(here) is trace.INVALID_SPAN
    return here if is_free else trace.set_span_in_context(trace.INVALID_SPAN, here)


def extracted(headers: Mapping[str, Any] | None, outside: Context) -> Context:
    """With what the producer has put into the headers; most other programs put nothing there."""
    if not headers:
        return outside
    propagator = propagate.get_global_textmap()
    return outside if _fields_of(propagator).isdisjoint(headers) else propagator.extract(headers, outside, _GETTER)


@lru_cache(maxsize=4)
def _fields_of(propagator: TextMapPropagator) -> frozenset[str]:
    """Usually there is one in a process, which puts them together at each call."""
    return frozenset(propagator.fields)


def context_in(headers: object, here: Context) -> SpanContext | None:
    """The context that a message was created in, if its headers have it."""
    return span_in(extracted(headers, without_span(here))) if isinstance(headers, Mapping) else None


def span_in(extracted: Context) -> SpanContext | None:
    found = trace.get_current_span(extracted).get_span_context()
    return found if found.is_valid else None
