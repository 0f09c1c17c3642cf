"""Members start and stop one at a time: exactly what each of them hears, in virtual time, with either mode.

The histories are those of Rebalanser's client tests. There every change stops all members; here only eager mode does,
and members that cooperative mode leaves alone are checked to have heard nothing.
"""

from __future__ import annotations

from typing import Literal

import attrs
import pytest
from tests.harness import SETTINGS, World, names

Mode = Literal["cooperative", "eager"]
MODES: tuple[Mode, ...] = ("cooperative", "eager")


class Story:
    """A world, and what its members have heard since the last call of :meth:`told`."""

    def __init__(self, mode: Mode, resources: int) -> None:
        self.world = World(attrs.evolve(SETTINGS, gather_ms=0, mode=mode))
        self.resources = names(resources)
        self._read = 0

    def start(self, *ids: str) -> None:
        """Starts members one after the other, and lets the group settle."""
        for id_ in ids:
            self.world.start(id_, self.resources)
            self.world.run(1_000)
            self.world.settle()
        self.world.run(10_000)

    def start_standby(self, id_: str) -> None:
        """Starts a member for which no resource is left."""
        self.world.start(id_, self.resources)
        self.world.run(10_000)

    def stop(self, id_: str) -> None:
        """Stops a member gracefully, and lets the group settle."""
        process = self.world.processes[id_]
        process.stop()
        self.world.run_until(lambda: process.left)
        self.world.run(10_000)

    def told(self) -> dict[str, list[tuple[str, str]]]:
        """Member → what it began, was asked to finish, finished and gave up, in order."""
        told: dict[str, list[tuple[str, str]]] = {}
        lines = list(self.world.trace.lines)
        for line in lines[self._read :]:
            _, name, *words = line.split()
            verb = " ".join(words[:2]) if words[0] == "has" else words[0]
            if verb in ("starts", "drains", "keeps", "aborts", "has drained"):
                told.setdefault(name, []).append((verb, words[len(verb.split())]))
        self._read = len(lines)
        return told

    def loads(self) -> list[int]:
        """Number of resources of each live member."""
        return [len(process.works()) for process in self.world.alive()]

    def works(self, id_: str) -> set[str]:
        """The resources of one member."""
        return next(set(process.works()) for process in self.world.alive() if process.name == id_)


def only(verb: str, told: list[tuple[str, str]]) -> set[str]:
    """The resources of the events, all of which must be of this kind."""
    assert {it for it, _ in told} == {verb}
    assert len({resource for _, resource in told}) == len(told)
    return {resource for _, resource in told}


def stopped_then_started(told: list[tuple[str, str]]) -> tuple[set[str], set[str]]:
    """What was finished, all of it before anything began, and what began."""
    verbs = [verb for verb, _ in told]
    assert set(verbs) == {"drains", "has drained", "starts"}
    begun = verbs.index("starts")
    assert set(verbs[begun:]) == {"starts"}
    return {it for verb, it in told if verb == "has drained"}, {it for verb, it in told if verb == "starts"}


@pytest.mark.parametrize("mode", MODES)
def test_a_single_member_is_given_all_five_at_once(mode: Mode) -> None:
    """Five starts at the same instant, and nothing else while nothing changes."""
    story = Story(mode, 5)
    story.start("A")
    assert only("starts", story.told()["A"]) == set(names(5))
    at = {line.split()[0] for line in story.world.trace.lines if " starts " in line}
    assert len(at) == 1
    story.world.run(60_000)
    assert story.told() == {}


@pytest.mark.parametrize("mode", MODES)
def test_three_members_share_six(mode: Mode) -> None:
    """Two each, none twice."""
    story = Story(mode, 6)
    story.start("A", "B", "C")
    assert story.loads() == [2, 2, 2]
    assert story.works("A") | story.works("B") | story.works("C") == set(names(6))


