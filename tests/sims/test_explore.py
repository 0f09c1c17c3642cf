"""Every interleaving of a very small group; the CI tier is `make explore`."""

from __future__ import annotations

import pytest

from cobalance_sims.explore.scope import SCOPES
from cobalance_sims.explore.search import Result, Search
from cobalance_sims.explore.world import World


@pytest.fixture(scope="module")
def explored() -> Result:
    """Two members and one resource, with any one fault."""
    return Search(World(SCOPES["2x1"])).run()


def test_all_interleavings_of_two_members_keep_every_promise(explored: Result) -> None:
    """Safety in every state, and an even group from every state once all trouble ends."""
    assert explored.found is None
    assert explored.is_complete


def test_the_faults_were_reached(explored: Result) -> None:
    """An exploration in which nothing goes wrong proves nothing."""
    for what in (
        "crash",
        "pause",
        "cut",
        "lost",
        "reply",
        "empty",
        "replace",
        "journal expired",
        "journal recovered",
        "journal claimed",
    ):
        assert explored.reached[what], f"{what} was never reached"
