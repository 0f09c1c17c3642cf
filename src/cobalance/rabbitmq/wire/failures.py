"""Converts pika's and RabbitMQ's failures to errors that say what happened, where, and what to do."""

import re

import attrs
from pika import exceptions as pika_errors

from cobalance.errors import (
    AuthenticationRefused,
    ChannelLost,
    CobalanceError,
    NotRabbitMQ,
    PermissionMissing,
    QueueMismatch,
    QueueMissing,
    Unguarded,
    Unreachable,
    UsageError,
    VirtualHostMissing,
    sentence,
)
from cobalance.rabbitmq.model.queues import Argument, Queue
from cobalance.rabbitmq.model.topic import DELIVERY_LIMIT, UNLIMITED, Topic, partition_named

SHORTAGES = {
    "Too many open files": "the system gives this process no more files and sockets (ulimit -n, LimitNOFILE)",
    "can't start new thread": "the system gives this process no more threads (ulimit -u, TasksMax, a container's pids limit)",
}
"""Sign in an exception's words → the same in ours."""


class GivenUp(pika_errors.AMQPConnectionError):
    """We gave the connection up. The reason, its only argument, is in our words."""


@attrs.frozen
class Difference:
    """The first difference between a declaration and an existing queue, as RabbitMQ reports it."""

    argument: str
    current: Argument | None
    """None if the queue does not have the argument."""

    def applied_to(self, queue: Queue) -> Queue:
        """Returns the declaration without this difference."""
        if self.argument == "durable":
            return attrs.evolve(queue, durable=bool(self.current))
        if self.argument == "auto_delete":
            return attrs.evolve(queue, auto_delete=bool(self.current))
        others = {name: value for name, value in queue.arguments.items() if name != self.argument}
        return attrs.evolve(
            queue, arguments=others if self.current is None else {**others, self.argument: self.current}
        )


def connect_failure(error: BaseException, place: str, *, spoke_otherwise: bool = False) -> CobalanceError:
    """Converts a failure to connect. pika's own messages are not passed on, since they are about pika.

    `spoke_otherwise`: the peer sent something other than AMQP. RabbitMQ gives a reason when it refuses a client, so a
    peer that just closes the connection has not refused anyone, though pika reports it that way.
    """
    text = _words(error)
    if "StreamLostError" in text and not spoke_otherwise:
        return Unreachable(
            f"RabbitMQ at {place} cannot be reached: it ended the connection while that was being opened. It may be starting or stopping, "
            f"or be down behind a proxy; or that is not its AMQP port, which is usually 5672, with TLS (amqps://) 5671."
        )
    if (
        isinstance(error, pika_errors.ProbableAuthenticationError | pika_errors.AuthenticationError)
        or "ACCESS_REFUSED" in text
    ):
        return AuthenticationRefused(
            f"RabbitMQ at {place} refused the user name or password; check those in the AMQP URL."
        )
    if full := re.search(r"connection limit \(\d+\) is reached", text):
        return Unreachable(
            f"RabbitMQ at {place} takes no more connections of this user, or to this virtual host or node: {full[0]}. Close some, or "
            "raise the limit (rabbitmqctl set_user_limits, set_vhost_limits; connection_max in rabbitmq.conf)."
        )
    if isinstance(error, pika_errors.ProbableAccessDeniedError) or "NOT_ALLOWED" in text:
        return VirtualHostMissing(
            f"RabbitMQ at {place} does not let the user into that virtual host, or there is none of that name; "
            "rabbitmqctl list_vhosts and list_permissions show what there is."
        )
    if isinstance(error, pika_errors.IncompatibleProtocolError):
        return NotRabbitMQ(
            f"The server at {place} does not speak AMQP 0.9.1; the port of RabbitMQ is usually 5672, with TLS (amqps://) 5671."
        )
    short = shortage(error)
    return Unreachable(
        f"RabbitMQ at {place} cannot be reached ({_cause(text)}); is it running, and is that its AMQP port, usually 5672?"
        if short is None
        else f"RabbitMQ at {place} cannot be reached from here: {short}."
    )


def shortage(error: BaseException) -> str | None:
    """What the system of this process has no more of, if that is why; it may have it again a moment later."""
    text = _words(error)
    return next((words for sign, words in SHORTAGES.items() if sign in text), None)


