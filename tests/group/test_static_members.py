"""Members with an instance id: a rolling restart of all processes moves and loses nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from tests.consumers import new_topic
from tests.faults.redis_servers import wait_for
from tests.names import unique
from tests.programs import Programs, create_group, programs

from cobalance import BlockingConsumerGroup, BlockingGroup, Group, GroupSettings, MemberSettings, Publisher, Topic
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import InvalidSettings, TopicMissing
from cobalance.journal import Journal, JournalEntry

PROGRAM = """
import os
import sys

from cobalance import ConsumerGroup, run

instance, group, topic = sys.argv[1:]
os.environ["COBALANCE_INSTANCE_ID"] = instance

def show(delivery):
    print(instance, delivery.queue, delivery.body.decode(), flush=True)

urls = {"redis_url": os.environ["COBALANCE_REDIS_URL"], "amqp_url": os.environ["COBALANCE_AMQP_URL"]}
run(ConsumerGroup(group, topic, show, **urls))
"""

SETTINGS = GroupSettings(
    session_timeout_ms=3_000,
    heartbeat_interval_ms=500,
    revocation_timeout_ms=6_000,
    rejoin_grace_ms=60_000,
    gather_ms=0,
)
INSTANCES = ("shop-0", "shop-1")
KEYS = tuple(f"customer-{number}" for number in range(12))


@pytest.fixture
def run(redis_url: str, amqp_url: str) -> Iterator[Programs]:
    """Starts programs that find the tests' servers."""
    with programs(redis_url, amqp_url) as running:
        yield running


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, 4) as it:
        yield it


class Record:
    """A group's data in Redis."""

    def __init__(self, redis_url: str, group: str) -> None:
        self._transport = open_transport(redis_url)
        self.group = group

    def owners(self) -> dict[str, str]:
        """Resource → instance id."""
        coordinator = Coordinator(self._transport, self.group)
        instances = {row.id: row.instance_id or "" for row in coordinator.members()}
        return {row.name: instances.get(row.owner or "", "") for row in coordinator.resources()}

    def entries(self) -> list[JournalEntry]:
        return list(Journal(self._transport, self.group).entries())

    def close(self) -> None:
        self._transport.close()


@pytest.fixture
def record(redis_url: str) -> Iterator[Record]:
    name = unique("static")
    create_group(redis_url, name, SETTINGS)
    found = Record(redis_url, name)
    yield found
    found.close()


def test_a_rolling_restart_of_every_process_moves_nothing(
    run: Programs, topic: Topic, record: Record, amqp_url: str, tmp_path: Path
) -> None:
    """Each is stopped by SIGTERM and restarted while messages arrive: every partition stays with its instance, every
    message is handled once and in order, and nothing was asked back.
    """
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    processes = {instance: run.start(program, instance, record.group, topic.name) for instance in INSTANCES}
    published = _publish(amqp_url, topic)
    _wait_for(run, published)
    while sorted(record.owners().values()) != sorted(INSTANCES * 2):  # the second one joins in its own time
        published += _publish(amqp_url, topic)
        _wait_for(run, published)
    before, seq = record.owners(), record.entries()[-1].seq

    for instance in INSTANCES:
        run.stop(processes[instance])
        published += _publish(amqp_url, topic)
        processes[instance] = run.start(program, instance, record.group, topic.name)
        _wait_for(run, published)

    assert record.owners() == before
    kinds = {entry.kind for entry in record.entries() if entry.seq > seq}
    assert {"graced", "inherited"} <= kinds
    assert not {"revoking", "forced", "expired", "released"} & kinds
    for process in processes.values():
        run.stop(process)
    assert run.rest() == []
    for key in KEYS:
        numbers = [int(line.split()[3]) for line in run.lines if line.split()[2] == key]
        assert numbers == sorted(set(numbers))


@pytest.mark.thorough
def test_who_restarts_after_a_kill_takes_its_place_at_once(
    run: Programs, topic: Topic, redis_url: str, amqp_url: str, tmp_path: Path
) -> None:
    """Its old process is certainly gone, so nobody waits for the session to expire, which would take minutes. The other
    one keeps everything.
    """
    name = unique("static")
    create_group(redis_url, name, attrs.evolve(SETTINGS, session_timeout_ms=240_000, revocation_timeout_ms=240_000))
    record = Record(redis_url, name)
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    processes = {instance: run.start(program, instance, name, topic.name) for instance in INSTANCES}
    _wait_for(run, _publish(amqp_url, topic))
    wait_for(lambda: sorted(record.owners().values()) == sorted(INSTANCES * 2))
    before, seq = record.owners(), record.entries()[-1].seq

    processes["shop-0"].kill()
    processes["shop-0"].wait()
    processes["shop-0"] = run.start(program, "shop-0", name, topic.name)
    wait_for(lambda: record.owners() == before and "inherited" in {it.kind for it in record.entries()})
    seen = len(run.lines)
    published = _publish(amqp_url, topic)
    run.read_until(lambda: len(run.lines) == seen + published)

    kinds = {entry.kind for entry in record.entries() if entry.seq > seq}
    assert not {"revoking", "forced", "expired", "released"} & kinds
    for process in processes.values():
        run.stop(process)
    record.close()


