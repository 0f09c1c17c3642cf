"""Puts the commands together, and turns whatever happens into an exit code and, if it went wrong, one line on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, CycloptsError

from cobalance.cli import (
    consume,
    deadletters,
    demo,
    describe,
    group,
    history,
    publish,
    reset_offsets,
    sims,
    topic,
)
from cobalance.cli.exits import FAILED, INTERRUPTED, OK, USAGE, exit_code
from cobalance.errors import CobalanceError
from cobalance.redact import redact

HELP = """Kafka-style consumer groups for RabbitMQ, and for any other set of resources, without stop-the-world.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a server cannot be reached, 4 work was given up at the drain timeout.
"""

TRACEBACK = "COBALANCE_TRACEBACK"
"""Set it to see where an unexpected error came from."""

groups = App(name="group", help="Consumer groups: who works what, and how it came about.")
groups.command(group.list_groups, name="list")
groups.command(group.create)
groups.command(group.delete)
groups.command(group.configure)
groups.command(group.resume)
groups.command(group.trust_offsets)
groups.command(group.repair)
groups.command(describe.describe)
groups.command(history.history)
groups.command(reset_offsets.reset_offsets)

topics = App(name="topic", help="Topics: an exchange and its partition queues.")
topics.command(topic.create)
topics.command(topic.list_topics, name="list")
topics.command(topic.grow)
topics.command(topic.prune)
topics.command(topic.describe)
topics.command(topic.delete)

app = App(name="cobalance", help=HELP, version=version("cobalance"), suppress_keyboard_interrupt=False)
app.command(demo.demo)
app.command(topics)
app.command(publish.publish)
app.command(consume.consume)
app.command(groups)
app.command(deadletters.deadletters)
app.command(sims.sims, help_flags=())  # its commands have a help of their own


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        return _complain(str(error), USAGE)
    except CobalanceError as error:
        return _complain(str(error), exit_code(error))
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        reason = f"{type(error).__name__}: {error}"
        return _complain(
            f"unexpected {reason}. Please report this, with the traceback that {TRACEBACK}=1 shows.", FAILED
        )
    return result if isinstance(result, int) else OK


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"error: {' '.join(redact(message).split())}\n")
    return code
