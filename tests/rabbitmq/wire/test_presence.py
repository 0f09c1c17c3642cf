"""Asking whether an exchange is there, over a connection that is open anyway."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.faults.proxy import proxy_to
from tests.names import unique

from cobalance.rabbitmq.wire import presence
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.presence import is_there


def test_what_is_there_and_what_is_not(amqp_url: str) -> None:
    """As often as one likes, on one connection."""
    with closing(BrokerConnection(amqp_url, "group/member")) as connection:
        assert not is_there(connection, "amq.direct")  # nobody can be asked yet
        connection.connect()
        for _ in range(2):
            assert is_there(connection, "amq.direct")
            assert not is_there(connection, unique("no-exchange"))
    assert not is_there(connection, "amq.direct")


def test_a_loss_while_it_is_asked_ends_the_wait(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an answer that cannot come."""
    monkeypatch.setattr(presence, "WAIT_S", 3_600)
    with proxy_to(amqp_url) as proxy, ThreadPoolExecutor() as threads:
        connection = BrokerConnection(proxy.through(amqp_url), "group/member", heartbeat_s=60)
        with closing(connection):
            connection.connect()
            proxy.black_hole()
            asked = threads.submit(is_there, connection, "amq.direct")
            while not connection._lent:
                pass  # the timeout of the test is the limit
            proxy.reset()
            assert asked.result() is False
