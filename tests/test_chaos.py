"""The short form of `make chaos`: every kind of fault once, on real servers and processes."""

from __future__ import annotations

import pytest
from tests.chaos.options import Options
from tests.chaos.report import is_valid, lines
from tests.chaos.run import perform


@pytest.mark.timeout(900)
def test_everything_goes_wrong_once() -> None:
    """No message is lost, skipped, reordered or repeated without a reason, and every fault was really reached."""
    options = Options(kind="classic", seed=1)
    verdict, missing = perform(options)
    assert is_valid(verdict, missing), "\n".join(lines(options, verdict, missing))
