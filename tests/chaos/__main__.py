"""``python -m tests.chaos``, which ``make chaos`` calls."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import get_args

from tests.chaos.options import Kind, Options, Servers
from tests.chaos.report import HEADER, is_valid, lines, row
from tests.chaos.run import perform

from cobalance.rabbitmq.consume.key_settings import Order

KINDS: dict[Servers, tuple[Kind, ...]] = {"rabbitmq-cluster": ("quorum", "stream")}
"""A classic queue lives on one node and is unavailable while that node is."""


def main(args: Sequence[str] | None = None) -> int:
    """Runs one kind of queue after the other; returns 0 if every verdict is valid."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Real processes, real servers, and faults.")
    parser.add_argument("--kind", choices=get_args(Kind), action="append", help="default: all that suit the servers")
    parser.add_argument("--servers", choices=get_args(Servers), default="alone", help="default: one of each")
    parser.add_argument("--order", choices=get_args(Order), default="partition", help="what stays in order")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="of faults, for each kind; every fault strikes once anyway"
    )
    chosen = parser.parse_args(args)
    for asked_to_stop in (signal.SIGINT, signal.SIGTERM):  # a shell makes its background jobs ignore SIGINT
        signal.signal(asked_to_stop, signal.default_int_handler)
    rows, well = [], True
    for kind in chosen.kind or KINDS.get(chosen.servers, get_args(Kind)):
        options = Options(
            kind=kind, servers=chosen.servers, order=chosen.order, seed=chosen.seed, seconds=chosen.seconds
        )
        verdict, missing = perform(options)
        sys.stdout.write("\n".join(lines(options, verdict, missing)) + "\n")
        sys.stdout.flush()
        rows.append(row(options, verdict))
        well = well and is_valid(verdict, missing)
    sys.stdout.write("\n".join((HEADER, *rows)) + "\n")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
