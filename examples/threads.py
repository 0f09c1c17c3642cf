"""Each tenant is worked by a plain function, in a thread of its own. Start it several times."""

import os
import signal
from contextlib import suppress

from cobalance import BlockingGroup, BlockingTenure

REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
TENANTS = [f"tenant-{number}" for number in range(6)]


def work(tenant: BlockingTenure) -> None:
    """Returns soon after the tenant is revoked."""
    print(f"{os.getpid()} begins {tenant.resource} {tenant.token}\n", end="", flush=True)
    while not tenant.wait_draining(timeout=1):
        pass  # a second's worth of work, which may block
    print(f"{os.getpid()} ends {tenant.resource} {tenant.token}\n", end="", flush=True)


signal.signal(signal.SIGTERM, signal.default_int_handler)
with BlockingGroup("tenants", TENANTS, redis_url=REDIS_URL, work=work) as group, suppress(KeyboardInterrupt):
    group.wait_left()
