"""The user's handlers: which kinds there are, and which results are refused."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from cobalance.errors import UnexpectedResult, UsageError
from cobalance.group.worker import innermost
from cobalance.limits import check_parameters
from cobalance.rabbitmq.partition.delivery import Delivery

Handler = Callable[[Delivery], Awaitable[None]] | Callable[[Delivery], None]
BatchHandler = Callable[[list[Delivery]], Awaitable[None]] | Callable[[list[Delivery]], None]

_WITHOUT_YIELD = "use a function without yield; nothing of its body would run"


def check_handler(handler: object) -> None:
    """Raises UsageError for what can never handle a message."""
    if not callable(handler):
        raise UsageError(f"the handler is {_kind(handler)}: give a function, async or plain, that takes a delivery")
    for function in (innermost(handler), type(innermost(handler)).__call__):
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(f"the handler is a generator: {_WITHOUT_YIELD}")
    check_parameters("the handler", handler, "a delivery")


def refuse_result(result: object) -> None:
    """Raises UnexpectedResult unless a handler returned None.

    Anything else may be work that was never done: a generator, a coroutine that was not awaited, a job handed to
    something else.
    """
    if result is None:
        return
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise UnexpectedResult(
            f"the handler returned a generator, so its message failed: have it return None, and {_WITHOUT_YIELD}"
        )
    if inspect.iscoroutine(result):
        result.close()
    raise UnexpectedResult(
        f"the handler returned {_kind(result)}, so its message is not taken for processed: have it return None (a lambda returns "
        f"its value), await what it begins, and raise an exception if it fails; a message that is finished later takes ack='manual'"
    )


def _kind(value: object) -> str:
    """Describes a value without quoting it, since it may be part of a message."""
    return "None" if value is None else f"an object of type {type(value).__name__}"
