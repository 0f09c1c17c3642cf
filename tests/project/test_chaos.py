"""The short form of `make chaos`: every kind of fault once, on real servers and processes."""

from __future__ import annotations

import pytest
from tests.chaos.options import Options
from tests.chaos.report import is_valid, lines
from tests.chaos.run import perform

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]  # it mostly waits: some 80 seconds, of which 40 are CPU

LONG = pytest.mark.long_campaign


@pytest.mark.parametrize(
    "options",
    [
        Options(kind="classic"),
        Options(kind="quorum", order="key"),
        Options(kind="stream", servers="redis-sentinel"),
        pytest.param(Options(kind="classic", servers="redis-cluster"), marks=LONG),
        pytest.param(Options(kind="quorum", servers="rabbitmq-cluster"), marks=LONG),
        pytest.param(Options(kind="stream", servers="rabbitmq-cluster"), marks=LONG),
    ],
    ids=lambda it: f"{it.servers}-{it.kind}-by-{it.order}",
)
def test_everything_goes_wrong_once(options: Options) -> None:
    """No message is lost, skipped, reordered or repeated without a reason, and every fault really happened."""
    verdict, missing = perform(options)
    assert is_valid(verdict, missing), "\n".join(lines(options, verdict, missing))
