"""Several hosts in one AMQP URL: the order of attempts, and which error to raise if all fail."""

from collections.abc import Callable
from random import SystemRandom
from typing import TypeVar

from cobalance.errors import CobalanceError, Unreachable
from cobalance.rabbitmq.wire.address import single_urls

_random = SystemRandom()

T = TypeVar("T")


def first_that_works(url: str, attempt: Callable[[str], T]) -> T:
    """Returns the first successful result. Hosts are tried in random order, so that clients spread.

    Raises:
        CobalanceError: every host failed. Errors other than Unreachable, such as a wrong password, take precedence.
    """
    urls, failures = single_urls(url), list[CobalanceError]()
    for single in _random.sample(urls, len(urls)):
        try:
            return attempt(single)
        except CobalanceError as error:
            failures.append(error)
    raise _most_specific(failures) from None


def _most_specific(failures: list[CobalanceError]) -> CobalanceError:
    if len(failures) == 1:
        return failures[0]
    specific = next((error for error in failures if not isinstance(error, Unreachable)), None)
    return specific or Unreachable(
        f"None of the {len(failures)} hosts in the AMQP URL can be used. {' '.join(map(str, failures))}"
    )
