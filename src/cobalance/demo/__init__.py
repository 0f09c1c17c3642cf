"""The main job, to be watched: real servers, real processes that come, go and crash, and a verdict on every message.

Reading order: ``story`` (what happens), ``supervisor`` (who makes it happen), ``worker`` (a consumer process), ``evidence``
(what is written down meanwhile), ``verdict`` (what follows from it, pure), ``report`` (how it is said).
"""

from cobalance.demo.options import DemoOptions
from cobalance.demo.run import run_demo
from cobalance.demo.supervisor import DemoFailed

__all__ = ["DemoFailed", "DemoOptions", "run_demo"]
