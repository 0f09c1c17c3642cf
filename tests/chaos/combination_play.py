"""One row of options, played: members join, leave, are killed or paused, a topic grows; then the history is judged."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
from anyio.from_thread import start_blocking_portal
from tests.chaos.checker import Anomaly, Verdict, judge
from tests.chaos.combination_member import ALWAYS, ONCE, Job, serve
from tests.chaos.combinations import Row, part
from tests.chaos.history import History, Trouble
from tests.consumers import channel
from tests.names import unique
from tests.redis_user import as_published_user

from cobalance import AsyncPublisher, GroupAdmin, GroupSettings, Publisher, Topic, create_topic
from cobalance.lab.diary import DiaryReader, HandlerRun
from cobalance.lab.load import keys_of_each
from cobalance.lab.message import NumberedMessage
from cobalance.operate import Telemetry
from cobalance.rabbitmq import BoundQueues, MatchingQueues, delete_topic, grow_topic, read_dead_letters
from cobalance.rabbitmq.topics.broker import ready_messages

BURST, HANDLE_MS, KEYS = 15, 3.0, 3
"""Messages of each partition between one change and the next, and keys of each partition."""

WITHIN_S = 60.0
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.chaos.combination_member"])
ONE_AT_A_TIME = threading.Lock()
"""Each start asks after the ends of all processes, and one of two threads that ask does not hear of them."""


class Unsettled(Exception):
    """A process ended by itself, or something never came to be; the message says what."""


@attrs.frozen
class Servers:
    """Where they are. Redis without a database."""

    redis_url: str
    amqp_url: str
    management_url: str


class ForkedMember:
    """A member process, as its parent sees it."""

    def __init__(self, job: Job) -> None:
        self.job, self.name, self.is_wanted = job, job.name, True
        self.diary = DiaryReader(job.folder / f"{job.name}.diary", job.name)
        self._process = FORKS.Process(target=serve, args=(job,), daemon=True)
        with ONE_AT_A_TIME:
            self._process.start()

    @property
    def exit_code(self) -> int | None:
        with ONE_AT_A_TIME:
            return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def end(self, number: int) -> None:
        """Asks it to leave, by SIGTERM, or kills it."""
        self.is_wanted = False
        self.send_signal(number)

    def words(self) -> str:
        log = self.job.folder / f"{self.name}.log"
        return log.read_text(errors="replace")[-1500:] if log.exists() else ""

    def close(self) -> None:
        with ONE_AT_A_TIME:
            self._process.kill()
            self._process.join()


class Play:
    """A row from its first member to its last message."""

    def __init__(self, row: Row, servers: Servers, folder: Path, stack: ExitStack) -> None:
        self.row, self._servers, self._folder, self._stack = row, servers, folder, stack
        self.topic = Topic(unique("every"), **part(row, "topic"))
        self._own = unique("set") if row["source"] == "set" else None
        self._group = unique("options")
        base = servers.redis_url if row["consumer.key_prefix"] != "cobalance" else as_published_user(servers.redis_url)
        self._redis_url = f"{base.rpartition('/')[0] if base.count('/') > 2 else base}/{row['redis.database']}"
        self._settings = GroupSettings(
            session_timeout_ms=4_000, heartbeat_interval_ms=250, revocation_timeout_ms=20_000, **part(row, "settings")
        )
        self._admin = stack.enter_context(
            GroupAdmin(self._redis_url, amqp_url=servers.amqp_url, key_prefix=row["consumer.key_prefix"])
        )
        self.members: list[ForkedMember] = []
        self._troubles: list[Trouble] = []
        self._numbers: Counter[str] = Counter()
        self._offsets: dict[str, int] = {}
        self._sent: list[NumberedMessage] = []
        self._failed: list[Anomaly] = []

    # -- the story -----------------------------------------------------------------------------------------------------

    def play(self) -> Verdict:
        """Plays and judges."""
        made = create_topic(self._servers.amqp_url, self.topic, group=self._own)
        self._stack.callback(delete_topic, self._servers.amqp_url, self.topic.name, force=True)
        self._queues, self._consumed = made.queue_names, made
        self._admin.create(self._group, self._settings)
        self._replies = unique("replies")
        with channel(self._servers.amqp_url) as own:
            own.queue_declare(self._replies, durable=True)
        once = ONCE if self.row["failing"] in {ONCE, "cancelled"} else ""
        with publishing(self.row, self._servers.amqp_url, self.topic) as publish:
            for name in ("m1", "m2"):
                self._start(name)
            self._settle()
            self._burst(publish, once)
            self._start("m3")
            self._settle()
            self._burst(publish, ALWAYS if self.row["failing"] == ALWAYS else "")
            getattr(self, f"_{self.row['story']}")()
            self._settle()
            self._burst(publish)
            self._leave(self._member("m1"))
            self._settle()
            self._burst(publish, once)
        self._wait(self._is_done, "everything is handled")
        for it in self._living():
            self._leave(it)
        return self._judge()

    def _calm(self) -> None: ...

    def _restart(self) -> None:
        """Everybody is replaced, one after the other."""
        for it in self._living():
            self._leave(it)
            self._start_again(it)
            self._settle()

    def _flap(self) -> None:
        """Some come and go at once, and partitions are handed over before anybody has done much."""
        for name in ("m4", "m5"):
            self._start(name)
            self._wait(lambda: self._active() == len(self._living()), f"{name} is a member")
            self._leave(self._member(name))

    def _kill(self) -> None:
        member, since = self._member("m2"), time.monotonic_ns()
        member.end(signal.SIGKILL)
        self._wait(lambda: member.exit_code is not None, "it is killed")
        self._troubles.append(Trouble(kind="kill", process=member.name, since_ns=since, until_ns=time.monotonic_ns()))
        self._start_again(member)

    def _pause(self) -> None:
        """One is paused, hands over while it is, and goes on."""
        paused = self._member("m2")
        paused.send_signal(signal.SIGUSR1)
        self._start("m4")
        self._settle()
        paused.send_signal(signal.SIGUSR2)

    def _grow(self) -> None:
        self._consumed = grow_topic(self._servers.amqp_url, self.topic.name, self.topic.partitions * 2)
        self._queues = (*self._queues, *self._consumed.queue_names)

    def _eager(self) -> None:
        """The group's settings are changed while it works."""
        self._admin.configure(self._group, mode="eager" if self._settings.mode == "cooperative" else "cooperative")
        self._start("m4")

    # -- members -------------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        topic, names = self._consumed, self._consumed.queue_names
        sources: dict[str, Callable[[], Any]] = {
            "topic": lambda: attrs.evolve(topic, layout=1, partitions=self.topic.partitions),
            "name": lambda: topic.name, "set": lambda: self.topic.for_group(self._own or ""), "queues": lambda: list(topic.queues),
            "names": lambda: list(names), "mixed": lambda: [*names[1:], topic.queues[0]],
            "matching": lambda: MatchingQueues(f"{topic.name}-[0-9]+"), "bound": lambda: BoundQueues(topic.name),
        }  # fmt: skip
        job = Job(
            row=self.row, name=name, group=self._group, source=sources[self.row["source"]](), queues=names, redis_url=self._redis_url,
            amqp_url=self._servers.amqp_url, management_url=self._servers.management_url, settings=self._settings, folder=self._folder,
        )  # fmt: skip
        self.members.append(ForkedMember(job))
        self._stack.callback(self.members[-1].close)

    def _start_again(self, member: ForkedMember) -> None:
        """Starts a successor, with the same instance id, if there are any."""
        self._start(f"{member.name}.again")

    def _leave(self, member: ForkedMember) -> None:
        member.end(signal.SIGTERM)
        self._wait(lambda: member.exit_code is not None, f"{member.name} has left")

    def _living(self) -> list[ForkedMember]:
        return [it for it in self.members if it.is_wanted]

    def _member(self, name: str) -> ForkedMember:
        return next(it for it in self._living() if it.name.startswith(name))

    def _check_members(self) -> None:
        """One that was to raise what its handler raised has a successor; any other end is a failure."""
        for it in self.members:
            if it.exit_code is None or (not it.is_wanted and it.exit_code in {0, -signal.SIGKILL}):
                continue
            raises = self.row["consumer.on_error"] == "raise" and "FailedOnPurpose" in it.words()
            if not raises and not (self.row["member.drain_timeout_ms"] == 0 and "DrainTimedOut" in it.words()):
                raise Unsettled(f"{it.name} ended with {it.exit_code}: {it.words()}")
            if it.is_wanted:
                it.is_wanted = False
                self._start_again(it)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            self._check_members()
            self._look()
            if time.monotonic() > deadline:
                raise Unsettled(f"it takes more than {WITHIN_S:.0f} s until {what}: {self._state()}")
            time.sleep(0.03)

    def _state(self) -> str:
        done = {it.message for it in self._runs() if it.ended_ns is not None}
        resources = self._admin.describe(self._group).resources
        found = {
            "resources": [(it.name, it.state, it.owner, it.halted) for it in resources],
            "missing": [it for it in self._sent if it not in done][:5],
            "ready": ready_messages(self._servers.amqp_url, self._queues),
            "dead": self._dead(),
            "words": {it.name: it.words() for it in self.members},
        }
        return "\n".join(f"{name}: {it}" for name, it in found.items())

    def _look(self) -> None:
        """Offsets never fall; what is halted, is resumed."""
        for it in self._admin.describe(self._group).resources:
            if it.committed is not None and it.committed < self._offsets.get(it.name, -1):
                self._failed.append(Anomaly(name="committed-fell", text=f"{it} after {self._offsets[it.name]}"))
            self._offsets[it.name] = max(self._offsets.get(it.name, -1), -1 if it.committed is None else it.committed)
            if it.halted and self.row["failing"] != "none":
                self._admin.resume(self._group, it.name)

    def _settle(self) -> None:
        self._wait(self._is_settled, "the group is settled")

    def _is_settled(self) -> bool:
        resting = {"held", "halted", *(["graced"] if self.row["member.instance_id"] else [])}
        states = {it.name: it.state for it in self._admin.describe(self._group).resources}
        named = states.keys() >= set(self._consumed.queue_names)
        return named and self._active() == len(self._living()) and resting.issuperset(states.values())

    def _active(self) -> int:
        return sum(it.state == "active" for it in self._admin.describe(self._group).members)

    def _runs(self) -> list[HandlerRun]:
        for it in self.members:
            it.diary.look()
        return sorted((run for it in self.members for run in it.diary.runs), key=lambda run: run.begun_ns)

    def _is_done(self) -> bool:
        done = {it.message for it in self._runs() if it.ended_ns is not None}
        handled = all(it in done for it in self._sent if it.order != ALWAYS)
        return handled and (not self._poison() or len(self._dead()) >= len(self._poison()))

    def _poison(self) -> list[NumberedMessage]:
        return [it for it in self._sent if it.order == ALWAYS]

    def _dead(self) -> set[str | None]:
        if self.topic.dead_letter_queue is None:
            return set()
        found = read_dead_letters(self._servers.amqp_url, self._consumed.name, most=1_000)
        return {it.message_id for it in found}

    # -- messages ------------------------------------------------------------------------------------------------------

    def _burst(self, publish: Callable[[str, NumberedMessage, int, str], object], order: str = "") -> None:
        """What belongs to one key, or to one partition, is numbered; without any order, each message stands alone."""
        retries, row = self.row["consumer.retries"], self.row
        by_key = row["consumer.order"] == "key" or row["story"] == "grow" or getattr(retries, "key", None) is not None
        topic = self._consumed if row["story"] == "grow" else self.topic
        for number, (partition, keys) in itertools.product(range(BURST), enumerate(keys_of_each(topic, KEYS).values())):
            key = keys[number % KEYS]
            unit = key if by_key else f"partition-{partition}"
            if getattr(retries, "parks", False) and not by_key:
                unit = f"{unit}-{len(self._sent)}"
            self._numbers[unit] += 1
            is_odd = order and number == BURST // 2
            message = NumberedMessage(unit, self._numbers[unit], HANDLE_MS, order if is_odd else "")
            self._sent.append(message)
            publish(key, message, partition, self._replies)

    # -- the verdict ---------------------------------------------------------------------------------------------------

    def _judge(self) -> Verdict:
        row, runs, sent, url = self.row, self._runs(), frozenset(self._sent), self._servers.amqp_url
        is_stream, may_leave = row["topic.queue_type"] == "stream", row["member.drain_timeout_ms"] == 0
        if (is_stream and row["consumer.order"] == "key") or may_leave:  # they may repeat, as documented
            self._troubles.append(Trouble(kind="declared", since_ns=0, until_ns=time.monotonic_ns()))
        left = 0 if is_stream or may_leave else sum(it or 0 for it in ready_messages(url, self._queues).values())
        history = History(
            partitions=self._queues, confirmed=sent.difference(self._poison()), attempted=sent, runs=tuple(runs), left_in_queues=left,
            events=tuple(entry for it in self.members for entry in it.diary.entries),
            entries=tuple(self._admin.journal(self._group).entries()), troubles=tuple(self._troubles),
        )  # fmt: skip
        verdict = judge(history)
        found = [*verdict.anomalies, *self._failed, *_keys_in_order(runs)]
        with channel(url) as it:
            replies = it.queue_declare(self._replies, passive=True).method.message_count or 0
            it.queue_delete(self._replies)
        given_up = verdict.journal["abandoned"] + verdict.journal["forced"]
        if (
            given_up and row["failing"] == "none" and row["story"] != "kill" and not may_leave
        ):  # it would excuse repeats
            found.append(
                Anomaly(name="duplicate", text=f"{given_up} tenures did not end as planned, and nothing failed")
            )
        if len(self._dead()) != len(self._poison()):
            found.append(Anomaly(name="lost-write", text=f"{self._dead()} are dead letters, of {self._poison()}"))
        if row["publish.reply_to"] and row["way"] != "dropin" and not may_leave and replies < len(history.confirmed):
            found.append(Anomaly(name="lost-write", text=f"{replies} replies to {len(history.confirmed)} messages"))
        return attrs.evolve(verdict, anomalies=tuple(found))


