"""``cobalance demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from cobalance.demo import DemoOptions, run_demo
from cobalance.rabbitmq.consume.key_settings import Order


def demo(
    *,
    mode: Annotated[
        Literal["cooperative", "eager"],
        Parameter(help="eager is the baseline, in which every change stops everything."),
    ] = "cooperative",
    messages: Annotated[int, Parameter(help="Publish at least this many.")] = 20_000,
    partitions: Annotated[int, Parameter(help="Partitions of the topic.")] = 12,
    queue_type: Annotated[
        Literal["classic", "quorum"], Parameter(name="--type", help="Type of the queues.")
    ] = "classic",
    order: Annotated[
        Order, Parameter(help="key handles messages of different keys side by side, those of one in order.")
    ] = "partition",
    seed: Annotated[int, Parameter(help="Determines keys, their order, which process leaves and which is killed.")] = 1,
    keep: Annotated[bool, Parameter(negative="", help="Keep the topic, the group and the logs.")] = False,
    json: Annotated[Path | None, Parameter(help="Also write the verdict to this file.")] = None,
    dashboard: Annotated[bool, Parameter(negative="", help="Also show the story in a browser, until Ctrl-C.")] = False,
) -> int:
    """Watch processes join, leave and crash under load, and get a verdict on every message.

    Uses real servers (those of COBALANCE_REDIS_URL and COBALANCE_AMQP_URL, or private ones) and real processes. The
    exit code is 1 unless nothing was lost or reordered, only what had to move moved, and only the kill caused
    duplicates.
    """
    options = DemoOptions(
        mode=mode,
        messages=messages,
        partitions=partitions,
        queue_type=queue_type,
        order=order,
        seed=seed,
        keep=keep,
        json_file=json,
        dashboard=dashboard,
    )
    return 0 if run_demo(options) else 1
