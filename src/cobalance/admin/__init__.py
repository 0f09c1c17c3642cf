"""Group administration from Python: the API behind ``cobalance group``."""

from typing import TYPE_CHECKING

from cobalance import lazy

if TYPE_CHECKING:
    from cobalance.admin.group_admin import GroupAdmin, Resumed
    from cobalance.admin.offset_plan import Shift, StreamReset, Target
    from cobalance.coordinator.client import Repaired
    from cobalance.description import (
        Backlog,
        GroupDescription,
        GroupState,
        LetGo,
        MemberDescription,
        ResourceDescription,
        SubscriptionDescription,
    )
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "cobalance.admin.group_admin": ["GroupAdmin", "Resumed"],
            "cobalance.admin.offset_plan": ["Shift", "StreamReset", "Target"],
            "cobalance.coordinator.client": ["Repaired"],
            "cobalance.description": [
                "Backlog",
                "GroupDescription",
                "GroupState",
                "LetGo",
                "MemberDescription",
                "ResourceDescription",
                "SubscriptionDescription",
            ],
        },
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
