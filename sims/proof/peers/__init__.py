"""The peers' own test lists, row by row: which of our tests covers each scenario, or why it cannot apply.

Data, one file for each list; ``tests/proof/test_peers.py`` checks that each list is complete and that each test named
is collected and not skipped, and ``proof.document`` renders it into PROOF.md.
"""

from __future__ import annotations

from proof.peers import iggy, kafka_connect, kafka_members, kafka_sticky, rebalanser
from proof.peers.row import PeerList, PeerTest

LISTS: tuple[PeerList, ...] = (
    *iggy.LISTS,
    *rebalanser.LISTS,
    *kafka_sticky.LISTS,
    *kafka_connect.LISTS,
    *kafka_members.LISTS,
)

__all__ = ["LISTS", "PeerList", "PeerTest"]
