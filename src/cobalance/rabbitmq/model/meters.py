"""A meter that fails costs nobody a message: what it raises is logged instead."""

import logging
import time

PAUSE_S = 60.0
"""It may fail with every message."""

log = logging.getLogger("cobalance.rabbitmq")

_logged_at: dict[str, float] = {}


def log_meter_failure(whose: str, error: Exception) -> None:
    """Logs what it has raised, with the traceback, once in `PAUSE_S` for each group or topic. Any thread."""
    now = time.monotonic()
    if now - _logged_at.get(whose, -PAUSE_S) >= PAUSE_S:
        _logged_at[whose] = now
        log.error("%s: a meter has failed, and may have missed something; messages go on", whose, exc_info=error)
