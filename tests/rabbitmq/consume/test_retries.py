"""The pauses between retries."""

from typing import Any

import pytest

from cobalance.errors import InvalidSettings
from cobalance.rabbitmq.model.retries import Retries


def test_pauses_grow_up_to_their_limit() -> None:
    """Each is `factor` times the previous one."""
    retries = Retries(10, first_ms=100, last_ms=1_000, factor=3)
    assert [retries.delay_ms(failures) for failures in (1, 2, 3, 4, 100_000)] == [100, 300, 900, 1_000, 1_000]


def test_without_a_first_pause_there_is_never_one() -> None:
    """However often a message has failed, also beyond what a float can hold."""
    retries = Retries(1_000_000_000, first_ms=0, last_ms=1_000)
    assert {retries.delay_ms(failures) for failures in (1, 2, 1_024, 1_025, 1_000_000_000)} == {0}


@pytest.mark.parametrize(
    "arguments", [{"most": -1}, {"most": True}, {"first_ms": -1}, {"factor": 0.5}, {"first_ms": 10, "last_ms": 5}]
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    """It is refused before anything is consumed."""
    with pytest.raises(InvalidSettings):
        Retries(**arguments)