def raise_doubt(doubt: str, holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on this process may not find, or not believe, that the holder is dead."""
    elsewhere, folder = tmp_path / "elsewhere", f"cobalance-{os.getuid()}"
    if doubt == "its file is elsewhere":
        holder.kill()
        holder.wait()
        elsewhere.mkdir()
    else:
        holder.send_signal(signal.SIGSTOP)
    if doubt == "its file is copied":
        shutil.copytree(tmp_path / folder, elsewhere / folder)
    if doubt != "it lives":
        monkeypatch.setattr("tempfile.tempdir", str(elsewhere))


@pytest.mark.parametrize("doubt", ["it lives", "its file is elsewhere", "its file is copied"])
def test_where_a_process_may_live_its_place_is_not_taken(
    redis_url: str, doubt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For instance if it is frozen, or on another machine: the new process waits for the session to expire."""
    name = unique("static")
    create_group(redis_url, name, SETTINGS)
    record, own = Record(redis_url, name), MemberSettings(instance_id="shop-0")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    member = textwrap.dedent(HOLDER)
    arguments = [sys.executable, "-c", member, redis_url, name, str(tmp_path)]
    holder = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        raise_doubt(doubt, holder, tmp_path, monkeypatch)
        with BlockingGroup(name, ["r"], redis_url=redis_url, settings=SETTINGS, member=own) as group:
            group.wait_held(timeout=60)
            kinds = [entry.kind for entry in record.entries()]
            assert kinds.index("graced") < len(kinds) - 1 - kinds[::-1].index("joined")
            assert [it.reason for it in record.entries() if it.kind == "graced"] == ["expired"]
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        record.close()


def test_a_restart_that_fails_leaves_the_place_to_the_next_one(
    redis_url: str, amqp_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never was a member, for instance because its topic was missing."""
    name = unique("static")
    slow = attrs.evolve(SETTINGS, session_timeout_ms=240_000, revocation_timeout_ms=240_000)
    create_group(redis_url, name, slow)
    own = MemberSettings(instance_id="shop-0")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = [sys.executable, "-c", textwrap.dedent(HOLDER), redis_url, name, str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    with pytest.raises(TopicMissing):
        BlockingConsumerGroup(
            name, unique("none"), lambda _: None, amqp_url=amqp_url, redis_url=redis_url, settings=slow, member=own
        ).start()
    with BlockingGroup(name, ["r"], redis_url=redis_url, settings=slow, member=own) as group:
        group.wait_held(timeout=60)


HOLDER = """
    import sys, tempfile
    from cobalance import BlockingGroup, MemberSettings
    tempfile.tempdir = sys.argv[3]
    own = MemberSettings(instance_id="shop-0")
    with BlockingGroup(sys.argv[2], ["r"], redis_url=sys.argv[1], member=own) as group:
        group.wait_held()
        print("held", flush=True)
        group.wait_left()
"""


def _wait_for(run: Programs, count: int) -> None:
    """Waits until this many messages were handled in total."""
    run.read_until(lambda: len(run.lines) == count)


_numbers = iter(range(1_000_000))


def _publish(amqp_url: str, topic: Topic) -> int:
    """Publishes one message per customer, with increasing numbers, and returns their count."""
    number = next(_numbers)
    with Publisher(amqp_url, topic) as publisher:
        for key in KEYS:
            publisher.publish(key, f"{key} {number}".encode())
    return len(KEYS)


def test_the_word_for_none_is_no_instance_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would silently mean that the member has none, however it is given."""
    with pytest.raises(InvalidSettings, match="instance_id is '-', which stands for none"):
        MemberSettings(instance_id="-")
    monkeypatch.setenv("COBALANCE_INSTANCE_ID", "-")
    with pytest.raises(InvalidSettings, match="instance_id is '-'"):
        Group("g", ["r"], redis_url="memory://dash")
