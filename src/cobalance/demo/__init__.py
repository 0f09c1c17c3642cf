"""A live demonstration: real servers, real processes that join, leave and crash, and a verdict on every message.

Reading order: ``story`` (what happens), ``supervisor`` (makes it happen to processes of the ``lab``), ``evidence``
(what is recorded), ``verdict`` (what follows from it, pure), ``report`` (how it is presented).
"""

from cobalance.demo.options import DemoOptions
from cobalance.demo.run import run_demo
from cobalance.demo.supervisor import DemoFailed

__all__ = ["DemoFailed", "DemoOptions", "run_demo"]
