"""The pauses between retries."""

from typing import Any

import pytest

from cobalance.errors import InvalidSettings
from cobalance.rabbitmq.model.retries import Retries


def test_pauses_grow_up_to_their_limit() -> None:
    """Each is `factor` times the previous one."""
    retries = Retries(10, first_ms=100, last_ms=1_000, factor=3)
    assert [retries.delay_ms(failures) for failures in (1, 2, 3, 4, 100_000)] == [100, 300, 900, 1_000, 1_000]


@pytest.mark.parametrize(
    "arguments", [{"most": -1}, {"most": True}, {"first_ms": -1}, {"factor": 0.5}, {"first_ms": 10, "last_ms": 5}]
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    """It is refused before anything is consumed."""
    with pytest.raises(InvalidSettings):
        Retries(**arguments)
