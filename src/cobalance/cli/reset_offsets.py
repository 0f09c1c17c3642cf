"""``cobalance group reset-offsets``."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cobalance.cli.group import connected
from cobalance.cli.offset_plan import Scenario, Step, plan, read_plan
from cobalance.cli.options import DEFAULT_AMQP_URL, DEFAULT_REDIS_URL, AmqpUrl, Json, Name, RedisUrl
from cobalance.cli.output import print_json, print_table, remark, split_resource
from cobalance.cli.snapshot import Snapshot
from cobalance.coordinator.client import Coordinator
from cobalance.errors import GroupActive, QueueMissing, UsageError
from cobalance.names import validate_name
from cobalance.rabbitmq import read_topic
from cobalance.rabbitmq.stream_extent import streams_among

TRY_AGAIN_S = 0.2


def reset_offsets(
    name: Name,
    /,
    *,
    topic: Annotated[
        tuple[str, ...], Parameter(negative="", help="orders, or orders:0,2 for some of its partitions.")
    ] = (),
    all_topics: Annotated[bool, Parameter(negative="", help="Every stream of the group.")] = False,
    resource: Annotated[tuple[str, ...], Parameter(negative="", help="A stream by its own name.")] = (),
    to_earliest: Annotated[bool, Parameter(negative="", help="The oldest message there is.")] = False,
    to_latest: Annotated[bool, Parameter(negative="", help="What is published from now on.")] = False,
    to_current: Annotated[bool, Parameter(negative="", help="Where it is; for --export.")] = False,
    to_offset: Annotated[int | None, Parameter(help="This message.")] = None,
    to_datetime: Annotated[str | None, Parameter(help="2026-01-31T12:00:00, UTC unless it has a zone.")] = None,
    by_duration: Annotated[str | None, Parameter(help="So long ago: P1DT2H, or 90s, 30m, 2h.")] = None,
    shift_by: Annotated[int | None, Parameter(help="So many messages on, or back.", allow_leading_hyphen=True)] = None,
    from_file: Annotated[Path | None, Parameter(help="topic,partition,offset a line.")] = None,
    dry_run: Annotated[bool, Parameter(negative="", help="Only show what would be done (the default).")] = False,
    execute: Annotated[bool, Parameter(negative="", help="Do it.")] = False,
    export: Annotated[bool, Parameter(negative="", help="Only write it, as --from-file reads it.")] = False,
    json: Json = False,
    redis_url: RedisUrl = DEFAULT_REDIS_URL,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Move the committed offsets of streams, under Kafka's flags. Nothing is changed without --execute.

    NEW-OFFSET is that of the next message to be read; what is committed, and shown by describe, is the one below. Out of range is
    brought to the nearest end. Refused while the group has members, unless all that is to be moved is halted. Journalled.
    """
    if dry_run + execute + export > 1:
        raise UsageError("Give one of --dry-run, --execute and --export.")
    validate_name("group", name)
    scenario = Scenario(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
        from_file=from_file,
    )
    with connected(redis_url) as transport:
        coordinator = Coordinator(transport, name)
        committed = {row.name: row.committed for row in coordinator.resources()}
        streams = _streams(scenario, committed, topic, resource, amqp_url, all_topics=all_topics)
        steps = plan(scenario, streams, committed, amqp_url)
        if execute:
            _execute(coordinator, {step.stream: step.committed for step in steps})
    _show(name, steps, json=json, export=export)
    _remark_on(steps, execute=execute, export=export)


# -- which -----------------------------------------------------------------------------------------------------------------------


def _streams(
    scenario: Scenario,
    known: Iterable[str],
    topics: Sequence[str],
    resources: Sequence[str],
    amqp_url: str,
    *,
    all_topics: bool,
) -> list[str]:
    if scenario.from_file is not None and not (topics or resources or all_topics):
        names = list(read_plan(scenario.from_file))
    elif bool(topics or resources) == all_topics:
        raise UsageError("Say which streams: --topic, --resource or --all-topics.")
    elif all_topics:
        names = list(known)
    else:
        names = [it for given in topics for it in _partitions(given, amqp_url)] + list(resources)
    if scenario.from_file is not None:
        planned = read_plan(scenario.from_file)
        names = [it for it in names if it in planned]
    return _checked(list(dict.fromkeys(names)), amqp_url, all_topics=all_topics)


def _partitions(given: str, amqp_url: str) -> list[str]:
    """``orders`` or ``orders:0,2``."""
    topic, colon, numbers = given.partition(":")
    found = read_topic(amqp_url, validate_name("topic", topic)).queue_names
    if not colon:
        return list(found)
    chosen = []
    for number in numbers.split(","):
        if not number.strip().isdecimal() or int(number) >= len(found):
            raise UsageError(f"--topic {given}: topic {topic!r} has the partitions 0 to {len(found) - 1}.")
        chosen.append(found[int(number)])
    return chosen


def _checked(names: list[str], amqp_url: str, *, all_topics: bool) -> list[str]:
    """Only streams have offsets."""
    kinds = streams_among(amqp_url, names)
    if all_topics:
        return [name for name in names if kinds.get(name)]
    for name in names:
        if name not in kinds:
            raise QueueMissing(f"There is no stream {name!r}.")
        if not kinds[name]:
            raise UsageError(f"{name!r} is a queue, which keeps no offsets: what was acknowledged is gone from it.")
    return names


# -- doing it ----------------------------------------------------------------------------------------------------------------------


def _execute(coordinator: Coordinator, offsets: dict[str, int]) -> None:
    """Members that crashed count until their sessions are over, which somebody has to ask about meanwhile."""
    settings = coordinator.settings()
    give_up_at = time.monotonic() + (2 * settings.session_timeout_ms + settings.heartbeat_interval_ms) / 1000
    waiting = False
    while True:
        try:
            coordinator.reset_offsets(offsets)
        except GroupActive:
            if Snapshot.take(coordinator).state != "Empty" or time.monotonic() > give_up_at:
                raise
        else:
            return
        if not waiting:
            remark("waiting for the sessions of members that went silent to end")
        waiting = True
        time.sleep(TRY_AGAIN_S)


# -- what is printed -----------------------------------------------------------------------------------------------------------------


def _show(group: str, steps: Sequence[Step], *, json: bool, export: bool) -> None:
    rows = [(*split_resource(step.stream), step) for step in steps]
    if export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows((topic or "", partition, step.next) for topic, partition, step in rows)
    elif json:
        print_json(
            [
                {
                    "group": group,
                    "topic": topic,
                    "partition": part,
                    "new_offset": step.next,
                    "committed": step.committed,
                }
                for topic, part, step in rows
            ]
        )
    else:
        columns = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET", "COMMITTED")
        print_table(columns, ((group, topic, part, step.next, step.committed) for topic, part, step in rows))


def _remark_on(steps: Sequence[Step], *, execute: bool, export: bool) -> None:
    for step in steps:
        if step.next != step.asked:
            remark(f"warning: {step.stream} does not have offset {step.asked}; the nearest is {step.next}.")
    if not steps:
        remark("warning: there are no streams.")
    elif not execute and not export:
        remark("Nothing was changed: this was a dry run. Add --execute to do it.")
