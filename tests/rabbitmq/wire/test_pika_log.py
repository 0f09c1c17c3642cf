"""pika's log records: those about our own connections are lowered to DEBUG, those about the program's are unchanged."""

from __future__ import annotations

import logging

import pika
import pytest

from cobalance.errors import Unreachable
from cobalance.rabbitmq import Publisher, Topic

NOWHERE = "amqp://guest:guest@nowhere.invalid/"


def test_a_host_that_does_not_exist_is_told_by_us(caplog: pytest.LogCaptureFixture) -> None:
    """In an exception, and not also by pika, which resolves names in a thread of its own."""
    with pytest.raises(Unreachable, match="no such host"), Publisher(NOWHERE, Topic("orders", 2)):
        pass
    assert [
        record for record in caplog.records if record.name.startswith("pika") and record.levelno > logging.DEBUG
    ] == []


def test_a_program_s_own_connection_is_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    """What matters about it is not ours to decide."""
    with pytest.raises(OSError, match="not known"):
        pika.BlockingConnection(pika.URLParameters(NOWHERE))
    assert "Address resolution failed" in caplog.text
