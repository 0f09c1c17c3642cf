"""Several hosts in one AMQP URL: the order of attempts, and which error to raise if all fail."""

import time
from collections.abc import Callable
from random import SystemRandom
from typing import NamedTuple, TypeVar

from cobalance.errors import CobalanceError, Unreachable
from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.wire.address import place, single_urls

_random = SystemRandom()

LEAST_MS = 1_000
"""Each host is given at least so long to connect."""

LATER_S = 60.0
"""How long a host that failed is tried after the others."""


class _Failure(NamedTuple):
    """Hosts are tried in this order."""

    timed_out: bool
    at: float


_NEVER = _Failure(timed_out=False, at=0.0)

_failures: dict[tuple[str, str], _Failure] = {}
"""How hosts failed last, by protocol and host, for all connections of this process."""

T = TypeVar("T")


def first_that_works(url: str, attempt: Callable[[str, int], T], timeout_ms: int, protocol: str = "AMQP") -> T:
    """Returns the first successful result of ``attempt(url, timeout_ms)``.

    Hosts are tried in random order, so that clients spread. Those that have just failed come later, and those that have
    just timed out come last, and take turns. The timeout is for all of them: each is given its share, and at least a second.
    A host that timed out may only be slow, and no small share would ever do. So those that did have one share together,
    which goes to the first of them; if all did, that is the whole time.

    Raises:
        CobalanceError: no host worked. Errors other than Unreachable, such as a wrong password, take precedence.
    """
    urls, errors = single_urls(url), list[CobalanceError]()
    last = {single: _last_failure(protocol, single) for single in _random.sample(urls, len(urls))}
    hosts, until = sorted(last, key=last.__getitem__), monotonic_ms() + timeout_ms
    for tried, single in enumerate(hosts):
        begun, left = monotonic_ms(), [last[it].timed_out for it in hosts[tried:]]
        if tried and left[0] and begun >= until:
            break
        share_ms = max((until - begun) // (left.count(False) + left[-1]), min(timeout_ms, LEAST_MS))
        try:
            found = attempt(single, share_ms)
        except CobalanceError as error:
            _failures[protocol, place(single)] = _Failure(monotonic_ms() - begun >= share_ms, time.monotonic())
            errors.append(error)
        else:
            _failures.pop((protocol, place(single)), None)
            return found
    raise _most_specific(errors, len(hosts) - len(errors)) from None


def _last_failure(protocol: str, single: str) -> _Failure:
    failure = _failures.get((protocol, place(single)), _NEVER)
    return failure if time.monotonic() - failure.at < LATER_S else _NEVER


def _most_specific(errors: list[CobalanceError], untried: int) -> CobalanceError:
    if len(errors) == 1 and not untried:
        return errors[0]
    specific = next((error for error in errors if not isinstance(error, Unreachable)), None)
    later = ["The others have just timed out, and are tried the next time."] if untried else []
    return specific or Unreachable(
        f"None of the {len(errors) + untried} hosts in the AMQP URL can be used. {' '.join([*map(str, errors), *later])}"
    )
