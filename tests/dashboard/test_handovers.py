"""The past of a group, from journals that the production scripts have written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.coordinator.driver import SETTINGS
from tests.dashboard.scenes import GROUP, Scene, churned
from tests.operate.described import group

from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.dashboard.feed import GONE_LOOKS, Feed
from cobalance.dashboard.handovers import Handovers, Span, overlapping
from cobalance.dashboard.timeline import history, timeline
from cobalance.description import GroupDescription
from cobalance.journal import Journal, JournalEntry
from cobalance.ownership import Ownership


def journal(scene: Scene) -> Journal:
    return Journal(MemoryTransport(scene.backend.store), GROUP)


def past_of(scene: Scene, **options: int) -> Handovers:
    found = Handovers(journal(scene), **options)
    found.read()
    return found


def told(past: Handovers, name: str) -> list[tuple[str, str | None, str | None]]:
    """State, owner and end of each span that took time, oldest first."""
    return [(it.state, it.owner, it.end) for it in reversed([*overlapping(past.tracks[name], 0, 1 << 62)])]


@pytest.fixture(scope="module")
def scene() -> Scene:
    return churned()


@pytest.fixture
def past(scene: Scene) -> Handovers:
    return past_of(scene)


def test_a_planned_handover(past: Handovers) -> None:
    """Held, drained and held by another one, each with its cause."""
    name = next(
        name
        for name in past.tracks
        if told(past, name)[:2] == [("held", "m1", "revoking"), ("draining", "m1", "released")]
    )
    held, draining, *_ = reversed([*overlapping(past.tracks[name], 0, 1 << 62)])
    assert held.why == "It was given to web-1/4711, after resources were added to the list"
    assert draining.why == "It is asked back, to even out the shares after web-3/4713 joined"
    assert draining.to_ms == draining.from_ms + 400


def test_a_forced_handover_and_a_crash_are_told_apart(past: Handovers) -> None:
    """By the entry that ended them, and in words."""
    spans = [span for track in past.tracks.values() for span in track]
    whys = {span.why for span in spans}
    assert any(span.end == "forced" and span.state == "draining" for span in spans)
    assert any(
        "had not finished by the revocation timeout" in why and "so it was moved by force" in why for why in whys
    )
    assert any("web-2/4712 was silent for longer than the session timeout" in why for why in whys)


def test_the_causes_and_what_followed(past: Handovers) -> None:
    """Moves are counted to the change that they follow from, not to a later one."""
    found = {it.what: (it.moves, it.cut_short, it.longest_drain_ms) for it in past.happenings}
    assert found["Resources were added to the list"] == (12, 0, 0)
    assert found["web-4/4714 joined"] == (3, 3, 5_000)
    assert found["web-2/4712 was found dead"][0] > 0
    assert found["web-5/4715 joined"][2] == 1_500
    assert found["web-6/4716 joined"] == (0, 0, 0)  # its moves are still to come


def test_halts_and_pauses_happen_too() -> None:
    """Not only what ends them: meanwhile nobody works the resource."""
    scene = Scene(2, members=1)
    (member,) = scene.group.members.values()
    member.release("orders-000", reason="halted:ValueError")
    for _ in range(3):
        member.release("orders-001", reason="failed:ValueError")
        scene.hear()
        scene.pass_time(5_000)
    found = [(it.what, it.kind) for it in past_of(scene).happenings]
    assert ("orders-000 was halted (ValueError)", "halted") in found
    assert ("orders-001 was given up again and again", "halted") in found


def test_a_move_belongs_to_the_change_that_it_was_asked_for_by() -> None:
    """Though another member had joined before the holder released it."""
    scene = Scene(12, members=2)
    scene.join(3)
    scene.hear()
    scene.pass_time(200)
    scene.join(4)
    scene.settle()
    moves = {it.what: it.moves for it in past_of(scene).happenings}
    assert (moves["web-3/4713 joined"], moves["web-4/4714 joined"]) == (4, 2)


def test_tracks_are_what_the_replay_says_at_every_moment(scene: Scene, past: Handovers) -> None:
    """After each entry the spans have the owner and the token that :class:`Ownership` has, and they have no gaps."""
    for track in past.tracks.values():
        assert all(a.to_ms == b.from_ms for a, b in pairwise(track))
        assert track[-1].to_ms is None
    replay, entries = Ownership(), [*journal(scene).entries()]
    for at, entry in enumerate(entries):
        replay.apply(entry, entry.at_ms)
        if at + 1 < len(entries) and entries[at + 1].at_ms == entry.at_ms:
            continue  # more happened at that moment
        for name, standing in replay.resources.items():
            (span,) = [it for it in past.tracks[name] if it.from_ms <= entry.at_ms < (it.to_ms or 1 << 62)]
            assert (span.owner or "", span.state == "draining") == (standing.owner, standing.pending_since is not None)


def test_the_end_is_what_the_group_is(scene: Scene, past: Handovers) -> None:
    """The last spans and a snapshot agree."""
    now = {
        it.name: (it.owner, it.token, it.state == "pending")
        for it in GroupDescription.read(scene.group.coordinator).resources
    }
    assert {name: (it[-1].owner, it[-1].token, it[-1].state == "draining") for name, it in past.tracks.items()} == now


def test_a_place_that_is_kept_and_taken_again() -> None:
    """While an instance id is away, what it held is kept; its next process goes on."""
    scene = Scene(2, members=1)
    kept = scene.join(7, instance_id="billing-0")
    scene.settle()
    scene.pass_time(1_000)
    (name,) = kept.holds
    assert kept.leave(remain=True) == "LEFT"
    scene.pass_time(3_000)
    scene.join(8, instance_id="billing-0")
    scene.settle()
    past = past_of(scene)
    found = told(past, name)
    assert [(state, owner) for state, owner, _ in found][-3:] == [("held", "m7"), ("graced", "m7"), ("held", "m8")], (
        found
    )
    assert past.who("m8") == "billing-0 on web-8/4718"


def test_what_entries_are_missing_about_is_not_known(scene: Scene) -> None:
    """Spans end where entries are missing, and begin again with the next that says something."""

    class Trimmed(Journal):
        def entries(self, after: str = "0") -> object:  # type: ignore[override]
            return (it for it in super().entries(after) if not 60 <= it.seq < 66)

    past = Handovers(Trimmed(MemoryTransport(scene.backend.store), GROUP))
    past.read()
    (gap,) = [it for it in past.happenings if it.kind == "gap"]
    assert gap.what == "6 entries of the journal are missing"
    at_gap = [it for track in past.tracks.values() for it in track if it.from_ms < gap.at_ms < (it.to_ms or 1 << 62)]
    assert not at_gap
    after = [next((it for it in track if it.from_ms > gap.at_ms), None) for track in past.tracks.values()]
    assert {it.state for it in after if it is not None} == {"held"}
    assert past.account().missing == 6


def test_only_so_much_is_kept(scene: Scene, past: Handovers) -> None:
    """Of a long journal the newer part; the present is there in any case."""
    short = past_of(scene, most_kept=20)
    assert short.first_ms is not None
    assert past.first_ms is not None
    assert short.first_ms > past.first_ms
    assert {name: track[-1] for name, track in short.tracks.items()} == {
        name: track[-1] for name, track in past.tracks.items()
    }
    assert all(it.at_ms > short.first_ms for it in short.happenings)


def test_members_that_move_nothing_are_forgotten_too() -> None:
    """Standbys that come and go, for months. Those that are there, or are named, stay."""
    scene = churned()
    past = past_of(scene, most_kept=60)
    for number in range(100, 300):
        scene.join(number, capacity=0).leave()
        scene.pass_time(1_000)
        if number % 10 == 0:
            past.read()
    past.read()
    present = {span.owner for track in past.tracks.values() for span in track if span.owner is not None}
    assert sum(map(len, past.tracks.values())) + len(past.happenings) <= 60
    assert present <= past.members.keys()
    assert len(past.members) < 60
    assert past.numbers.keys() == past.members.keys()
    assert past.label("m299") == "web-299/5009"
    assert past.label("m100") is None


@pytest.mark.parametrize("how", ["deleted", "lost", "unseen"])
def test_members_that_ended_without_an_entry_are_forgotten_too(how: str) -> None:
    """They were on record when the group was deleted by force, or Redis's data was lost; or their end is missing."""
    scene = Scene(2)

    class WithoutEnds(Journal):
        def entries(self, after: str = "0") -> object:  # type: ignore[override]
            return (it for it in super().entries(after) if how != "unseen" or it.kind != "left")

    past = Handovers(WithoutEnds(MemoryTransport(scene.backend.store), GROUP), most_kept=60)
    for number in range(100, 300):
        standby = scene.join(number, capacity=0)
        scene.pass_time(1_000)
        past.read()
        if how == "unseen":
            standby.leave()
        elif how == "lost":
            scene.group.lose_data()
        else:
            scene.group.coordinator.delete(force=True)
            scene.group.coordinator.create(SETTINGS)
        if how != "unseen":
            del scene.group.members[f"m{number}"]
        scene.pass_time(SETTINGS.session_timeout_ms)
    past.read()
    assert len(past.members) < 60
    assert past.numbers.keys() == past.members.keys()
    if how != "unseen":
        assert past.members["m298"].ended is not None


