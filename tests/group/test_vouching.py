"""What a member vouches for, and when the coordinator hears it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tests.coordinator.backends import MemoryBackend
from tests.coordinator.driver import Group
from tests.names import unique

from cobalance import BlockingGroup, GroupSettings
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.transport import Reply, Script
from cobalance.errors import Unreachable
from cobalance.group.vouching import ATTEMPTS, Vouching


class Cut(MemoryBackend):
    """Of which this many calls fail, and may or may not have been executed."""

    failures = 0

    def __init__(self) -> None:
        super().__init__("luajit21")
        self.calls: list[tuple[object, ...]] = []

    def call(self, *call: object) -> Reply:
        self.calls.append(call)
        reply = super().call(*call)  # type: ignore[arg-type]
        self.failures -= 1
        if self.failures >= 0:
            raise Unreachable("cut off")
        return reply


@pytest.fixture
def cut() -> Cut:
    return Cut()


@pytest.fixture
def group(cut: Cut) -> Group:
    """With a member that listens."""
    it = Group(cut)
    it.join("a")
    cut.watch(it.coordinator.channel("a"))
    return it


@pytest.fixture
def vouching(group: Group) -> Vouching:
    it = Vouching(group.coordinator)
    it.connected("amqp-1")
    return it


def vouched(group: Group) -> str | None:
    """For which connection."""
    group.check()
    field = group.records().scalars.get("v:a")
    connection = "-" if field is None else field.split()[2]
    return None if connection == "-" else connection


def test_it_vouches_once_it_is_a_member(group: Group, vouching: Vouching) -> None:
    """Before, there is nobody to vouch for."""
    vouching.tell()
    assert vouched(group) is None
    vouching.joined("a")
    vouching.tell()
    group.coordinator.tick()
    assert vouched(group) == "amqp-1"


def test_it_takes_it_back_and_vouches_for_the_next_connection(group: Group, vouching: Vouching) -> None:
    """Each loss of the broker is reported."""
    vouching.joined("a")
    for connection in ("amqp-1", None, "amqp-2"):
        vouching.connected(connection)
        vouching.tell()
        group.coordinator.tick()
        assert vouched(group) == connection


def test_a_lost_connection_to_redis_does_not_keep_it_from_being_told(
    group: Group, vouching: Vouching, cut: Cut
) -> None:
    """Both may be lost at once; the next attempt has a new one."""
    vouching.joined("a")
    vouching.tell()
    vouching.connected(None)
    cut.failures = 2
    vouching.tell()
    group.coordinator.tick()
    assert vouched(group) is None


def test_what_was_not_answered_is_told_again_after_the_next_answered_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not taken back may end the session of a process that lives."""
    name, call, told = unique("vouching"), MemoryTransport.call, list[object]()
    settings = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=50)
    is_recorded = threading.Event()

    def cut(
        transport: MemoryTransport, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]
    ) -> Reply:
        if script.name == "vouch":
            told.append(args[-1])
            if len(told) in range(2, 2 + 2 * ATTEMPTS):
                raise Unreachable("cut off")
        reply = call(transport, script, keys, args)
        if script.name == "vouch":
            is_recorded.set()
        return reply

    monkeypatch.setattr(MemoryTransport, "call", cut)
    with BlockingGroup(name, ["r"], redis_url=f"memory://{name}", settings=settings) as group:
        group.wait_held("r")
        for connection in ("amqp-1", None):
            is_recorded.clear()
            group._group.membership.engine.vouch(connection)
            assert is_recorded.wait(60)
        assert told == ["amqp-1", *["-"] * (2 * ATTEMPTS + 1)]


def test_what_is_withdrawn_stays_so(group: Group, vouching: Vouching) -> None:
    """Also for the next connection, and the next membership."""
    vouching.joined("a")
    vouching.tell()
    vouching.withdraw()
    group.coordinator.tick()
    assert vouched(group) is None
    vouching.connected("amqp-2")
    vouching.joined("a")
    vouching.tell()
    group.coordinator.tick()
    assert vouched(group) is None


def test_a_withdrawal_without_an_answer_is_an_error(group: Group, vouching: Vouching, cut: Cut) -> None:
    """Until it succeeds, nothing unguarded may be worked."""
    vouching.joined("a")
    vouching.tell()
    cut.failures = 1
    with pytest.raises(Unreachable):
        vouching.withdraw()
    vouching.withdraw()
    group.coordinator.tick()
    assert vouched(group) is None


def test_a_vouch_that_arrives_after_its_withdrawal_does_not_undo_it(group: Group, vouching: Vouching, cut: Cut) -> None:
    """Its first copy was given up, and was still on its way."""
    vouching.joined("a")
    vouching.tell()
    late = cut.calls[-1]
    vouching.withdraw()
    cut.call(*late)
    group.coordinator.tick()
    assert vouched(group) is None


def test_a_listener_that_is_not_found_connects_anew_once(cut: Cut) -> None:
    """It hears another server, unless it has not said yet that it listens. If that does not help, as where the server does not say
    who it is, it is not asked again before the member has joined again, or was found in between.
    """
    group = Group(cut)
    group.join("a")
    listening, renewed = list[bool](), list[str]()
    vouching = Vouching(group.coordinator, listens=lambda: bool(listening), renew=lambda: renewed.append("renewed"))
    vouching.connected("amqp-1")

    def told() -> int:
        renewed.clear()
        for _ in range(3):
            vouching.tell()
        return len(renewed)

    vouching.joined("a")
    assert told() == 0
    listening.append(True)
    assert told() == 1
    assert told() == 0
    vouching.joined("a")
    assert told() == 1
    cut.watch(group.coordinator.channel("a"))
    assert told() == 0
    cut.unwatch(group.coordinator.channel("a"))
    assert told() == 1
