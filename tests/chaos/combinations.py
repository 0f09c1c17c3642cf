"""Every option of the public API, the values that are played, and rows of values in which every pair of them occurs.

A factor is named after what takes it: ``consumer.prefetch`` is an argument of a consumer group, ``publish.partition`` one
of ``publish``. Its first value is the one of programs that say nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from random import Random
from typing import Any

import attrs

import cobalance
from cobalance import Batch, Retention, Retries
from cobalance.rabbitmq import Delivery, Properties, grow_topic
from cobalance.rabbitmq.consume.consumer_options import ConsumerOptions
from cobalance.rabbitmq.dropin.channel import GroupChannel
from cobalance.rabbitmq.dropin.connection import DropinOptions, GroupConnection

Row = Mapping[str, Any]

FLAG = (False, True)


def by_header(delivery: Delivery) -> Any:
    """What order is kept by, where the program says so."""
    return (delivery.headers or {})["k"]


SOON: dict[str, Any] = {"first_ms": 1, "last_ms": 5}

FACTORS: dict[str, tuple[Any, ...]] = {
    "story": ("calm", "kill", "pause", "grow", "eager", "restart", "flap"),
    "failing": ("none", "once", "always", "cancelled"),
    "way": ("run", "trio", "start", "blocking", "dropin"),
    "handler": ("async", "plain", "awaitable"),
    "source": ("topic", "name", "queues", "names", "mixed", "matching", "bound", "set"),
    "listeners": (True, False),
    "redis.database": (0, 5),
    "topic.queue_type": ("classic", "quorum", "stream"),
    "topic.partitions": (4, 1),
    "topic.delivery_limit": (None, 6, 2, 1, 0),
    "topic.dead_letter": (True, False),
    "topic.retention": (Retention(), Retention(max_age="7D"), Retention(max_bytes=10**8, segment_bytes=10**6)),
    "consumer.prefetch": (100, 1, 3),
    "consumer.ack": ("auto", "manual"),
    "consumer.ack_every": (50, 1),
    "consumer.ack_interval_ms": (50.0, 0.1),
    "consumer.batch": (None, Batch(1), Batch(5, within_ms=5), Batch(100, within_ms=0)),
    "consumer.retries": (3, 0, Retries(2, factor=1.0, **SOON), Retries(mode="park", **SOON), Retries(mode="park", key=by_header, **SOON)),
    "consumer.on_error": ("pause", "dead_letter", "halt", "raise", "park"),
    "consumer.on_failure": (None, True),
    "consumer.order": ("partition", "key"),
    "consumer.concurrency": (None, 2),
    "consumer.key": (None, by_header),
    "consumer.max_in_flight": (None, 1, 100),
    "consumer.max_in_flight_per_partition": (None, 1, 100),
    "consumer.require_guard": (True, False),
    "consumer.unconnected_ms": (300_000, None, 1),
    "consumer.crash_detection": (True, False),
    "consumer.metrics": (None, True),
    "consumer.telemetry": (None, True),
    "consumer.refresh_ms": (5_000, 100),
    "consumer.management_url": (None, True),
    "consumer.log_exceptions": (True, False),
    "consumer.key_prefix": ("cobalance", "other"),
    "consumer.connect_timeout_s": (0, 30),
    "consumer.transport": (None, True),
    "streams.start": ("first", 0),
    "streams.on_unknown_offset": (None, "stop", "first"),
    "streams.commit_every": (500, 1),
    "streams.commit_interval_ms": (1_000.0, 1.0),
    "streams.lock": FLAG,
    "settings.mode": ("cooperative", "eager"),
    "settings.rejoin_grace_ms": (0, 2_000),
    "settings.gather_ms": (0, 500),
    "settings.moves_per_call": (50, 1),
    "settings.idle_expiry_ms": (0, 3_600_000),
    "member.capacity": (1, 3, 0),
    "member.instance_id": (None, True),
    "member.max_processing_ms": (300_000, 20_000),
    "member.drain_timeout_ms": (30_000, 0),
    "member.guarded_outage_ms": (3_600_000, 0),
    "publisher": ("Publisher", "AsyncPublisher"),
    "publisher.window": (1_000, 1),
    "publisher.heartbeat_s": (30, 0),
    "publisher.telemetry": (None, True),
    "publisher.unseen_failures": ("raise", "log"),
    "publish.key": ("text", b"bytes"),
    "publish.partition": FLAG,
    "publish.persistent": (True, False),
    "publish.wait": FLAG,
    "publish.properties": FLAG,
    "publish.reply_to": FLAG,
}  # fmt: skip

PLACE = "where the servers are, or a name"
ELSEWHERE = "streams are sought, and offsets committed by hand, in tests/rabbitmq/streams and by tests/chaos"
NOT_PLAYED: dict[str, dict[str, str]] = {
    "topic": {"name": PLACE, "layout": "read from RabbitMQ"},
    "create": {"url": PLACE, "topic": "the factors topic.*", "group": "source=set"},
    "grow": {"url": PLACE, "name": PLACE, "partitions": "story=grow", "management_url": "only says sooner what is refused"},
    "consumer": {
        "amqp_url": PLACE,
        "redis_url": "redis.database",
        "streams": "the factors streams.*",
        "settings": "the factors settings.*",
        "member": "the factors member.*",
        "on_assigned": "listeners",
        "on_revoked": "listeners",
        "on_lost": "listeners",
        "resources_version": "of plain groups: a consumer group numbers what it finds",
    },
    "settings": {
        "session_timeout_ms": "as long as a busy machine needs",
        "heartbeat_interval_ms": "a sixteenth of it",
        "revocation_timeout_ms": "as long as a busy machine needs",
        "journal_length": "the journal is what is judged",
    },
    "publisher": {"url": PLACE, "topic": PLACE, "name": PLACE, "timeout_ms": "only of outages"},
    "publish": {
        "body": "numbered",
        "headers": "always, with the key",
        "key": "None cannot be judged: order is by partition then",
        **dict.fromkeys(("message_id", "type", "correlation_id"), "publish.properties"),
        **dict.fromkeys(("content_type", "content_encoding", "app_id", "timestamp"), "as those of publish.properties"),
        "expiration_ms": "drops messages, as it is meant to",
        "user_id": "the connection's own only",
    },
    "batch": dict.fromkeys(("most", "within_ms"), "consumer.batch"),
    "retention": dict.fromkeys(("max_age", "max_bytes", "segment_bytes"), "topic.retention"),
    "retries": dict.fromkeys(("most", "first_ms", "last_ms", "factor", "mode", "key"), "consumer.retries"),
    "run": dict.fromkeys(("group", "backend"), "way"),
    "dropin": {
        **dict.fromkeys(("channel", "close", "add_callback_threadsafe", "basic_ack", "basic_consume", "basic_nack", "basic_qos"), "way=dropin"),
        **dict.fromkeys(("start_consuming", "stop_consuming", "parameters", "group", "redis_url", "options"), "way=dropin"),
        **dict.fromkeys(("consume", "basic_recover", "tx_select"), "refused: tests/rabbitmq/dropin"),
        **dict.fromkeys(("basic_cancel", "basic_get", "basic_reject", "process_data_events", "sleep", "leave"), "tests/rabbitmq/dropin"),
        **dict.fromkeys(("add_consumer", "close_channel", "consumer_tags", "leave_regardless", "remove_consumer", "stop"), "internal"),
        **dict.fromkeys(("forget", "hand_out"), "internal"),
    },
    "calls": {
        "ack": "consumer.ack", "reject": "failing=always", "seek": ELSEWHERE, "commit": ELSEWHERE, "start": "way=start", "stop": "way=start",
        "pause": "story=pause", "resume": "story=pause", "wait_left": "way", "declare": "of plain groups", "describe": "GroupAdmin.describe",
        "leadership": "of plain groups", "leave": "the end of the block", "wait_held": "only waits", "wait_joined": "only waits",
        "reply": "publish.reply_to", "forget_reply": "internal", "fake": "for tests without servers",
    },
}  # fmt: skip
"""Arguments, and methods, that no factor has by that name: how they are played, or why they are not."""


@attrs.frozen
class Rule:
    """Values that do not go together. With `words`, they are refused, with an error that has these words."""

    words: str
    values: dict[str, tuple[Any, ...]]

    def breaks(self, row: Row) -> bool:
        """Whether the row, which may be unfinished, has them all."""
        return all(name in row and row[name] in values for name, values in self.values.items())


def rule(words: str = "", /, **values: Any) -> Rule:
    """A rule; a double underscore stands for the dot, and what is no tuple, for a single value."""
    return Rule(words, {name.replace("__", "."): it if type(it) is tuple else (it,) for name, it in values.items()})


def but(factor: str, *values: Any) -> tuple[Any, ...]:
    """All values of a factor but these."""
    return tuple(it for it in FACTORS[factor] if it not in values)


PARKS, BATCHES = FACTORS["consumer.retries"][-2:], FACTORS["consumer.batch"][1:]
RULES = [
    rule("delivery_limit", topic__queue_type="quorum", topic__delivery_limit=(0, 1), topic__dead_letter=True),
    rule("no dead letters", topic__queue_type="quorum", topic__delivery_limit=(2, 6), topic__dead_letter=False),
    rule("retention is for", topic__queue_type=("classic", "quorum"), topic__retention=but("topic.retention", Retention())),
    rule("leave out batch", consumer__retries=PARKS, consumer__batch=BATCHES, consumer__order="partition"),
    rule("leave out mode='park'", consumer__retries=PARKS, consumer__order="key"),
    rule("which has one offset", consumer__retries=PARKS, topic__queue_type="stream"),
    rule("concurrency and key are for", consumer__order="partition", consumer__concurrency=2),
    rule("concurrency and key are for", consumer__order="partition", consumer__key=by_header),
    rule("is for order='key'", consumer__order="partition", consumer__on_error="park"),
    rule("messages at a time: raise it", consumer__max_in_flight=1, consumer__batch=BATCHES[1:]),
    rule("messages at a time: raise it", consumer__max_in_flight_per_partition=1, consumer__batch=BATCHES[1:]),
    rule("messages at a time: raise it", consumer__prefetch=(1, 3), consumer__batch=BATCHES[1:]),
    rule("no dead-letter target", consumer__on_error="dead_letter", topic__dead_letter=False, topic__queue_type=("classic", "quorum")),
    rule("no dead-letter target", consumer__on_error="dead_letter", topic__queue_type="stream"),
    rule("the handler is an async function", way="blocking", handler="async"),
    rule("to any number of consumers", way="dropin", handler="plain", topic__queue_type="stream"),
    rule("grown", story="grow", topic__queue_type="stream"),
    rule("queue sets", story="grow", source="set"),
    rule("leave group= out", source="set", topic__queue_type="stream"),
    # What has no meaning together, or what a program of that kind has no option for.
    rule(topic__queue_type=("classic", "stream"), topic__delivery_limit=but("topic.delivery_limit", None)),
    rule(topic__queue_type="quorum", topic__delivery_limit=(0, 1), topic__dead_letter=False),
    rule(story="grow", source=but("source", "topic", "name")),
    rule(story="grow", publish__partition=True),  # which a publisher that has not heard of the growth does not have
    rule(story="pause", way=("run", "trio", "dropin")),
    rule(way="blocking", handler="awaitable"),
    rule(failing="always", consumer__on_error=but("consumer.on_error", "dead_letter")),
    rule(failing="cancelled", way=("trio", "blocking", "dropin")),
    rule(failing="cancelled", handler="plain"),
    rule(failing="cancelled", consumer__on_error="raise"),
    rule(failing=("once", "cancelled"), consumer__retries=0, consumer__on_error="dead_letter"),
    rule(way="dropin", source=but("source", "topic")),
    rule(way="dropin", story="grow"),
    rule(way="dropin", handler=("async", "awaitable")),
    *(
        rule(**{"way": "dropin", name: FACTORS[name][1:]})
        for name in FACTORS
        if name.startswith("consumer.") and name.removeprefix("consumer.") not in DropinOptions.__annotations__
    ),
    # What repeats work, as documented, is not to hide what must not.
    rule(member__drain_timeout_ms=0, story=but("story", "calm")),
    # What is promised with a condition: of a limit of two, that holders finish messages, and are not killed.
    rule(topic__delivery_limit=2, story=but("story", "calm")),
    rule(topic__delivery_limit=2, failing=but("failing", "none")),
]  # fmt: skip


def plain_row(**values: Any) -> dict[str, Any]:
    """What programs that say nothing have, with these values."""
    return {name: it[0] for name, it in FACTORS.items()} | values


def refusals() -> Iterator[tuple[str, dict[str, Any]]]:
    """The words of each refusal, and a row that is refused with them."""
    for it in RULES:
        if it.words:
            yield it.words, plain_row(**{name: values[0] for name, values in it.values.items()})


Place = tuple[str, int]
"""A factor, and which of its values."""


def covering(seed: int) -> Iterator[dict[str, Any]]:
    """Rows in which every pair of values occurs that the rules let occur. The first rows have the most of them."""
    random = Random(seed)
    places = {name: [(name, at) for at in range(len(values))] for name, values in FACTORS.items()}
    left = {frozenset((x, y)) for a, b in combinations(FACTORS, 2) for x in places[a] for y in places[b]}
    waiting = random.sample(sorted(map(sorted, left)), len(left))
    while waiting:
        wanted = waiting.pop()
        if frozenset(wanted) not in left:
            continue
        rows = [row for _ in range(TRIES) if (row := _row_with(wanted, places, left, random)) is not None]
        if rows:
            best = max(rows, key=lambda row: len(left & _pairs(row)))
            left -= _pairs(best)
            yield {name: FACTORS[name][at] for name, at in best}


TRIES = 4


def _row_with(
    wanted: list[Place], places: Mapping[str, list[Place]], left: set[frozenset[Place]], random: Random
) -> list[Place] | None:
    row: list[Place] = []
    given = dict(wanted)
    for name in (*given, *random.sample([it for it in places if it not in given], len(places) - len(given))):
        choice = [(name, given[name])] if name in given else random.sample(places[name], len(places[name]))
        fit = [it for it in choice if _is_allowed(name, [*row, it])]
        if not fit:
            return None
        row.append(max(fit, key=lambda it: sum(frozenset((it, other)) in left for other in row)))
    return row


def _is_allowed(last: str, row: list[Place]) -> bool:
    values = {name: FACTORS[name][at] for name, at in row}
    return not any(it.breaks(values) for it in RULES if last in it.values)


def _pairs(row: list[Place]) -> set[frozenset[Place]]:
    return {frozenset(it) for it in combinations(row, 2)}


def part(row: Row, prefix: str) -> dict[str, Any]:
    """The arguments of what has this prefix."""
    return {name.removeprefix(f"{prefix}."): it for name, it in row.items() if name.startswith(f"{prefix}.")}


def unknown_options() -> list[str]:
    """What the public API takes, and is neither a factor nor said not to be one."""
    taken: list[tuple[str, Callable[..., Any]]] = [
        ("topic", cobalance.Topic), ("create", cobalance.create_topic), ("grow", grow_topic), ("consumer", cobalance.ConsumerGroup),
        ("consumer", cobalance.BlockingConsumerGroup), ("streams", cobalance.StreamSettings), ("settings", cobalance.GroupSettings),
        ("member", cobalance.MemberSettings), ("publisher", cobalance.Publisher), ("publisher", cobalance.AsyncPublisher),
        ("publish", cobalance.Publisher.publish), ("batch", Batch), ("retries", Retries), ("retention", Retention), ("run", cobalance.run),
        ("dropin", GroupConnection), ("publish", cobalance.AsyncPublisher.publish),
    ]  # fmt: skip
    names = {(prefix, name) for prefix, it in taken for name in inspect.signature(it).parameters}
    names |= {("consumer", name) for name in ConsumerOptions.__annotations__ | DropinOptions.__annotations__}
    names |= {("publish", name) for name in Properties.__annotations__}
    kinds = {cobalance.ConsumerGroup: "calls", cobalance.BlockingConsumerGroup: "calls", Delivery: "calls"}
    for kind, prefix in {**kinds, GroupConnection: "dropin", GroupChannel: "dropin"}.items():
        names |= {(prefix, name) for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
    names -= {(prefix, it) for prefix in ("consumer", "publish") for it in ("self", "name", "source", "handler", "options", "group_options", "properties")}  # fmt: skip
    return sorted(f"{a}.{b}" for a, b in names if f"{a}.{b}" not in FACTORS and b not in NOT_PLAYED.get(a, {}))
