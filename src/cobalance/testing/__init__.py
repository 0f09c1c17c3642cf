"""Tests of programs that use Cobalance, without servers: everything is in this process.

``Delivery.fake`` and ``Tenure.fake`` are for tests of one function. ``cobalance.testing.plugin`` is for pytest: a broker and a group whose
members join, leave, crash, hang and are expired as the test says. ``memory://NAME`` is a URL for either server, wherever one is taken.
"""

from cobalance.testing.broker import Broker
from cobalance.testing.churn import Churn
from cobalance.testing.member import Member
from cobalance.testing.tenures import ask_back

__all__ = ["Broker", "Churn", "Member", "ask_back"]
