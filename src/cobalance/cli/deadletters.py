"""``cobalance deadletters``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import attrs
from cyclopts import Parameter

from cobalance.cli.exits import FAILED
from cobalance.cli.options import AmqpUrl, Json, Name
from cobalance.cli.output import print_json, print_table, remark
from cobalance.errors import UsageError, counted
from cobalance.rabbitmq.consume.dead_letters import (
    DeadLetter,
    drop_dead_letters,
    read_dead_letters,
    replay_dead_letters,
)
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL

COLUMNS = ("MESSAGE-ID", "QUEUE", "GROUP", "FAILURES", "DIED", "BYTES", "ERROR")


def deadletters(
    topic: Name,
    action: Annotated[
        Literal["list", "replay", "drop"],
        Parameter(help="List them, send them back to their queues, or delete them."),
    ] = "list",
    /,
    *message_ids: Annotated[str, Parameter(help="Only these messages, for replay and drop.")],
    yes: Annotated[bool, Parameter(negative="", help="drop: all of them.")] = False,
    most: Annotated[int, Parameter(help="list: at most this many, the oldest ones.")] = 100,
    json: Json = False,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> int | None:
    """List, replay or drop the dead letters of a topic.

    A replayed message goes to the end of its queue, with its key and headers, and stops being a dead letter once
    RabbitMQ has confirmed it. Fix the cause first. Bodies are not shown.
    """
    if action == "list":
        if message_ids or yes:
            raise UsageError("list takes no message ids, and no --yes.")
        _show(read_dead_letters(amqp_url, topic, most=most), json=json)
        return None
    if action == "drop" and yes == bool(message_ids):
        raise UsageError("drop deletes messages for good: name their ids, or give --yes for all of them.")
    act = replay_dead_letters if action == "replay" else drop_dead_letters
    settled = act(amqp_url, topic, *message_ids, everything=not message_ids)
    _show(settled, json=json)
    remark(f"{'replayed' if action == 'replay' else 'dropped'} {counted(len(settled), 'message')}")
    missing = sorted(id_ for id_ in set(message_ids) if not any(it.is_named([id_]) for it in settled))
    if missing:
        remark(f"warning: no dead letter of {topic} has the id {', '.join(missing)}")
    return FAILED if missing else None


def _show(letters: list[DeadLetter], *, json: bool) -> None:
    if json:
        print_json([attrs.asdict(it) for it in letters])
        return
    rows = ((it.message_id, it.queue, it.group, it.failures, _time(it.died_at), it.size, it.error) for it in letters)
    print_table(COLUMNS, rows)


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
