"""The journal is read in order, page by page, and shows when entries are missing."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis
from tests.names import unique

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import journal_key
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Header, Heartbeat, Join, Leave, Request, SetResources
from cobalance.coordinator.transport import Script, Transport
from cobalance.errors import UsageError
from cobalance.journal import BEGINNING, PAGE, REMEMBERED, Gap, Journal, JournalEntry, JournalFollower, with_gaps
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(gather_ms=0)


@pytest.fixture(params=["memory", "redis"])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    """Both kinds."""
    if request.param == "memory":
        found: Transport = MemoryTransport(MemoryStore())
    else:
        found = open_transport(request.getfixturevalue("redis_url"))
    yield found
    found.close()


class Member:
    """A member that sends one request after another."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.name, self._coordinator = name, coordinator
        reply = coordinator.execute(Request(Header(name, 1), Join(settings=SETTINGS, label="web-3/4711")))
        self._number, self._incarnation, self._cursor = 1, reply.incarnation, reply.cursor

    def ask(self, payload: Heartbeat | Leave | SetResources) -> None:
        """Sends the next request."""
        self._number += 1
        header = Header(self.name, self._number, self._incarnation, 0, self._cursor)
        self._cursor = self._coordinator.execute(Request(header, payload)).cursor


@pytest.fixture
def journal(transport: Transport) -> Journal:
    """The journal of a group in which a member was given two resources."""
    group = unique("journal")
    coordinator = Coordinator(transport, group)
    coordinator.create(SETTINGS)
    Member(coordinator, "m.1").ask(SetResources(version=1, digest="d", names=("r-0", "r-1")))
    return Journal(transport, group)


def entry(seq: int, kind: str = "granted") -> JournalEntry:
    """An entry of which only its place matters."""
    return JournalEntry(id=f"{seq}-0", seq=seq, kind=kind, at_ms=seq)


def test_entries_are_typed_and_in_order(journal: Journal) -> None:
    """Every transition is there, contiguous, with its numbers as numbers."""
    entries = list(journal.entries())

    assert [it.seq for it in entries] == list(range(1, len(entries) + 1))
    assert [it.kind for it in entries][:2] == ["incarnation", "configured"]
    granted = [it for it in entries if it.kind == "granted"]
    assert [(it.resource, it.member) for it in granted] == [("r-0", "m.1"), ("r-1", "m.1")]
    assert all(isinstance(it.token, int) and it.handover_id == 0 for it in granted)
    assert all(it.deadline_ms is None and it.committed is None and it.reason == "" for it in granted)


def test_who_joined_is_named(journal: Journal) -> None:
    """As far as it gave a name."""
    (joined,) = [it for it in journal.entries() if it.kind == "joined"]

    assert (joined.label, joined.instance_id, joined.capacity) == ("web-3/4711", None, 1)


def test_an_older_journal_is_read() -> None:
    """Its joins do not say which process joined."""
    old = JournalEntry.read("1-1", {"seq": "1", "kind": "joined", "at_ms": "5", "member": "m.1", "reason": "-"})

    assert (old.label, old.instance_id, old.capacity) == (None, None, None)


def test_reading_on_brings_only_what_is_new(journal: Journal) -> None:
    """Reading after an entry's id returns only the entries after it."""
    entries = list(journal.entries())

    assert list(journal.entries(entries[1].id)) == entries[2:]
    assert list(journal.entries(entries[-1].id)) == []


def test_more_than_a_page_is_read(transport: Transport) -> None:
    """A journal longer than one page is returned completely."""
    group = unique("long")
    write = Script.of(
        "write", "for i = 1, ARGV[2] do redis.call('XADD', KEYS[1], '*', 'seq', i, 'kind', 'x', 'at_ms', i) end"
    )
    transport.call(write, [journal_key(group)], [2 * PAGE + 1])

    assert [it.seq for it in Journal(transport, group).entries()] == list(range(1, 2 * PAGE + 2))


def test_following_goes_on_until_it_is_stopped(journal: Journal) -> None:
    """What was there comes first; a set event ends it."""
    stop = threading.Event()
    stop.set()

    assert list(journal.follow(BEGINNING, stop)) == list(journal.entries())


def test_missing_entries_show() -> None:
    """A jump of seq is a gap, at the beginning as well."""
    found = list(with_gaps(iter([entry(3), entry(4), entry(9)])))

    assert found == [Gap(0, 3), entry(3), entry(4), Gap(4, 9), entry(9)]
    assert [it.missing for it in found if isinstance(it, Gap)] == [2, 4]


def test_a_new_incarnation_is_no_gap() -> None:
    """After a loss of data the group goes on above what its members have seen: nothing is missing in between."""
    entries = [entry(1), entry(20, "incarnation"), entry(21)]

    assert list(with_gaps(iter(entries))) == entries


def test_groups_are_listed(transport: Transport) -> None:
    """Every group of the server, whatever other keys there are."""
    names = sorted(unique("listed") for _ in range(3))
    for name in names:
        Coordinator(transport, name).create(SETTINGS)

    assert [name for name in transport.list_groups() if name in names] == names


