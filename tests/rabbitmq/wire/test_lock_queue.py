"""A stream's lock whose release RabbitMQ refuses, for want of a permission: it is freed once that is back."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.names import unique
from tests.rabbitmq_user import User, new_user
from tests.streams import connected

from cobalance.backoff import Backoff
from cobalance.errors import ChannelLost, PermissionMissing
from cobalance.rabbitmq.wire import lock_queue
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.lock_queue import LockQueue
from cobalance.servers import OwnRabbitMQ

WAIT_S = 60
BY_HAND_MS = 3_600_000.0


@pytest.fixture(scope="module")
def user(private_rabbitmq: OwnRabbitMQ) -> Iterator[User]:
    with new_user(private_rabbitmq) as it:
        yield it


@pytest.fixture
def connection(user: User) -> Iterator[BrokerConnection]:
    with connected(user.url) as it:
        yield it


@pytest.fixture
def other(private_rabbitmq: OwnRabbitMQ) -> Iterator[BrokerConnection]:
    """Of another process, and another user, who may do anything."""
    with connected(private_rabbitmq.url) as it:
        yield it


class Tenure:
    """A lock queue as seen by a thread."""

    def __init__(self, connection: BrokerConnection, name: str, *, holds: bool = True) -> None:
        self.connection = connection
        self.lock = LockQueue(connection, name, holds=holds)
        self.answers = queue.SimpleQueue[Any]()

    def ask(self) -> None:
        """On the I/O thread."""
        self.lock.acquire(lambda: self.answers.put("granted"), self.answers.put, self.answers.put)

    def acquire(self) -> Any:
        """Asks once: "granted", or the error that was reported."""
        self.connection.submit(self.ask)
        return self.answers.get(timeout=WAIT_S)

    def wait(self) -> None:
        """Asks until it is granted, as a tenure that waits does."""

        def again(_: object) -> None:
            self.connection.call_later(10, self._wait(again))

        self.connection.submit(self._wait(again))
        assert self.answers.get(timeout=WAIT_S) == "granted"

    def _wait(self, again: Callable[[object], None]) -> Callable[[], None]:
        return lambda: self.lock.acquire(lambda: self.answers.put("granted"), again, self.answers.put)

    def release(self) -> None:
        self.connection.submit(lambda: self.lock.release(lambda: self.answers.put("released")))
        assert self.answers.get(timeout=WAIT_S) == "released"


def test_a_lock_that_went_to_another_before_it_was_kept_is_lost(
    connection: BrokerConnection, other: BrokerConnection
) -> None:
    """It may be deleted at any time, and the next one to ask has it. Its holder is subscribed to nothing then."""
    name, closed = unique("lock"), queue.SimpleQueue[Exception]()
    first, second = Tenure(connection, name), Tenure(other, name)
    assert first.acquire() == "granted"
    connection.submit(lambda: connection.open_channel(lambda it: it.queue_delete(name)))
    second.wait()

    def keep() -> None:
        channel = connection.open_channel(lambda it: first.lock.keep(it, print))
        channel.add_on_close_callback(lambda _, reason: closed.put(reason))

    connection.submit(keep)
    error = first.lock.failure(closed.get(timeout=WAIT_S), "a-stream")
    assert isinstance(error, ChannelLost)
    assert "queue 'a-stream' is gone: its lock" in str(error).replace("Its", "its")
    first.release()
    assert isinstance(Tenure(connection, name).acquire(), ChannelLost)


class ByHand:
    """The retries of a refused release, which come when they are called."""

    def __init__(self, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connection, self._later = connection, queue.SimpleQueue[Callable[[], None]]()
        call_later = connection.call_later

        def note(delay_ms: float, job: Callable[[], None]) -> None:
            if delay_ms == BY_HAND_MS:
                self._later.put(job)
            else:
                call_later(delay_ms, job)

        monkeypatch.setattr(connection, "call_later", note)
        monkeypatch.setattr(lock_queue, "BACKOFF_MS", Backoff(BY_HAND_MS, BY_HAND_MS))

    def due(self) -> Callable[[], None]:
        return self._later.get(timeout=WAIT_S)

    @property
    def is_over(self) -> bool:
        return self._later.empty()


@pytest.mark.thorough
def test_a_lock_whose_release_was_refused_is_freed_once_it_is_permitted(
    user: User, connection: BrokerConnection, other: BrokerConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """The tenure ends at once. Others, with a lock or without, wait for the permission, not for the end of the process."""
    name = unique("lock")
    first, second, looking = Tenure(connection, name), Tenure(other, name), Tenure(other, name, holds=False)
    assert first.acquire() == "granted"
    user.forbid()
    first.release()
    assert isinstance(second.acquire(), ChannelLost)
    assert isinstance(looking.acquire(), ChannelLost)
    user.permit()
    looking.wait()
    assert second.acquire() == "granted"
    assert connection.is_open
    assert [it.levelname for it in caplog.records if name in it.getMessage()] == ["WARNING"]


@pytest.mark.thorough
def test_a_later_tenure_of_the_process_keeps_the_lock_that_could_not_be_released(
    user: User, connection: BrokerConnection, other: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ gives a connection its own queue again, and the delete that is still due would free it for others."""
    name, retries = unique("lock"), ByHand(connection, monkeypatch)
    first, again, second = Tenure(connection, name), Tenure(connection, name), Tenure(other, name)
    assert first.acquire() == "granted"
    user.forbid()
    first.release()
    assert isinstance(again.acquire(), PermissionMissing)
    user.permit()
    assert again.acquire() == "granted"
    connection.submit(retries.due())
    due = retries.due()
    assert isinstance(second.acquire(), ChannelLost)
    again.release()
    assert second.acquire() == "granted"
    connection.submit(due)
    while "an earlier tenure" in (refused := str(again.acquire())):
        pass
    assert "RESOURCE_LOCKED" in refused
    assert retries.is_over


@pytest.mark.thorough
def test_no_tenure_gets_a_lock_that_is_just_being_freed(
    user: User, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hear that it has what is deleted in the next moment."""
    name, retries = unique("lock"), ByHand(connection, monkeypatch)
    first, again = Tenure(connection, name), Tenure(connection, name)
    assert first.acquire() == "granted"
    user.forbid()
    first.release()
    due = retries.due()
    user.permit()

    def free_and_ask() -> None:
        due()
        again.ask()

    connection.submit(free_and_ask)
    assert "an earlier tenure" in str(again.answers.get(timeout=WAIT_S))
    again.wait()
    assert retries.is_over