def test_members_that_stop_one_by_one_hand_over_and_disturb_nobody() -> None:
    """2/2/2, 3/3, 6: the one that stops finishes its own; the others keep theirs and begin with what is left."""
    story = Story("cooperative", 6)
    story.start("A", "B", "C")
    story.told()
    for leaver, *staying in (["A", "B", "C"], ["B", "C"]):
        left = story.works(leaver)
        story.stop(leaver)
        told = story.told()
        assert [verb for verb, _ in told[leaver]] == ["drains"] * len(left) + ["has drained"] * len(left)
        assert set.union(*(only("starts", told[it]) for it in staying)) == left
        assert {len(told[it]) for it in staying} == {len(left) // len(staying)}
    assert story.loads() == [6]


def test_members_that_stop_one_by_one_stop_all_in_eager_mode() -> None:
    """2/2/2, 3/3, 6: all finish everything before any begins, and the one that stopped hears nothing more."""
    story = Story("eager", 6)
    story.start("A", "B", "C")
    for leaver, *staying in (["A", "B", "C"], ["B", "C"]):
        had = {it: story.works(it) for it in (leaver, *staying)}
        story.told()
        story.stop(leaver)
        told = story.told()
        assert {it for verb, it in told[leaver] if verb == "has drained"} == had[leaver]
        assert "starts" not in {verb for verb, _ in told[leaver]}
        begun = {it: stopped_then_started(told[it]) for it in staying}
        assert {it: finished for it, (finished, _) in begun.items()} == {it: had[it] for it in staying}
        assert {len(began) for _, began in begun.values()} == {6 // len(staying)}
        assert set(told) == {leaver, *staying}
    assert story.loads() == [6]


def test_members_that_start_one_by_one_take_the_surplus_only() -> None:
    """6, 3/3, 2/2/2: existing members finish just their surplus, and the new one begins with just that."""
    story = Story("cooperative", 6)
    story.start("A")
    story.told()
    for newcomer, loads in (("B", [3, 3]), ("C", [2, 2, 2])):
        before = story.loads()
        story.start(newcomer)
        assert story.loads() == loads
        told = story.told()
        began = only("starts", told.pop(newcomer))
        finished = [resource for those in told.values() for verb, resource in those if verb == "has drained"]
        assert sorted(finished) == sorted(began)
        for those, load in zip(told.values(), before, strict=True):
            assert [verb for verb, _ in those] == ["drains"] * (load - loads[0]) + ["has drained"] * (load - loads[0])


def test_members_that_start_one_by_one_stop_all_in_eager_mode() -> None:
    """6, 3/3, 2/2/2: everything is finished, then everything is dealt again."""
    story = Story("eager", 6)
    story.start("A")
    for newcomer, loads in (("B", [3, 3]), ("C", [2, 2, 2])):
        had = {it: story.works(it) for it in story.world.processes}
        story.told()
        story.start(newcomer)
        assert story.loads() == loads
        told = story.told()
        assert len(only("starts", told.pop(newcomer))) == loads[0]
        for it, those in told.items():
            finished, began = stopped_then_started(those)
            assert finished == had[it]
            assert len(began) == loads[0]


def test_members_without_work_come_and_go_unnoticed() -> None:
    """One resource: a second and a third member join and one of them leaves, and no other member hears of it."""
    story = Story("cooperative", 1)
    story.start("A")
    assert only("starts", story.told()["A"]) == {"r0"}
    for id_ in "BC":
        story.start_standby(id_)
        assert story.told() == {}
    story.stop("B")
    assert story.told() == {}


def test_a_member_without_work_that_goes_is_not_missed() -> None:
    """Two resources, three members: when the third joins and leaves again, no other member hears of it."""
    story = Story("cooperative", 2)
    story.start("A")
    assert len(only("starts", story.told()["A"])) == 2
    story.start("B")
    told = story.told()
    assert only("starts", told["B"]) == {it for verb, it in told["A"] if verb == "has drained"}
    assert len(told["A"]) == 2
    story.start_standby("C")
    assert story.told() == {}
    story.stop("C")
    assert story.told() == {}


@pytest.mark.parametrize("leaver", ["A", "B"])
def test_a_member_with_work_that_goes_is_replaced_by_the_one_without(leaver: str) -> None:
    """Two resources, three members: the third begins with what was left, and the other one hears nothing."""
    story = Story("cooperative", 2)
    story.start("A", "B")
    story.start_standby("C")
    story.told()
    left = story.works(leaver)
    story.stop(leaver)
    told = story.told()
    assert only("starts", told.pop("C")) == left
    assert [verb for verb, _ in told.pop(leaver)] == ["drains", "has drained"]
    assert told == {}


@pytest.mark.parametrize("leaver", ["A", "B"])
def test_a_member_with_work_that_goes_is_replaced_in_eager_mode(leaver: str) -> None:
    """The same with the barrier: the other working member stops too, then each of the remaining two has one."""
    story = Story("eager", 2)
    story.start("A", "B")
    story.start_standby("C")
    story.told()
    story.stop(leaver)
    told = story.told()
    assert [verb for verb, _ in told.pop(leaver)] == ["drains", "has drained"]
    assert len(only("starts", told.pop("C"))) == 1
    ((finished, began),) = map(stopped_then_started, told.values())
    assert len(finished) == len(began) == 1
    assert story.loads() == [1, 1]


def test_eager_mode_stops_even_for_a_member_without_work() -> None:
    """The baseline: every change costs a pause of everything, a new tenure, and then rest."""
    story = Story("eager", 1)
    story.start("A")
    story.told()
    story.start_standby("B")
    assert [verb for those in story.told().values() for verb, _ in those] == ["drains", "has drained", "starts"]
    story.world.run(60_000)
    assert story.told() == {}
