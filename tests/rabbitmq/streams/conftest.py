"""Streams for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.streams import Stream, new_stream


@pytest.fixture
def stream(amqp_url: str) -> Iterator[Stream]:
    """Ten messages."""
    with new_stream(amqp_url, 10) as it:
        yield it
