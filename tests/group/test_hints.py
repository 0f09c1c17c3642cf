"""What a member makes of what is published for it."""

from __future__ import annotations

import pytest
from tests.names import unique

from cobalance import BlockingGroup
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import EVERYBODY, group_keys
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.transport import Script
from cobalance.group.engine import Engine
from cobalance.member import events as ev

PUBLISH = Script.of("publish", "return redis.call('PUBLISH', ARGV[2], ARGV[3])")


@pytest.mark.parametrize(
    ("message", "asked"),
    [("-7", []), ("-5", []), ("-4", []), ("-2", []), ("-3", [-1]), ("-1", [-1]), ("12", [12]), ("nonsense", [-1])],
)
def test_an_errand_that_it_does_not_know_asks_for_nothing(
    message: str, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of a later version may ask for it often, of a thousand members at once. What is no number does ask."""
    heard: list[ev.Event] = []
    post = Engine.post

    def record(engine: Engine, event: ev.Event) -> None:
        heard.append(event)
        post(engine, event)

    name = unique("errands")
    transport = MemoryTransport.named(name)
    with BlockingGroup(name, ["r"], redis_url=f"memory://{name}") as group:
        group.wait_held("r")
        monkeypatch.setattr(Engine, "post", record)
        channel = Coordinator(transport, name).channel(EVERYBODY)
        assert transport.call(PUBLISH, group_keys(name), [channel, message]) == 1  # delivered by now
        assert [it.version for it in heard if isinstance(it, ev.Hinted)] == asked
