"""Several hosts in one AMQP URL: which is tried when, and what is said when none will do."""

from collections.abc import Callable
from random import SystemRandom
from typing import TypeVar

from cobalance.errors import CobalanceError, Unreachable
from cobalance.rabbitmq.wire.parameters import single_urls

_random = SystemRandom()

T = TypeVar("T")


def first_that_works(url: str, attempt: Callable[[str], T]) -> T:
    """The result of the first attempt that does not fail, each at another host, in random order so that clients spread.

    Raises:
        CobalanceError: all failed. What is not mere unreachability, such as a wrong password, is told first.
    """
    urls, failures = single_urls(url), list[CobalanceError]()
    for single in _random.sample(urls, len(urls)):
        try:
            return attempt(single)
        except CobalanceError as error:
            failures.append(error)
    raise _most_telling(failures) from None


def _most_telling(failures: list[CobalanceError]) -> CobalanceError:
    if len(failures) == 1:
        return failures[0]
    telling = next((error for error in failures if not isinstance(error, Unreachable)), None)
    return telling or Unreachable(
        f"None of the {len(failures)} hosts in the AMQP URL can be used. {' '.join(map(str, failures))}"
    )
