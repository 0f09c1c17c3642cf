"""What the checkers of S4 and S6 see besides: what users hear, and which member gets what back."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from tests.sims.stage import Stage

from cobalance.coordinator.replies import Change, CoordinatorReply
from cobalance.coordinator.requests import Header, Request, SetResources
from cobalance.member import actions as act
from cobalance.member.events import StopAsked
from cobalance_sims.simulate.checks import Check, S4Told, S6Returns, Violation
from cobalance_sims.simulate.habits import STUCK
from cobalance_sims.simulate.scenario import QUICKENED
from cobalance_sims.simulate.work import SimulatedTenure


def _s4_says_stored_of_what_is_not(stage: Stage) -> None:
    stage.commit(1, 5, 10)
    stage.world.committed(stage.first, "r", 5, 11, "OK")


def _s4_says_fenced_of_what_is_stored(stage: Stage) -> None:
    stage.commit(1, 5, 10)
    stage.world.committed(stage.first, "r", 5, 10, "FENCED")


def _s4_says_regressed_of_what_is_ahead(stage: Stage) -> None:
    stage.commit(1, 5, 10)
    stage.world.committed(stage.first, "r", 5, 11, "REGRESSED")


def _answer_that_data_loss_overtook(stage: Stage) -> None:
    stage.commit(1, 5, 10)
    stage.world.watch.data_lost(-1)
    stage.let_pass(30_000)
    stage.world.committed(stage.first, "r", 5, 10, "OK")


def _s4_says_stored_of_what_was_lost(stage: Stage) -> None:
    _answer_that_data_loss_overtook(stage)
    stage.world.committed(stage.first, "r", 5, 10, "OK")


def _s4_releases_unfinished_work_as_finished(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.start(stage.first, 5)
    stage.entry("released", resource="r", member="p1.1", token=5)


def _s4_forgets_where_work_ended(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.world.watch.drained(stage.first, SimulatedTenure("r", 5, done=7))
    stage.entry("released", resource="r", member="p1.1", token=5, committed=6)


def _s4_keeps_without_commit(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.world.watch.drained(stage.first, SimulatedTenure("r", 5, done=7))
    stage.entry("graced", member="p1.1", reason="left")


def _s4_never_answers(stage: Stage) -> None:
    stage.first.tickets[1] = ("r", 5, 10)
    stage.world.watch.settled()


def _s6_gives_back_to_the_giver(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.entry("joined", member="p2.1")
    stage.held("r", "p1.1", 5)
    stage.entry("abandoned", resource="r", member="p1.1", token=5, reason="deadline")
    stage.entry("granted", resource="r", member="p1.1", token=6)


def _s6_grants_to_a_leaver(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.entry("leaving", member="p1.1")
    stage.held("r", "p1.1", 5)


def _s6_ends_an_instance_without_grace(stage: Stage) -> None:
    stage.world.settings = attrs.evolve(QUICKENED, rejoin_grace_ms=1_000)
    stage.world.start(instance="i")
    stage.entry("joined", member="p3.1")
    stage.entry("expired_member", member="p3.1", reason="expired")


def _s6_lets_an_heir_go_without(stage: Stage) -> None:
    stage.world.start(instance="i")
    stage.world.start(instance="i")
    for member in ("p3.1", "p4.1"):
        stage.entry("joined", member=member)
    stage.held("r", "p3.1", 5)
    stage.entry("left", member="p3.1", reason="inherited")


def _s6_ends_a_leave_too_early(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.held("r", "p1.1", 5)
    stage.entry("left", member="p1.1", reason="left")


def _s6_keeps_what_is_still_worked(stage: Stage) -> None:
    stage.first.work.begin("r", 5, None)
    stage.entry("graced", member="p1.1", reason="left")


def _s6_moves_while_recovering(stage: Stage) -> None:
    stage.world.watch.data_lost(-1)
    stage.entry("incarnation", reason="recovering")
    stage.held("r", "p1.1", 5)


def _s6_moves_before_a_loss_is_noticed(stage: Stage) -> None:
    stage.world.watch.data_lost(-1)
    stage.held("r", "p1.1", 5)


def _s6_deals_behind_a_barrier(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.held("r", "p1.1", 5)
    stage.entry("barrier")
    stage.held("q", "p1.1", 6)


def _s6_takes_an_older_list(stage: Stage) -> None:
    for number, version in ((1, 2), (2, 1)):
        request = Request(Header("p1.1", number), SetResources(version=version, digest="-"))
        stage.world.watch.executed(stage.first, request, CoordinatorReply(status="OK", results=("DONE",)))


def _s6_says_nothing_of_a_cancellation(stage: Stage) -> None:
    stage.entry("joined", member=stage.first.session.member)
    stage.world.clock.run(10)
    stage.first.work.begin("r", 5, None)
    stage.first.habits = STUCK
    stage.held("r", stage.first.session.member, 5)
    stage.world.watch.asked_back(stage.first, act.Drain("r", 5, 0))
    stage.first.work.drain("r", 5, 0)
    stage.let_pass(8_000)


def _s6_begins_while_leaving(stage: Stage) -> None:
    stage.world.clock.run(10)
    stage.first.deliver(StopAsked())
    stage.start(stage.first, 5)


def _s6_goes_on_while_leaving(stage: Stage) -> None:
    stage.world.clock.run(10)
    stage.first.deliver(StopAsked())
    stage.world.watch.kept(stage.first, act.Keep("r", 5))


def _s6_says_nothing_of_a_better_claim(stage: Stage) -> None:
    process = stage.first
    stage.held("r", "p1.1", 5)
    process.session.holdings.hold(Change("hold", "r", 5))
    stage.entry("claimed", resource="r", member="p2.1", token=6)
    stage.let_pass(20_000)


PLANTED: list[tuple[type[Check], Callable[[Stage], None]]] = [
    (S4Told, _s4_says_stored_of_what_is_not),
    (S4Told, _s4_says_fenced_of_what_is_stored),
    (S4Told, _s4_says_regressed_of_what_is_ahead),
    (S4Told, _s4_says_stored_of_what_was_lost),
    (S4Told, _s4_releases_unfinished_work_as_finished),
    (S4Told, _s4_forgets_where_work_ended),
    (S4Told, _s4_keeps_without_commit),
    (S4Told, _s4_never_answers),
    (S6Returns, _s6_gives_back_to_the_giver),
    (S6Returns, _s6_grants_to_a_leaver),
    (S6Returns, _s6_ends_an_instance_without_grace),
    (S6Returns, _s6_lets_an_heir_go_without),
    (S6Returns, _s6_ends_a_leave_too_early),
    (S6Returns, _s6_keeps_what_is_still_worked),
    (S6Returns, _s6_moves_while_recovering),
    (S6Returns, _s6_moves_before_a_loss_is_noticed),
    (S6Returns, _s6_deals_behind_a_barrier),
    (S6Returns, _s6_takes_an_older_list),
    (S6Returns, _s6_says_nothing_of_a_cancellation),
    (S6Returns, _s6_begins_while_leaving),
    (S6Returns, _s6_goes_on_while_leaving),
    (S6Returns, _s6_says_nothing_of_a_better_claim),
]


@pytest.mark.parametrize(("check", "plant"), PLANTED, ids=[plant.__name__[1:] for _, plant in PLANTED])
def test_a_planted_violation_is_seen(check: type[Check], plant: Callable[[Stage], None]) -> None:
    """The checker of that promise objects."""
    stage = Stage(check)
    with pytest.raises(Violation) as caught:
        plant(stage)
    assert caught.value.promise == check.promise


def test_an_answer_that_was_on_the_way_when_data_was_lost_breaks_nothing() -> None:
    """A frozen member reads it long after: it was true when it was given."""
    _answer_that_data_loss_overtook(Stage(S4Told))
