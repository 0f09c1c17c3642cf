"""Members that return: as another member after their end, as themselves after a lost connection.

The histories are those of Apache Iggy's reconnect tests (1, 16 and 17).
"""

from __future__ import annotations

from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.messages import Messages
from tests.coordinator.sharing import check_shared, tokens


def test_silent_members_are_gone_and_their_successors_share_anew(group: Group) -> None:
    """Three fall silent: none is left on record, everything is free; three others share it, each message at most once
    more.
    """
    old = group.joined("abc")
    group.set_resources(old[0], names(6))
    group.drain()
    held = tokens(*old)
    messages = Messages(group)
    messages.publish(names(6), 2)
    messages.poll()
    for member in old:
        member.silent = True
    for _ in range(3):
        group.backend.now_ms += SETTINGS.session_timeout_ms // 2
        group.coordinator.state()
    assert list(group.coordinator.members()) == []
    assert set(group.holders().values()) == {None}
    new = group.joined("def")
    group.drain(*new)
    check_shared(group, *new)
    assert {len(member.holds) for member in new} == {2}
    assert all(token > held[name][1] for name, (_, token) in tokens(*new).items())
    polled = messages.poll(*new)
    assert sorted(polled) == list(names(6))
    messages.poll_all()
    assert messages.missing == []
    assert messages.again == [(name, 0) for name in names(6)], "only what the dead had not committed"


def test_one_evicted_for_silence_comes_back_as_another(group: Group) -> None:
    """It hears that it has ended and joins again, with nothing: each message goes to one of the three, its old
    tenures are void.
    """
    a, b, c = group.joined("abc")
    group.set_resources(a, names(3))
    group.drain()
    messages = Messages(group)
    former = {name: tenure.token for name, tenure in a.holds.items()}
    group.run(SETTINGS.session_timeout_ms + 1000, b, c)
    assert a.heartbeat().status == "ENDED"
    back = Member(group, "a2")
    group.members["a2"] = back
    assert back.join(previous="a").status == "OK"
    assert back.holds == {}
    group.drain(b, c, back)
    check_shared(group, b, c, back)
    messages.publish(names(3))
    messages.poll(a, b, c, back)
    messages.check_each_once()
    for name, token in former.items():
        assert back.commit(name, 1, token) == "FENCED"
        assert a.commit(name, 1, token) == "ENDED"


def test_one_that_lost_its_connection_comes_back_as_itself(group: Group) -> None:
    """Within its session it claims what it holds: nothing moves, and each message goes to one of the three."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(3))
    group.drain()
    held = {name: token for name, (_, token) in tokens(a, b, c).items()}
    messages = Messages(group)
    messages.publish(names(3))
    back = a.rejoin("a2")
    group.drain(b, c, back)
    check_shared(group, b, c, back)
    assert {name: token for name, (_, token) in tokens(b, c, back).items()} == held
    messages.poll(b, c, back)
    messages.check_each_once()
    assert a.heartbeat().status == "ENDED"


def test_one_that_lost_its_connection_and_its_memory_shares_like_a_newcomer(group: Group) -> None:
    """A process that restarts within the old session claims nothing: its former tenures end under higher tokens."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(3))
    group.drain()
    (name,) = a.holds
    token = a.holds[name].token
    del group.members["a"]
    back = group.join("a2", previous="a")
    group.drain(b, c, back)
    check_shared(group, b, c, back)
    assert tokens(b, c, back)[name][1] > token
    messages = Messages(group)
    messages.publish(names(3))
    messages.poll(b, c, back)
    messages.check_each_once()
    assert back.commit(name, 1, token) == "FENCED"
