"""``cobalance group reset-offsets``."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cobalance.admin import StreamReset
from cobalance.admin.offset_target import OffsetTarget, read_plan
from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, Name, RedisOptions
from cobalance.cli.output import print_json, print_table, remark, remark_waiting
from cobalance.errors import UsageError
from cobalance.names import split_resource, validate_name
from cobalance.rabbitmq import read_topic
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL


def reset_offsets(
    name: Name,
    /,
    *,
    topic: Annotated[
        tuple[str, ...], Parameter(negative="", help="orders, or orders:0,2 for some of its partitions.")
    ] = (),
    all_topics: Annotated[bool, Parameter(negative="", help="Every stream of the group.")] = False,
    resource: Annotated[tuple[str, ...], Parameter(negative="", help="A stream by its own name.")] = (),
    to_earliest: Annotated[bool, Parameter(negative="", help="The oldest message.")] = False,
    to_latest: Annotated[bool, Parameter(negative="", help="Messages published from now on.")] = False,
    to_current: Annotated[bool, Parameter(negative="", help="The current offset; for --export.")] = False,
    to_offset: Annotated[int | None, Parameter(help="This message.")] = None,
    to_datetime: Annotated[str | None, Parameter(help="2026-01-31T12:00:00, UTC unless it has a zone.")] = None,
    by_duration: Annotated[str | None, Parameter(help="This long ago: P1DT2H, or 90s, 30m, 2h.")] = None,
    shift_by: Annotated[
        int | None, Parameter(help="This many messages forward, or back.", allow_leading_hyphen=True)
    ] = None,
    from_file: Annotated[Path | None, Parameter(help="A file with topic,partition,offset per line.")] = None,
    dry_run: Annotated[bool, Parameter(negative="", help="Only show the changes (the default).")] = False,
    execute: Annotated[bool, Parameter(negative="", help="Make the changes.")] = False,
    export: Annotated[bool, Parameter(negative="", help="Only print the plan, in the format of --from-file.")] = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Move the committed offsets of streams, with Kafka's flags. Nothing is changed without --execute.

    NEW-OFFSET is that of the next message to be read; the committed offset, which describe shows, is one below. Offsets
    out of range are moved to the nearest end, those without a message to the next. Refused while the group has members,
    unless everything to be moved is halted; what is halted is resumed. Journalled.
    """
    if dry_run + execute + export > 1:
        raise UsageError("Give one of --dry-run, --execute and --export.")
    scenario = OffsetTarget(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
        from_file=from_file,
    )
    with redis.admin(amqp_url) as admin:
        streams = _streams(scenario, topic, resource, amqp_url, all_topics=all_topics)
        steps = admin.plan_offsets(name, scenario.target, streams)
        resumed = admin.reset_offsets(name, steps, on_waiting=remark_waiting) if execute else []
    _show(name, steps, json=json, export=export)
    _remark_on(steps, resumed, execute=execute, export=export)


# -- which -----------------------------------------------------------------------------------------------------------------------


def _streams(
    scenario: OffsetTarget, topics: Sequence[str], resources: Sequence[str], amqp_url: str, *, all_topics: bool
) -> list[str] | None:
    """None for all streams of the group, or of the file."""
    planned = None if scenario.from_file is None else read_plan(scenario.from_file)
    if all_topics or (planned is not None and not topics and not resources):
        if topics or resources:
            raise UsageError("Say which streams: --topic, --resource or --all-topics.")
        return None
    if not topics and not resources:
        raise UsageError("Say which streams: --topic, --resource or --all-topics.")
    names = [it for given in topics for it in _partitions(given, amqp_url)] + list(resources)
    return list(dict.fromkeys(it for it in names if planned is None or it in planned))


def _partitions(given: str, amqp_url: str) -> list[str]:
    """Parses ``orders`` or ``orders:0,2``."""
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


# -- what is printed -----------------------------------------------------------------------------------------------------------------


def _show(group: str, steps: Sequence[StreamReset], *, json: bool, export: bool) -> None:
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


def _remark_on(steps: Sequence[StreamReset], resumed: Sequence[str], *, execute: bool, export: bool) -> None:
    for step in steps:
        if step.remark:
            remark(f"warning: {step.remark}")
    if resumed:
        remark(f"Halted until now, and resumed: {', '.join(resumed)}.")
    if not steps:
        remark("warning: there are no streams.")
    elif not execute and not export:
        remark("Nothing was changed: this was a dry run. Add --execute to do it.")
