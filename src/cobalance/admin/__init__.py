"""Group administration from Python: the API behind ``cobalance group``."""

from cobalance.admin.backlog import Backlog
from cobalance.admin.group_admin import GroupAdmin, Resumed
from cobalance.admin.offset_plan import Shift, StreamReset, Target
from cobalance.coordinator.client import Repaired
from cobalance.description import (
    GroupDescription,
    GroupState,
    LetGo,
    MemberDescription,
    ResourceDescription,
    SubscriptionDescription,
)

__all__ = [
    "Backlog",
    "GroupAdmin",
    "GroupDescription",
    "GroupState",
    "LetGo",
    "MemberDescription",
    "Repaired",
    "ResourceDescription",
    "Resumed",
    "Shift",
    "StreamReset",
    "SubscriptionDescription",
    "Target",
]
