"""Several hosts in one AMQP URL: the order of attempts, and which error to raise if all fail."""

import time
from collections.abc import Callable
from random import SystemRandom
from typing import TypeVar

from cobalance.errors import CobalanceError, Unreachable
from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.wire.address import place, single_urls

_random = SystemRandom()

LEAST_MS = 1_000
"""Each host is given at least so long to connect."""

LATER_S = 60.0
"""How long a host that failed is tried after the others."""

_failed: dict[str, float] = {}
"""When hosts failed last, for all connections of this process."""

T = TypeVar("T")


def first_that_works(url: str, attempt: Callable[[str, int], T], timeout_ms: int) -> T:
    """Returns the first successful result of ``attempt(url, timeout_ms)``. Hosts are tried in random order, so that clients
    spread; those that have just failed come last. The timeout is for all of them: each is given its share, and at least
    a second.

    Raises:
        CobalanceError: every host failed. Errors other than Unreachable, such as a wrong password, take precedence.
    """
    urls, failures = single_urls(url), list[CobalanceError]()
    shuffled = _random.sample(urls, len(urls))
    until = monotonic_ms() + timeout_ms
    for tried, single in enumerate(sorted(shuffled, key=_has_just_failed)):
        share_ms = (until - monotonic_ms()) // (len(urls) - tried)
        try:
            found = attempt(single, max(share_ms, min(timeout_ms, LEAST_MS)))
        except CobalanceError as error:
            _failed[place(single)] = time.monotonic()
            failures.append(error)
        else:
            _failed.pop(place(single), None)
            return found
    raise _most_specific(failures) from None


def _has_just_failed(single: str) -> bool:
    return time.monotonic() - _failed.get(place(single), -LATER_S) < LATER_S


def _most_specific(failures: list[CobalanceError]) -> CobalanceError:
    if len(failures) == 1:
        return failures[0]
    specific = next((error for error in failures if not isinstance(error, Unreachable)), None)
    return specific or Unreachable(
        f"None of the {len(failures)} hosts in the AMQP URL can be used. {' '.join(map(str, failures))}"
    )
