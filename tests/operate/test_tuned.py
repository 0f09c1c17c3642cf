"""What tune decided, kept beside the group in a real Redis, as the user of the README's ACL line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import redis
from tests.cli_process import SECRET
from tests.dashboard.asking import ask
from tests.names import unique

from cobalance import GroupAdmin, GroupSettings
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.dashboard.handovers import Handovers
from cobalance.dashboard.server import DashboardServer
from cobalance.dashboard.tuning import since, tuning_answer
from cobalance.errors import UnknownGroup
from cobalance.operate import Tuned, UnreadableTuned
from cobalance.operate.tuned import store

TUNED = Tuned(
    at_ms=1_790_000_000_000,
    from_ms=1_789_000_000_000,
    to_ms=1_789_900_000_000,
    decision="change",
    today=GroupSettings(),
    recommended={"session_timeout_ms": 12_000, "gather_ms": 900},
    gain=(50.0, 40.5, None),
    sentences=("It costs 50 (40.5 to unbounded) resource-seconds a day less than today's settings.",),
)


@pytest.fixture
def group(redis_url: str) -> Iterator[Coordinator]:
    transport = open_transport(redis_url)
    found = Coordinator(transport, unique("tuned"))
    found.create(GroupSettings())
    yield found
    transport.close()


@pytest.fixture
def admin(group: Coordinator) -> GroupAdmin:
    return GroupAdmin(transport=group.transport, amqp_url=None)


def test_what_was_stored_is_read_and_the_next_one_replaces_it(group: Coordinator, admin: GroupAdmin) -> None:
    """Settings stay as they are; nothing is stored beside a group that is gone, and nothing is left of one."""
    assert admin.tuned(group.group) is None
    store(group, TUNED)
    found = admin.tuned(group.group)
    assert isinstance(found, Tuned)
    assert attrs.evolve(found, sentences=tuple(found.sentences)) == TUNED
    assert admin.settings(group.group) == GroupSettings()
    kept = attrs.evolve(TUNED, decision="keep", from_ms=None, to_ms=None, recommended={}, gain=None, sentences=[])
    store(group, kept)
    assert admin.tuned(group.group) == kept
    admin.delete(group.group)
    with pytest.raises(UnknownGroup):
        admin.tuned(group.group)
    with pytest.raises(UnknownGroup):
        store(group, kept)
    admin.create(group.group)
    assert admin.tuned(group.group) is None


def test_it_expires_with_an_idle_group(group: Coordinator, admin: GroupAdmin, redis_admin_url: str) -> None:
    """At the same moment, whichever was there first."""
    with redis.Redis.from_url(redis_admin_url) as raw:
        store(group, TUNED)
        assert raw.pttl(group.tuned_key) == -1
        admin.configure(group.group, idle_expiry_ms=3_600_000)
        assert 0 < raw.pttl(group.tuned_key) <= 3_600_000
        store(group, TUNED)
        assert abs(raw.pttl(group.tuned_key) - raw.pttl(group.state_key)) < 1_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "It is in format 2, and this version of cobalance reads 1."),
        ({"version": None}, "It is in format None"),
        ({"today": {"patience_ms": 4}}, "is damaged"),
        ({"recommended": {"gather_ms": "soon"}}, "is damaged"),
        ({"recommended": {"mode": "eager"}}, "is damaged"),
        ({"recommended": {"session_timeout_ms": 10**9}}, "is damaged"),
        ({"at_ms": 1.5}, "is damaged"),
        ({"from_ms": None}, "is damaged"),
        ({"decision": "perhaps"}, "is damaged"),
        ({"gain": [float("nan"), 1, 2]}, "is damaged"),
        ({"gain": 7}, "is damaged"),
        ({"sentences": [1]}, "is damaged"),
        (b"", "is damaged"),
        (b"\xff", "is damaged"),
        (b"[" * 100_000, "is damaged"),
        ("else", "WRONGTYPE"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_a_reason(
    group: Coordinator, admin: GroupAdmin, redis_admin_url: str, change: dict[str, Any] | bytes | str, said: str
) -> None:
    """Another format, other values, no JSON, another type of key."""
    store(group, TUNED)
    with redis.Redis.from_url(redis_admin_url) as raw:
        if isinstance(change, str):
            raw.set(group.tuned_key, change)
        elif isinstance(change, bytes):
            raw.hset(group.tuned_key, "json", change)
        else:
            known = json.loads(raw.hget(group.tuned_key, "json") or b"")
            raw.hset(group.tuned_key, "json", json.dumps(known | change))
    found = admin.tuned(group.group)
    assert isinstance(found, UnreadableTuned)
    assert said in found.problem
    answer = tuning_answer(admin.describe(group.group), Handovers(admin.journal(group.group)), found)
    assert answer["tuned"] == {"problem": found.problem}
    assert {it["recommended"] for it in answer["settings"]} == {None}


def test_the_dashboard_shows_it_beside_each_setting(group: Coordinator, admin: GroupAdmin) -> None:
    """What it tells has no secret, whoever wrote it."""
    store(group, attrs.evolve(TUNED, sentences=[f"from redis://user:{SECRET}@host"]))
    admin.configure(group.group, session_timeout_ms=12_000)
    with DashboardServer(admin, port=0) as server:
        answer = ask(server.port, f"/api/v1/groups/{group.group}/tuning")
    assert SECRET not in answer.text
    told = answer.json["tuned"]
    assert (told["gain"], told["at_ms"], told["from_ms"]) == ([50.0, 40.5, None], TUNED.at_ms, TUNED.from_ms)
    assert told["since"].startswith("Settings have drifted")
    rows = {it["name"]: it["recommended"] for it in answer.json["settings"]}
    assert {name: it for name, it in rows.items() if it is not None} == TUNED.recommended


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (GroupSettings(journal_length=5_000), None),
        (GroupSettings(session_timeout_ms=12_000, gather_ms=900), "It is in force."),
        (
            GroupSettings(session_timeout_ms=12_000),
            "Settings have drifted since: session_timeout_ms from 5000 to 12000. Tune again.",
        ),
    ],
)
def test_what_has_become_of_the_settings_since(settings: GroupSettings, said: str | None) -> None:
    """Carried out as a whole, or something else: then the recommendation was computed from other settings."""
    assert since(TUNED, settings) == said
