"""The journal: every transition once, in the script that made it."""

from __future__ import annotations

import attrs
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.coordinator.keys import NAMES, group_keys
from cobalance.coordinator.transport import Script
from cobalance.settings import STORED_NAMES


def handover(group: Group, token: int) -> list[str]:
    """The kinds of all entries of one handover."""
    return [entry["kind"] for entry in group.journal() if entry.get("handover_id") == str(token)]


def test_a_handover_reads_as_a_story(group: Group) -> None:
    """Revoking → released → granted, under the handover id of the tenure that ended."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    group.join("b")
    a.hear()
    (name,) = a.pending
    token = a.holds[name].token
    a.commit(name, 3)
    group.backend.now_ms += 250
    a.release(name)
    assert handover(group, token) == ["revoking", "released", "granted"]
    released, granted = group.journal("released")[0], group.journal("granted")[-1]
    assert released["drain_ms"] == "250"
    assert released["committed"] == "3"
    assert released["member"] == "a"
    assert granted["member"] == "b"
    assert int(granted["token"]) > token


def test_a_forced_handover_says_so(group: Group) -> None:
    """With its deadline, and the time that the holder had."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    group.join("b")
    a.hear()
    (name,) = a.pending
    tenure = a.holds[name]
    group.run(SETTINGS.revocation_timeout_ms)
    assert handover(group, tenure.token) == ["revoking", "forced", "granted"]
    forced = group.journal("forced")[0]
    assert forced["deadline"] == str(tenure.deadline_ms)
    assert forced["drain_ms"] == str(SETTINGS.revocation_timeout_ms)
    assert forced["reason"] == "deadline"


def test_a_cancelled_revocation_is_told_to_its_end(group: Group) -> None:
    """Revoking → cancelled; the tenure continues."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    b = group.join("b")
    a.hear()
    token = a.holds[a.pending[0]].token
    b.leave()
    assert handover(group, token) == ["revoking", "cancelled"]


def test_a_crash_is_told(group: Group) -> None:
    """expired_member, then each of its resources: expired → granted."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    token = next(iter(a.holds.values())).token
    group.run(SETTINGS.session_timeout_ms + 1000, b)
    assert [entry["member"] for entry in group.journal("expired_member")] == ["a"]
    assert handover(group, token) == ["expired", "granted"]


def test_every_sort_of_transition_has_its_entry(group: Group) -> None:
    """Nothing happens silently."""
    a = group.join("a")
    group.set_resources(a, names(4))
    a.hear()
    a.commit("r000", 5)
    a.commit("r000", 4)
    a.release("r001", reason="hung")
    group.set_resources(a, names(3))
    group.drain()
    group.coordinator.configure(gather_ms=1)
    a.leave()
    kinds = {entry["kind"] for entry in group.journal()}
    assert kinds >= {
        "incarnation", "configured", "joined", "coordinator", "added", "granted", "refused", "abandoned", "removing",
        "revoking", "released", "removed", "leaving",
    }  # fmt: skip


def test_who_joins_is_named(group: Group) -> None:
    """By what people and operators know: host and process, instance id, capacity."""
    group.join("a", label="web-3/4711", instance_id="shop-0", capacity=3)
    (joined,) = group.journal("joined")
    assert [joined[field] for field in ("label", "instance", "capacity")] == ["web-3/4711", "shop-0", "3"]


def settings_in(entry: dict[str, str]) -> dict[str, str]:
    """The pairs of an entry."""
    words = entry["reason"].split()
    return dict(zip(words[::2], words[1::2], strict=True))


def test_a_group_that_its_first_join_makes_tells_its_settings(backend: Backend) -> None:
    """Like a created one; once, no matter who joins later."""
    group = Group(backend, create=False)
    group.joined("ab")
    (configured,) = group.journal("configured")
    stored = {short: str(getattr(SETTINGS, name)) for name, short in STORED_NAMES.items()}
    assert settings_in(configured) == stored


def test_settings_that_come_back_after_a_loss_are_told(backend: Backend) -> None:
    """The new member guessed them; a previous member knows better."""
    group = Group(backend)
    a = group.join("a")
    group.lose_data()
    group.join("b", settings=attrs.evolve(SETTINGS, gather_ms=7))
    a.rejoin("a2")
    guessed, known = map(settings_in, group.journal("configured"))
    assert (guessed["gather_ms"], known["gather_ms"]) == ("7", str(SETTINGS.gather_ms))


def test_every_entry_has_a_number_a_kind_and_a_time(group: Group) -> None:
    """The numbers are contiguous, so that a gap shows that entries were trimmed."""
    a, _ = group.joined("ab")
    group.set_resources(a, names(20))
    group.drain()
    entries = group.journal()
    assert [int(entry["seq"]) for entry in entries] == list(range(1, len(entries) + 1))
    assert all(entry["kind"] and int(entry["at_ms"]) == group.backend.now_ms for entry in entries)


def test_the_journal_is_bounded(backend: Backend) -> None:
    """About the configured length; the numbers continue."""
    group = Group(backend, attrs.evolve(SETTINGS, journal_length=100))
    a = group.join("a")
    for round_ in range(40):
        group.set_resources(a, names(10, prefix="ab"[round_ % 2]))
        group.drain()
    entries = group.journal()
    assert len(entries) <= 300
    assert int(entries[0]["seq"]) > 1
    assert int(entries[-1]["seq"]) == group.records().number("version")


FILL = Script.of(
    "fill",
    """
local version = redis.call('HGET', KEYS[1], 'version')
for seq = version + 1, version + 5000 do redis.call('XADD', KEYS[2], '*', 'seq', seq, 'kind', 'old', 'at_ms', '0') end
redis.call('HSET', KEYS[1], 'version', version + 5000)
""",
)


def test_a_journal_that_is_made_much_shorter_shrinks_over_several_calls(backend: Backend) -> None:
    """Doing it all at once would keep Redis busy for long."""
    group = Group(backend, SETTINGS)
    a = group.join("a")
    keys = group_keys(group.coordinator.group)
    backend.call(FILL, [keys[NAMES.index("state")], keys[NAMES.index("journal")]], [])
    group.coordinator.configure(journal_length=100)
    length = len(group.journal())
    group.set_resources(a, names(1))
    assert length - 2 * 2_000 <= len(group.journal()) < length  # in two calls
    for member in "bcd":
        group.join(member)
    assert len(group.journal()) <= 300


def test_the_journal_names_hosts_at_their_join_only(group: Group) -> None:
    """Everything else is ids and numbers, and nothing that users write."""
    a = group.join("a", label="web-3/4711")
    group.set_resources(a, names(1))
    a.leave()
    assert {entry["kind"] for entry in group.journal() if "web-3/4711" in entry.values()} == {"joined"}