def test_resources_that_are_gone_are_forgotten_too() -> None:
    """As in a group whose list is generated: names come, are paused, and go for good."""
    scene = Scene(2, members=1)
    past = past_of(scene, most_kept=60)
    (member,) = scene.group.members.values()
    for number in range(40):
        scene.group.set_resources(member, (f"job-{number}",))
        scene.group.beat()
        for _ in range(2):  # the second time in a row it is paused
            scene.group.beat()
            for name in [*member.holds]:
                member.release(name, reason="failed")
        scene.pass_time(1_000)
        past.read()
    assert "job-39" in past._moves
    assert len(past._moves) < 40
    assert len(past.account()._paused_until) <= 2


def test_what_is_gone_is_known_for_a_while() -> None:
    """Whoever looks again later gets all that is there."""
    scene = Scene(1, members=1)

    class Watch:
        names = 0

        def snapshot(self) -> GroupDescription:
            self.names += 1
            return group(name=f"job-{self.names}")

    now_s = 0.0
    feed = Feed(Watch(), journal(scene), lambda: None, clock=lambda: now_s)  # type: ignore[arg-type]
    view = feed.look()
    for _ in range(GONE_LOOKS + 9):
        now_s += 10
        view = feed.look()
    assert len(view.gone) == GONE_LOOKS
    late, lately = view.since(5), view.since(view.number - 5)
    assert (late["all"], late["gone"]) == (True, [])
    assert (lately["all"], len(lately["gone"])) == (False, 5)


