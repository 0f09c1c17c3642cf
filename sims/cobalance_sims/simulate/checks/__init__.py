"""One checker per promise (S1 to S8, L1 to L3, M1; see the coordinator's README). Each says what it checks and what it exempts."""

from __future__ import annotations

from cobalance_sims.simulate.checks.base import Check, Violation
from cobalance_sims.simulate.checks.commits import S4Told
from cobalance_sims.simulate.checks.crashes import S2Crashed
from cobalance_sims.simulate.checks.lists import S8, S6Lists
from cobalance_sims.simulate.checks.liveness import L1, L2, L3
from cobalance_sims.simulate.checks.messages import M1
from cobalance_sims.simulate.checks.poison import S6Poison
from cobalance_sims.simulate.checks.returns import S6Returns
from cobalance_sims.simulate.checks.safety import S1, S2, S3, S4, S7
from cobalance_sims.simulate.checks.sharing import S5, S6

ALL: tuple[type[Check], ...] = (
    S1,
    S2,
    S2Crashed,
    S3,
    S4,
    S4Told,
    S5,
    S6,
    S6Returns,
    S6Poison,
    S6Lists,
    S7,
    S8,
    L1,
    L2,
    L3,
    M1,
)

__all__ = [
    "ALL",
    "L1",
    "L2",
    "L3",
    "M1",
    "S1",
    "S2",
    "S3",
    "S4",
    "S5",
    "S6",
    "S7",
    "S8",
    "Check",
    "S2Crashed",
    "S4Told",
    "S6Lists",
    "S6Poison",
    "S6Returns",
    "Violation",
]
