"""Every option of the public API, in combination with every other, on real servers, processes and handovers."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.combination_play import Play, Servers, Unsettled
from tests.chaos.combinations import Row, covering, plain_row, refusals, unknown_options

from cobalance import servers
from cobalance.errors import UsageError

SHORT, AT_A_TIME = 6, 4
"""How many rows CI plays, and how many at a time."""


class Stage:
    """Plays rows, a few at a time: mostly they wait."""

    def __init__(self, redis: servers.RedisServer, rabbitmq: servers.RabbitMQServer, folder: Path) -> None:
        self._servers = Servers(redis.url, rabbitmq.url, rabbitmq.management_url or "")
        self._folder = folder

    def play(self, rows: Iterable[Row]) -> list[str]:
        """What is not as promised, of each row; empty if all is."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(self._play, range(1_000), rows))

    def _play(self, number: int, row: Row) -> str:
        folder = self._folder / str(number)
        folder.mkdir()
        with ExitStack() as stack:
            try:
                found = "\n".join(map(str, Play(row, self._servers, folder, stack).play().anomalies[:5]))
            except (Unsettled, UsageError) as error:
                found = str(error)
        played = {name: it for name, it in row.items() if it != plain_row()[name]}
        return found and f"{found}\nof row {number}: {played}"


@pytest.fixture
def stage(redis_server: Any, rabbitmq_server: Any, tmp_path: Path) -> Stage:
    return Stage(redis_server, rabbitmq_server, tmp_path)


def test_every_option_is_played() -> None:
    assert unknown_options() == [], "say in tests/chaos/combinations.py how each is played, or why it is not"


@pytest.mark.campaign
def test_options_keep_what_is_promised(stage: Stage) -> None:
    assert not any(found := stage.play(islice(covering(1), SHORT))), "\n\n".join(filter(None, found))


@pytest.mark.long_campaign
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_pair_of_options_keeps_what_is_promised(stage: Stage, seed: int) -> None:
    assert not any(found := stage.play(covering(seed))), "\n\n".join(filter(None, found))


@pytest.mark.campaign
def test_what_does_not_go_together_is_refused(stage: Stage) -> None:
    words, rows = zip(*refusals(), strict=True)
    found = stage.play(rows)
    assert [it for it, error in zip(words, found, strict=True) if it not in error] == [], "\n\n".join(found)
