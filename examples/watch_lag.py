"""The state and lag of every group, as a dashboard or an alert needs them."""

import os

from cobalance import GroupAdmin

REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")

with GroupAdmin(REDIS_URL, amqp_url=AMQP_URL) as admin:
    for name in admin.list():
        group, lag = admin.describe(name), admin.lag(name)
        halted = [resource.name for resource in group.resources if resource.halted]
        behind = sum(messages or 0 for messages in lag.values())
        print(f"{name}: {group.state}, members: {len(group.members)}, behind: {behind}, halted: {halted}", flush=True)