def test_a_name_that_cannot_be_is_refused(transport: Transport) -> None:
    """Nothing is read for it."""
    with pytest.raises(UsageError, match="braces"):
        Journal(transport, "a{b}")


class Followed:
    """A group in Redis whose journal two followers read, one of them from its beginning."""

    def __init__(self, transport: Transport, client: redis.Redis) -> None:
        group = unique("journal")
        self.coordinator, self._client, self.key = Coordinator(transport, group), client, journal_key(group)
        self.coordinator.create(SETTINGS)
        self.journal = journal = Journal(transport, group)
        self._first, self._late = JournalFollower(journal), JournalFollower.from_newest(journal)
        assert [it.kind for it in self._first.entries()] == ["incarnation", "configured"]

    def read(self) -> list[int]:
        """The numbers of the entries that are new to them."""
        found = [it.seq for it in self._first.entries()]
        assert [it.seq for it in self._late.entries()] == found
        return found

    def change(self) -> None:
        """Makes an entry."""
        self.coordinator.configure(gather_ms=1)

    def write(self, first: int, count: int) -> None:
        """Makes many."""
        with self._client.pipeline() as pipe:
            for seq in range(first, first + count):
                pipe.xadd(self.key, {"seq": seq, "kind": "configured", "at_ms": 1})
            pipe.execute()

    def change_far_ahead(self, seq: int) -> None:
        """The same on a server whose clock is ahead by centuries."""
        self._client.xadd(self.key, {"seq": seq, "kind": "configured", "at_ms": 1}, id="9999999999999-0")


@pytest.fixture
def followed(redis_url: str, redis_admin_url: str) -> Iterator[Followed]:
    with closing(open_transport(redis_url)) as transport, redis.Redis.from_url(redis_admin_url) as client:
        found = Followed(transport, client)
        yield found
        found.coordinator.delete()


def test_a_follower_goes_on_with_a_replica_whose_clock_is_behind(followed: Followed, redis_admin_url: str) -> None:
    """Ids of entries begin with the time. The replica lacks the last entries; those that it makes are read, and none twice."""
    with redis.Redis.from_url(redis_admin_url) as client:
        assert followed.read() == []
        older = client.dump(followed.key)
        followed.change()
        followed.change_far_ahead(4)
        assert followed.read() == [3, 4]
        client.restore(followed.key, 0, older, replace=True)
        assert followed.read() == []
        followed.change()
        assert followed.read() == [4]
        for _ in range(3):
            followed.change()
        client.xtrim(followed.key, maxlen=1, approximate=False)  # what is gone was not read
        assert followed.read() == [7]


def test_a_follower_goes_on_with_a_snapshot_that_lacks_more_than_it_remembers(
    followed: Followed, redis_admin_url: str
) -> None:
    """Nothing that it has read, or that was there before it, is new."""
    with redis.Redis.from_url(redis_admin_url) as client:
        followed.write(3, 300)
        older = client.dump(followed.key)
        assert len(followed.read()) == 300
        followed.write(303, 2 * REMEMBERED)
        assert len(followed.read()) == 2 * REMEMBERED
        later = JournalFollower.from_newest(followed.journal)
        followed.change()
        assert len(followed.read()) == len(list(later.entries())) == 1
        recent = JournalFollower(followed.journal, later._after)
        followed.change()
        assert len(followed.read()) == len(list(later.entries())) == len(list(recent.entries())) == 1
        client.restore(followed.key, 0, older, replace=True)
        assert not [*followed.read(), *later.entries(), *recent.entries()]
        followed.change()
        (found,) = followed.read()
        assert [it.seq for it in later.entries()] == [it.seq for it in recent.entries()] == [found]
        assert followed.read() == []


def test_a_follower_that_has_read_nothing_hears_a_server_whose_clock_is_behind(followed: Followed) -> None:
    """It is to begin at a time that is yet to come there."""
    follower = JournalFollower(followed.journal, "9999999999999-0")
    assert list(follower.entries()) == []
    followed.change()
    assert [it.seq for it in follower.entries()] == followed.read() == [3]
    follower = JournalFollower(followed.journal, "9999999999999-0")
    assert list(follower.entries()) == []
    followed.coordinator.delete()
    assert list(follower.entries()) == []
    followed.coordinator.create(SETTINGS)
    assert [it.seq for it in follower.entries()] == followed.read() == [1, 2]


def test_a_follower_goes_on_with_a_group_that_is_made_anew(followed: Followed) -> None:
    """While the clock is behind, or at once; whether or not it has looked meanwhile."""
    followed.change_far_ahead(3)
    assert followed.read() == [3]
    followed.coordinator.delete()
    followed.coordinator.create(SETTINGS)
    assert followed.read() == [1, 2]
    followed.coordinator.delete()
    assert followed.read() == []
    followed.coordinator.create(SETTINGS)
    followed.change()
    assert followed.read() == [1, 2, 3]
