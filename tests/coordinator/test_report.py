"""What members have in flight: requested, reported, and deleted with the member."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import attrs
import pytest
from tests.coordinator.driver import SETTINGS, Group

from cobalance.coordinator.in_flight import MOST_TOLD, UNKNOWN, InFlight, InFlightReport, written
from cobalance.coordinator.requests import Header, Report, Request
from cobalance.errors import UsageError
from cobalance.names import validate_name


def told(group: Group) -> dict[str, InFlightReport | None]:
    return {row.id: row.in_flight for row in group.coordinator.members()}


def tell(group: Group, member: str, words: str) -> None:
    """Reports like its engine would."""
    group.coordinator.execute(Request(Header(member, 0), Report(words)))


def test_what_a_member_tells_is_there_until_it_ends(group: Group) -> None:
    """Nothing of it stays behind."""
    a = group.join("a")
    assert told(group) == {"a": None}
    tell(group, "a", written([("orders-0", InFlight(3, 1_200)), ("orders-1", InFlight(0, 0))]))
    report = told(group)["a"]
    assert report is not None
    assert report.at_ms == group.backend.now_ms
    assert (report.of("orders-0"), report.of("orders-1")) == (InFlight(3, 1_200), InFlight(0, 0))
    a.leave()
    tell(group, "a", written([("orders-0", InFlight(3, 1_200))]))
    assert not [field for field in group.records().scalars if field.startswith("w:")]


def test_what_many_have_told_comes_in_short_pages(group: Group) -> None:
    """However much it is, no call keeps Redis busy for long."""
    much = written((f"{n:0200}", InFlight(1, n)) for n in range(1, MOST_TOLD + 1))
    ids = [f"m{n}" for n in range(8)]
    for it in ids:
        group.join(it)
        tell(group, it, much)
    pages: list[int] = []
    call: Any = group.backend.call

    def noted(*request: Any) -> Any:
        reply = call(*request)
        pages.append(sum(len(row[-1]) for row in reply[12][1:]))
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.backend, "call", noted)
        assert sorted(told(group)) == ids
    assert max(pages) < 400_000
    assert sum(pages) > 8 * MOST_TOLD * 200


def test_who_asks_looks_ever_more_rarely_where_nobody_answers(group: Group) -> None:
    """As where hints are not permitted: anybody may watch such a group, and it is not to keep Redis busy."""
    group.join("a")
    calls = 0
    call: Any = group.backend.call

    def noted(*request: Any) -> Any:
        nonlocal calls
        calls += 1
        return call(*request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.backend, "call", noted)
        assert group.coordinator.ask_in_flight(patience_ms=500) == {}
    assert 2 < calls <= 2 + 4 + 5, "the question, and looks: at once, four while the pause grows, then one in 100 ms"


def test_telling_renews_no_session(group: Group) -> None:
    """A process whose session thread is gone is not a live member."""
    group.join("a")
    group.backend.now_ms += SETTINGS.session_timeout_ms // 2
    before = {row.id: row.expires_ms for row in group.coordinator.members()}
    tell(group, "a", "all")
    assert {row.id: row.expires_ms for row in group.coordinator.members()} == before


def test_who_has_more_than_an_answer_holds_tells_of_the_oldest() -> None:
    """What is left out is unknown, and not nothing."""
    report = InFlightReport.read("5 " + written((f"r{n}", InFlight(1, n)) for n in range(1, MOST_TOLD + 3)))
    assert report is not None
    assert report.of(f"r{MOST_TOLD + 2}") == InFlight(1, MOST_TOLD + 2)
    assert report.of("r1") is None


def test_what_a_member_does_not_consume_is_unknown() -> None:
    """It says so of each, or leaves it out of an answer that holds not all."""
    some = [("a", None), ("b", InFlight(2, 7)), ("c", InFlight(0, 0))]
    report = InFlightReport.read("5 " + written(some, 3))
    assert report is not None
    assert [report.of(name) for name in "abcd"] == [None, InFlight(2, 7), InFlight(0, 0), InFlight(0, 0)]
    assert [report.is_kept_waiting(name) for name in "abcd"] == [True, False, False, False]
    assert report.handled == 3
    many = InFlightReport.read("5 " + written([*some, *((f"r{n}", InFlight(1, n)) for n in range(MOST_TOLD))]))
    assert many is not None
    assert (many.of("a"), many.of("c"), many.of("b")) == (None, None, InFlight(2, 7))


def test_work_that_is_no_messages_is_unknown() -> None:
    """The member has answered, and nothing more."""
    report = InFlightReport.read("5 ")
    assert report is not None
    assert report.of("r") is None


def test_what_a_member_says_of_itself() -> None:
    """Its version, and when it acknowledged something. A member of before says neither, which is unknown and not 0."""
    for found in (None, [("a", InFlight(2, 7))], [("a", None)]):
        report = InFlightReport.read("5 " + written(found, last_ack_ago_ms=0))
        assert report is not None
        assert (report.library_version, report.last_ack_ago_ms) == (version("cobalance"), 0)
        assert report.of("a") == (found[0][1] if found else None)
        never = InFlightReport.read("5 " + written(found))
        assert never == attrs.evolve(report, last_ack_ago_ms=None)
    for before in ("5 ", "5 all/12/340 a 2 7", "5 oldest"):
        report = InFlightReport.read(before)
        assert report is not None
        assert (report.library_version, report.last_ack_ago_ms) == (None, None)


def test_readers_of_before_understand_it() -> None:
    """To them, what a member says of itself is a resource of which nothing is known; no real one has that name."""
    kind, *words = written([("a", InFlight(2, 7))], 3, last_ack_ago_ms=9, place="north/%2F").split()
    assert [kind, *words[:3]] == ["all/3", "a", "2", "7"]
    for name, messages in (words[3:5], words[6:8]):
        assert messages == UNKNOWN
        with pytest.raises(UsageError):
            validate_name("resource", name)


def test_what_a_member_says_of_its_work() -> None:
    """How much it has done, and for how long that took all that it can do; or the first only, or neither."""
    for counts in ((), (12,), (12, 340)):
        report = InFlightReport.read("5 " + written([], *counts))
        assert report is not None
        assert (report.handled, report.occupied_ms) == (*counts, None, None)[:2]