def _keys_in_order(runs: list[HandlerRun]) -> Iterator[Anomaly]:
    """Over all partitions, that is through a growth, a message begins when the one before it has ended."""
    by_key: dict[str, dict[NumberedMessage, list[HandlerRun]]] = defaultdict(lambda: defaultdict(list))
    for it in runs:
        by_key[it.message.key][it.message].append(it)
    for messages in by_key.values():
        for earlier, later in itertools.pairwise(sorted(messages)):
            ended = min((it.ended_ns for it in messages[earlier] if it.ended_ns is not None), default=0)
            if messages[later][0].begun_ns < ended:
                yield Anomaly(name="side-by-side", text=f"{messages[later][0]} before the end of {messages[earlier]}")


@contextmanager
def publishing(row: Row, url: str, topic: Topic) -> Iterator[Callable[[str, NumberedMessage, int, str], object]]:
    """A publisher with the row's options, and what publishes one message by it."""
    options = part(row, "publisher") | {"telemetry": Telemetry() if row["publisher.telemetry"] else None}
    how = part(row, "publish")

    def arguments(key: str, message: NumberedMessage, partition: int, replies: str) -> dict[str, Any]:
        named = {"message_id": f"{message.key}.{message.number}", "type": "odd", "correlation_id": "c"}
        return {
            "key": key.encode() if isinstance(how["key"], bytes) else key, "body": message.body(), "headers": {"k": key},
            "partition": partition if how["partition"] else None, "persistent": how["persistent"],
            "reply_to": replies if how["reply_to"] else None, **(named if how["properties"] else {}),
        }  # fmt: skip

    if row["publisher"] == "Publisher":
        with Publisher(url, topic, **options) as plain:
            yield lambda *given: plain.publish(**arguments(*given), wait=how["wait"])
        return
    del options["unseen_failures"]
    made = AsyncPublisher(url, topic, **options)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(made) as publisher:
        yield lambda *given: portal.call(lambda: publisher.publish(**arguments(*given)))
