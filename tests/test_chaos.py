"""The short form of `make chaos`: every kind of fault once, on real servers and processes."""

from __future__ import annotations

import pytest
from tests.chaos.options import Options
from tests.chaos.report import is_valid, lines
from tests.chaos.run import perform

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]  # it mostly waits: some 80 seconds, of which 40 are CPU


def test_everything_goes_wrong_once() -> None:
    """No message is lost, skipped, reordered or repeated without a reason, and every fault was really reached."""
    options = Options(kind="classic", seed=1)
    verdict, missing = perform(options)
    assert is_valid(verdict, missing), "\n".join(lines(options, verdict, missing))