def loss_reason(error: BaseException) -> str:
    """Why an open connection was lost."""
    if isinstance(error, pika_errors.ConnectionClosed):
        return f"{error.reply_code} {error.reply_text}"
    if isinstance(error, GivenUp):
        return str(error.args[0])
    text = _words(error)
    if "SSL" in text:  # which is there, as the connection was open
        return "it closed the connection" if "EOF" in text else text
    return _cause(text)


def too_large(error: BaseException) -> tuple[int, int] | None:
    """The size of the message that RabbitMQ closed the channel over and the limit, in bytes; None for other reasons."""
    text = error.reply_text if isinstance(error, pika_errors.ChannelClosedByBroker) else ""
    found = re.search(r"message size (\d+) is larger than .*?max size (\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def channel_failure(error: BaseException, queue: str) -> CobalanceError | None:
    """The error that a closed channel means, by reply code and text; None if we closed it ourselves."""
    if isinstance(error, pika_errors.ChannelClosedByClient):
        return None
    if not isinstance(error, pika_errors.ChannelClosed):
        return channel_lost(queue, loss_reason(error))
    if is_unavailable(error):
        return channel_lost(queue, f"{error.reply_code} {error.reply_text}")
    if error.reply_code == 405:
        return _exclusive_elsewhere(queue, error.reply_text)
    return _refusal(error.reply_code, error.reply_text, queue)


def is_unavailable(error: BaseException) -> bool:
    """Whether RabbitMQ is starting, or the queue's node is down: it then says NOT_FOUND of an existing queue."""
    text = error.reply_text if isinstance(error, pika_errors.ChannelClosedByBroker) else ""
    return "is down or inaccessible" in text or "due to timeout" in text


def no_room_for_queues(text: str) -> bool:
    """Whether RabbitMQ's words say that its virtual host, or node, has as many queues as it may have."""
    return "queue limit in" in text


def _refusal(code: int, text: str, queue: str) -> CobalanceError:
    if code == 540:
        return UsageError(text.removeprefix("NOT_IMPLEMENTED - "))
    if code == 404:
        return queue_missing(queue, text)
    if code == 406 and "inequivalent arg" in text:
        return queue_mismatch(queue, text)
    if code == 403 and "in exclusive use" not in text:
        return PermissionMissing(
            f"RabbitMQ refuses access to queue {queue!r} ({text}). Consuming needs the permissions read and configure: the latter "
            "because the queue is declared again to prove that it has the guard it should have."
        )
    if code == 406 and "delivery acknowledgement" in text:
        return channel_lost(
            queue,
            "a message was not acknowledged within RabbitMQ's consumer_timeout. Either handlers take too long, or the retries of a message "
            "with all their pauses (retries), or too many messages wait for them (lower prefetch), or the timeout is too short for this "
            "work (raise consumer_timeout)",
        )
    return _queues_used_up(queue, text) if no_room_for_queues(text) else channel_lost(queue, f"{code} {text}")


def _queues_used_up(queue: str, text: str) -> ChannelLost:
    return ChannelLost(f"RabbitMQ refuses to create queue {queue!r} ({text}): raise that (max-queues).")


def in_exclusive_use(error: BaseException) -> bool:
    """Whether another consumer holds the queue."""
    return (
        isinstance(error, pika_errors.ChannelClosedByBroker)
        and error.reply_code == 403
        and "in exclusive use" in error.reply_text
    )


def difference(text: str) -> Difference | None:
    """Parses RabbitMQ's "inequivalent arg" reply."""
    found = re.search(
        r"inequivalent arg '([^']+)' .* but current is (?:the value )?(?:'(.*?)'(?: of type '(\w+)')?$|none)", text
    )
    if found is None:
        return None
    name, value, kind = found.groups()
    if value is None:
        return Difference(name, None)
    if value in {"true", "false"} and kind != "longstr":
        return Difference(name, value == "true")
    return Difference(name, value if kind in {None, "longstr"} else int(value))


def cut_off(text: str, asked: Queue) -> Difference | None:
    """The same for a reply cut off (at AMQP's 255 bytes) before the value: the next value that a topic's queue may have."""
    found = re.search(r"inequivalent arg '([^']+)'", text)
    name = found[1] if found else ""
    values = _values_of_topics(asked.name).get(name, [])
    tried = asked.arguments.get(name)
    untried = values[values.index(tried) + 1 :] if tried in values else values
    return Difference(name, untried[0]) if untried else None


def _values_of_topics(queue: str) -> dict[str, list[Argument]]:
    topic, _ = partition_named(queue) or (queue, None)
    return {
        "x-queue-type": ["quorum", "stream"],
        "x-single-active-consumer": [True],
        "x-delivery-limit": [DELIVERY_LIMIT, UNLIMITED],
        "x-dead-letter-exchange": [""],
        "x-dead-letter-routing-key": [f"{topic}.dead"],
    }


def channel_lost(queue: str, reason: str) -> ChannelLost:
    return ChannelLost(
        f"The channel that consumed queue {queue!r} is gone: {sentence(reason)} What was not acknowledged will be redelivered."
    )


def _exclusive_elsewhere(queue: str, text: str) -> ChannelLost:
    return ChannelLost(
        f"Queue {queue!r} is exclusive to another connection, which alone may use it, and is deleted with that connection ({text}). "
        "Leave it out of what the group consumes, or have it declared without exclusive."
    )


def queue_missing(queue: str, text: str) -> QueueMissing:
    return QueueMissing(f"Queue {queue!r} does not exist ({text}); create its topic first, or correct the name.")


def topic_in_place_of_queue(topic: Topic) -> QueueMissing:
    """A list contains the name of a topic where it should contain that of a queue."""
    return QueueMissing(
        f"There is no queue {topic.name!r}, but there is a topic of this name: give Topic({topic.name!r}, partitions={topic.partitions}, "
        f"queue_type={topic.queue_type!r}). In a list, a name is that of a queue."
    )


def queue_mismatch(queue: str, text: str) -> QueueMismatch:
    return QueueMismatch(
        f"Queue {queue!r} exists with other arguments than expected: {text.removeprefix('PRECONDITION_FAILED - ')}. Either describe "
        "it as it is, or drain and delete it and create it again; RabbitMQ cannot change a queue's arguments."
    )


def unguarded(queue: Queue) -> Unguarded:
    """Nothing at the broker would prevent two consumers at a time."""
    return Unguarded(
        f"Queue {queue.name!r} is a {queue.kind} queue that RabbitMQ would serve to several consumers at a time: it ignores exclusive "
        "consumers on them. Declare it with x-single-active-consumer, or use a classic queue."
        if queue.kind != "stream"
        else f"Queue {queue.name!r} is a stream, which RabbitMQ serves to any number of consumers, each from its end on: consume it with "
        "a ConsumerGroup."
    )


def limit_too_low(what: str, limit: int, remedy: str) -> UsageError:
    """Handovers alone use up the delivery limit."""
    return UsageError(
        f"{what} has a delivery limit of {limit}: RabbitMQ would drop or dead-letter messages that no handler was given, since each "
        f"handover returns what was sent ahead, and that counts. {remedy}"
    )


def _words(error: BaseException) -> str:
    """The error's own words and those of the errors in its arguments, which is where pika puts them."""
    inner = [_words(arg) if isinstance(arg, BaseException) else str(arg) for arg in error.args]
    nested = getattr(error, "exceptions", ()) or [getattr(error, "exception", None)]
    inner += [_words(e) for e in nested if isinstance(e, BaseException)]
    return f"{type(error).__name__}: {' '.join(inner)}" if inner else type(error).__name__


def _cause(text: str) -> str:
    known = {
        "Connection refused": "connection refused",
        "Name or service not known": "no such host",
        "imeout": "no answer in time",
        "certificate is not valid for": "its TLS certificate is for another host name; ?server_name_indication=NAME expects that one",
        "certificate has expired": "its TLS certificate has expired",
        "CERTIFICATE_VERIFY_FAILED": "its TLS certificate is not trusted; ?cacertfile=FILE names the authority",
        "CERTIFICATE_REQUIRED": "it wants a TLS certificate of its clients; give ?certfile=FILE&keyfile=FILE",
        "WRONG_VERSION_NUMBER": "no TLS there",
        "RECORD_LAYER_FAILURE": "no TLS there",
        "EOF": "it closed the connection",
    }
    return next((words for sign, words in known.items() if sign in text), text)