Named = tuple[str, str, int, int | None]


def named(window: dict[str, object]) -> set[Named]:
    """The spans of a window with names in place of positions."""
    resources, states, spans = window["resources"], window["states"], window["spans"]
    assert isinstance(resources, list)
    assert isinstance(states, list)
    assert isinstance(spans, list)
    return {(resources[it[0]], states[it[1]], it[4], it[5]) for it in spans}


def test_who_has_seen_more_than_there_is_gets_all(past: Handovers) -> None:
    """A page that was open when the group was deleted, and created again under its name."""
    assert timeline(past, 0, 1 << 62, past.seq + 1) == timeline(past, 0, 1 << 62)
    assert timeline(past, 0, 1 << 62, past.seq)["spans"] == []


def test_a_window_has_what_overlaps_it(past: Handovers) -> None:
    """What ended before or began after it is not there."""
    first = past.first_ms or 0
    found = named(timeline(past, first + 21_000, first + 24_000))
    assert {state for _, state, _, _ in found} == {"held", "draining"}
    assert all(since <= first + 24_000 and (until is None or until >= first + 21_000) for _, _, since, until in found)
    assert named(timeline(past, 0, first - 1)) == set()


def test_news_since_an_entry_complete_what_is_known() -> None:
    """A browser that has a window, and asks for what is new, has what one has that asks for everything."""
    scene = churned()
    past = past_of(scene)
    before = timeline(past, 0, 1 << 50)
    scene.settle()
    scene.pass_time(2_000)
    past.read()
    news, everything = timeline(past, 0, 1 << 50, int(before["seq"])), timeline(past, 0, 1 << 50)
    known = {it[:3]: it for it in named(before)} | {it[:3]: it for it in named(news)}
    assert set(known.values()) == named(everything)
    assert 0 < len(named(news)) < len(named(everything))


def test_the_history_of_a_partition_is_newest_first(past: Handovers) -> None:
    """With names that people know."""
    found = history(past, "orders-003")
    assert [it["from_ms"] for it in found] == sorted((it["from_ms"] for it in found), reverse=True)
    assert found[0]["to_ms"] is None
    assert found[-1]["who"].startswith("web-")
    assert history(past, "unheard-of") == []


def test_members_are_numbered_as_they_came(past: Handovers) -> None:
    """So that each has the same colour in every dashboard."""
    assert past.numbers == {f"m{number}": number - 1 for number in range(1, 7)}
    assert {it["id"]: it["number"] for it in timeline(past, 0, 1 << 50)["owners"]}["m3"] == 2


def test_entries_that_are_about_no_span_change_nothing(past: Handovers) -> None:
    """A refusal is no handover."""
    before: list[Span] = [*past.tracks["orders-000"]]
    entry = JournalEntry(
        id="9-9",
        seq=past.seq + 1,
        kind="refused",
        at_ms=1 << 41,
        resource="orders-000",
        member="m1",
        reason="commit FENCED",
    )
    past._take(entry)
    assert past.tracks["orders-000"] == before
