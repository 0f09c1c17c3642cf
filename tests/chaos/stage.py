"""The servers, and member processes with a pair of proxies each."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

from tests.chaos.options import PREFETCH, SETTINGS, WAYS, Options
from tests.chaos.servers import start_rabbitmq, start_redis
from tests.faults.ways import Ways

from cobalance.errors import CobalanceError, ServerError
from cobalance.journal import JournalEntry
from cobalance.lab.member import MemberJob
from cobalance.lab.process import MemberProcess
from cobalance.lab.stage import Stage, process_of
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.broker import verify_topic
from cobalance.servers.choose import AMQP_URL, REDIS_URL
from cobalance.settings import MemberSettings

NAME = "chaos"
ROOT = Path(__file__).parents[2]


class ChaosMember(MemberProcess):
    """A member, and its own proxies to the servers."""

    def __init__(self, name: str, stage: ChaosStage) -> None:
        self.redis = Ways(stage.redis.ports)
        self.rabbitmq = Ways(stage.rabbitmq.ports)
        environment = {
            REDIS_URL: self.redis.through(stage.redis.url),
            AMQP_URL: self.rabbitmq.through(stage.rabbitmq.url),
            WAYS: json.dumps(self.redis.ports),
        }
        super().__init__(name, stage.job, stage.folder, environment, program="tests.chaos.member", cwd=ROOT)

    def stop_clock(self) -> None:
        """It no longer notices its own deadlines."""
        self.send_signal(signal.SIGUSR1)

    def start_clock(self) -> None:
        """It notices them again."""
        self.send_signal(signal.SIGUSR2)

    def close(self) -> None:
        super().close()
        self.redis.close()
        self.rabbitmq.close()


class ChaosStage(Stage):
    """A stage with servers of its own. Its folder is left to be looked at, unless the run is interrupted."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._number = 0
        self._spare: ChaosMember | None = None
        """The next process, prepared in advance, which takes Python a second or more."""
        folder = Path(tempfile.mkdtemp(prefix="cobalance-chaos-"))
        with ExitStack() as starting:
            starting.callback(shutil.rmtree, folder)
            servers = starting.enter_context(ExitStack())
            self.redis = start_redis(options, servers)
            self.rabbitmq = start_rabbitmq(options, servers)
            job = MemberJob(
                group=NAME,
                topic=NAME,
                settings=SETTINGS,
                member=MemberSettings(drain_timeout_ms=10_000),
                prefetch=PREFETCH,
                order=options.order,
                are_streams=options.kind == "stream",
            )
            topic = Topic(NAME, options.partitions, options.kind)
            super().__init__(topic, job, folder, redis_url=self.redis.url, amqp_url=self.rabbitmq.url)
            self.coordinator.create(SETTINGS)
            self._servers = servers.pop_all()
            starting.pop_all()

    def __exit__(self, *raised: object) -> None:
        self.close()
        if raised[0] is KeyboardInterrupt:  # nobody investigates an interrupted run
            shutil.rmtree(self.folder)

    def close(self) -> None:
        if self._spare is not None:
            self._spare.close()
        super().close()
        self._servers.close()

    # -- members -------------------------------------------------------------------------------------------------------

    def start_member(self, *, at_once: bool = True) -> ChaosMember:
        """Adds a member, which joins `at_once`, or when it is told to."""
        member, self._spare = self._spare or self._new_process(), None
        self.members[member.name] = member
        if at_once:
            member.join()
        self._spare = self._new_process()
        return member

    def _new_process(self) -> ChaosMember:
        self._number += 1
        return ChaosMember(f"m{self._number}", self)

    @property
    def everybody(self) -> list[ChaosMember]:
        """All that ever were members."""
        return cast("list[ChaosMember]", list(self.members.values()))

    @property
    def living(self) -> list[ChaosMember]:
        return [it for it in self.everybody if it.is_wanted]

    def holder(self, member: str | None) -> ChaosMember | None:
        """The process of a member id."""
        labels = {row.id: row.label for row in self.coordinator.members()}
        return next((it for it in self.living if member in labels and it.pid == process_of(labels[member])), None)

    # -- what was recorded ---------------------------------------------------------------------------------------------

    def look(self) -> list[JournalEntry]:
        """As far as Redis answers."""
        with suppress(ServerError):
            return super().look()
        return []

    def wait_settled(self, timeout_s: float) -> str:
        """Waits until the group is even; returns why it is not, if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while (why := self._why_unsettled()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return why

    def _why_unsettled(self) -> str:
        self.look()
        try:
            return self.why_unsettled()
        except CobalanceError as error:
            return str(error)

    def has_topic(self) -> bool:
        """Whether RabbitMQ has all of the topic's queues available."""
        try:
            return verify_topic(self.rabbitmq.url, self.topic) == self.topic
        except ServerError:
            return False
