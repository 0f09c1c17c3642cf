"""Kafka Connect's incremental cooperative assignor: 22 tests."""

from __future__ import annotations

from proof.peers.row import PeerList, row

LOST = "tests/coordinator/test_lost_assignments.py::test_"
FEED = "tests/coordinator/test_feed.py::test_"
CALLS = "tests/member/test_session_calls.py::test_"

ROWS = (
    row(
        1, "testTaskAssignmentWhenWorkerJoins", "10 at one: 5 asked back, then 5 granted, then nothing",
        LOST + "a_join_asks_back_then_hands_over_then_rests",
    ),
    row(
        2, "testAssignmentsWhenWorkersJoinAfterRevocations",
        "a third and a fourth join after each round, or between its halves: even, the fewest moves, at rest",
        LOST + "more_join_after_each_round",
        LOST + "more_join_between_the_asking_and_the_handing_over",
    ),
    row(
        3, "testImmediateRevocationsWhenMaxDelayIs0", "without gathering each of three joins in one instant acts in its own call",
        LOST + "without_gathering_every_join_acts_at_once",
    ),
    row(
        4, "testWorkerJoiningDuringDelayedRebalance",
        "a newcomer has its share at once, the lost one's share stays for it until its grace ends (Connect makes the newcomer wait)",
        LOST + "newcomers_during_the_delay_share_what_was_lost",
        LOST + "a_newcomer_during_the_delay_then_the_lost_one_returns",
    ),
    row(
        5, "testTaskAssignmentWhenWorkerLeavesPermanently", "held to the last second of the grace, then shared; survivors keep what they have",
        LOST + "who_leaves_permanently_is_awaited_and_then_replaced",
    ),
    row(
        6, "testTaskAssignmentWhenWorkerBounces", "back within the grace it finds what it had; nobody else noticed",
        LOST + "who_bounces_finds_what_it_had",
        "tests/coordinator/test_leave.py::test_a_rolling_restart_moves_nothing",
    ),
    row(
        7, "testTaskAssignmentWhenLeaderLeavesPermanently", "another is elected, what the leader had is shared, nobody else moves",
        LOST + "when_the_coordinator_leaves_permanently_the_others_share",
        "tests/coordinator/test_modes.py::test_its_end_elects_another",
    ),
    row(
        8, "testTaskAssignmentWhenLeaderBounces", "its return is a join: the surplus only, in two rounds",
        LOST + "when_the_coordinator_bounces_it_comes_back_as_a_newcomer",
    ),
    row(
        9, "testTaskAssignmentWhenFirstAssignmentAttemptFails", "grants whose answer is lost are told again, and granted once",
        LOST + "the_first_assignment_whose_answer_is_lost_is_told_again",
        CALLS + "a_lost_reply_that_brought_a_grant_brings_it_again",
    ),
    row(
        10, "testTaskAssignmentWhenSubsequentAssignmentAttemptFails", "revocations whose answer is lost are told again, with the same deadline",
        LOST + "a_revocation_whose_answer_is_lost_is_told_again",
        FEED + "a_change_is_told_until_the_cursor_has_passed_it",
    ),
    row(
        11, "testTaskAssignmentWhenSubsequentAssignmentAttemptFailsOutsideTheAssignor",
        "the server is replaced after the surplus was chosen and before anybody heard: chosen again, 3 moves in all",
        LOST + "an_assignment_that_the_server_loses_is_made_again",
    ),
    row(
        12, "testTaskAssignmentWhenConnectorsAreDeleted", "5 of 15 go, and besides only what evenness needs",
        LOST + "when_connectors_are_deleted_only_they_go",
    ),
    row(13, "testAssignConnectorsWhenBalanced", "5 more on three: within one, nothing moves", LOST + "new_ones_are_spread_over_balanced_members"),
    row(
        14, "testAssignTasksWhenBalanced", "connectors and tasks together: within one, nothing moves",
        LOST + "two_kinds_are_spread_over_balanced_members",
    ),
    row(15, "testAssignConnectorsWhenImbalanced", "2, 3, 4, 0 and 15 more: 6 each, nothing moves", LOST + "new_ones_make_an_imbalanced_group_even"),
    row(
        16, "testLostAssignmentHandlingWhenWorkerBounces", "nothing is handed on during half of the grace; then it has just what it had",
        LOST + "who_bounces_finds_what_it_had",
    ),
    row(
        17, "testLostAssignmentHandlingWhenWorkerLeavesPermanently", "handed on after the grace and not before, to all the others",
        LOST + "who_leaves_permanently_is_awaited_and_then_replaced",
    ),
    row(
        18, "testLostAssignmentHandlingWithMoreThanOneCandidates",
        "two newcomers during the grace: both have their share, not only the first (as in Connect); all is even after it",
        LOST + "newcomers_during_the_delay_share_what_was_lost",
    ),
    row(
        19, "testLostAssignmentHandlingWhenWorkerBouncesBackButFinallyLeaves",
        "awaited again if it crashed, replaced at once if it left for good",
        LOST + "who_bounces_back_and_finally_leaves",
    ),
    row(
        20, "testLostAssignmentHandlingWhenScheduledDelayIsDisabled", "grace 0: shared when the session is over",
        LOST + "without_a_delay_what_was_lost_is_shared_at_once",
    ),
    row(
        21, "testTaskAssignmentWhenTasksDuplicatedInWorkerAssignment",
        "two claim the same: the later tenure has it, nobody works it twice (Connect takes it from both), then 5 each",
        LOST + "what_two_claim_stays_with_the_later_tenure",
        LOST + "a_duplicate_claim_after_the_recovery_is_refused",
    ),
    row(
        22, "testDuplicatedAssignmentHandleWhenTheDuplicatedAssignmentsDeleted",
        "two claim what the list has dropped: it ends at its holder and is granted to nobody",
        LOST + "what_two_claim_and_the_list_has_dropped_goes",
    ),
)  # fmt: skip

LISTS = (
    PeerList(
        "Kafka Connect: incremental cooperative assignor",
        "IncrementalCooperativeAssignorTest",
        22,
        ROWS,
    ),
)
