"""Tests of programs that use Cobalance, without servers: everything runs in this process.

``Delivery.fake`` and ``Tenure.fake`` are for testing a single function. ``cobalance.testing.plugin`` provides pytest
fixtures: a broker, and a group whose members join, leave, crash, hang and expire on demand. ``memory://NAME`` is
accepted wherever a server's URL is.
"""

from cobalance.testing.broker import Broker
from cobalance.testing.churn import Churn
from cobalance.testing.member import Member
from cobalance.testing.tenures import ask_back

__all__ = ["Broker", "Churn", "Member", "ask_back"]
