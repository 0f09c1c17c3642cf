"""Kafka's members on the way to their shares: CurrentAssignmentBuilderTest, and tests of its groups."""

from __future__ import annotations

from proof.peers.row import PeerList, cannot_apply, row

RECONCILIATION = "tests/coordinator/test_reconciliation.py::test_"
LISTED = "tests/coordinator/test_resource_list.py::test_"
REVOCATIONS = "tests/coordinator/test_revocations.py::test_"
REQUESTS = "tests/coordinator/test_requests.py::test_"
LEAVE = "tests/coordinator/test_leave.py::test_"

NO_REGEX = (
    "Members declare names; nothing subscribes by a pattern. A member that discovers resources declares "
    "a new version of the list, which is row 2 where it grows and row 17 where it shrinks."
)

BUILDER = (
    row(1, "testStableToStable", "others come, its share stays: the version rises, nothing is told, the tenures go on", RECONCILIATION + "stable_stays_stable_when_others_change"),
    row(2, "testStableToStableWithNewPartitions", "what is free is there with the next reply", RECONCILIATION + "stable_is_granted_what_is_free_with_its_next_reply"),
    row(
        3, "testStableToUnrevokedPartitions", "asked for its surplus; it stays the owner on record until it lets go",
        RECONCILIATION + "stable_is_asked_for_its_surplus",
        REVOCATIONS + "a_held_resource_is_handed_over_only_when_released",
    ),
    row(
        4, "testStableToUnreleasedPartitions", "what is free is granted, what is owned is awaited",
        RECONCILIATION + "a_newcomer_waits_for_what_is_owned_and_has_what_is_free",
    ),
    row(
        5, "testStableToUnreleasedPartitionsWithOwnedPartitionsNotHavingRevokedPartitions",
        "what it gave back unasked it is not asked for; it waits at once",
        RECONCILIATION + "what_was_given_back_unasked_is_not_asked_for",
    ),
    row(6, "testUnrevokedPartitionsToStable", "all let go: nothing pending, nothing more is told", RECONCILIATION + "letting_go_of_all_makes_stable"),
    row(
        7, "testRemainsInUnrevokedPartitions", "none or some let go, and many heartbeats: the rest stays asked back, with the same deadline",
        RECONCILIATION + "letting_go_of_some_leaves_the_rest_asked_back",
    ),
    row(
        8, "testUnrevokedPartitionsToUnrevokedPartitions", "the first surplus is let go when there is a second one: that is asked for",
        RECONCILIATION + "letting_go_meets_the_next_asking",
    ),
    row(
        9, "testUnrevokedPartitionsToUnreleasedPartitions", "having let go, its share grows: it waits for others and keeps what it has",
        RECONCILIATION + "after_letting_go_it_may_have_to_wait_itself",
    ),
    row(
        10, "testUnrevokedPartitionsToStableWithReturnedPartitionsPendingRevocation",
        "what is pending and its share again goes on under its token (KAFKA-19449), and what is free is granted beside it",
        RECONCILIATION + "what_is_its_share_again_is_not_asked_back_any_more",
        REVOCATIONS + "what_is_no_longer_surplus_is_cancelled",
    ),
    row(11, "testUnreleasedPartitionsToStable", "nothing is left to wait for", RECONCILIATION + "waiting_ends_when_there_is_nothing_more_to_wait_for"),
    row(12, "testUnreleasedPartitionsToStableWithNewPartitions", "there with the reply after the release, under higher tokens", RECONCILIATION + "waiting_ends_with_the_release"),
    row(13, "testUnreleasedPartitionsToUnreleasedPartitions", "heartbeats bring nothing while nothing is released", RECONCILIATION + "waiting_goes_on_while_nothing_is_released"),
    row(14, "testUnreleasedPartitionsToUnrevokedPartitions", "one that waits is itself asked for what has become too much", RECONCILIATION + "one_that_waits_may_be_asked_itself"),
    row(
        15, "testUnknownState", "a member the record knows nothing of is told so, starts over with nothing, and is served",
        REQUESTS + "a_stranger_is_unknown",
        REQUESTS + "a_group_that_is_not_there",
        "tests/member/test_session_rejoin.py::test_an_unknown_member_starts_anew",
    ),
    row(
        16, "testStableToStableWithAssignmentTopicsNoLongerInSubscription", "what nobody works is off the list at once",
        LISTED + "removing_a_free_resource_removes_it_at_once",
        LISTED + "removing_what_was_granted_unheard_removes_it_at_once",
    ),
    row(
        17, "testStableToUnrevokedPartitionsWithAssignmentTopicsNoLongerInSubscription", "what is worked is asked back first",
        LISTED + "removing_a_held_resource_revokes_it_first",
    ),
    row(
        18, "testRemainsInUnrevokedPartitionsWithAssignmentTopicsNoLongerInSubscription",
        "part surplus, part off the list: all of it stays asked back until it is let go",
        RECONCILIATION + "being_asked_back_and_removed_is_asked_once",
    ),
    cannot_apply(19, "testSubscribedTopicNameAndUnresolvedRegularExpression", NO_REGEX),
    cannot_apply(20, "testUnresolvedRegularExpression", NO_REGEX),
    cannot_apply(21, "testSubscribedTopicNameAndResolvedRegularExpression", NO_REGEX),
)  # fmt: skip

GROUP = (
    row(
        1, "ReassignedBeforeBeingRevoked", "the target changes twice before the release: the last one has it, the others never had",
        RECONCILIATION + "a_target_changed_twice_before_the_release",
        REVOCATIONS + "the_target_is_bound_when_released",
        "tests/coordinator/test_drains.py::test_a_target_that_left_is_replaced_and_never_confused",
    ),
    row(
        2, "WaitingOnUnreleasedPartition", "it waits until, and only until, the holder lets go",
        RECONCILIATION + "waiting_goes_on_while_nothing_is_released",
        RECONCILIATION + "waiting_ends_with_the_release",
    ),
    row(
        3, "MemberEpochValidation",
        "a lower request number is stale, a repeat gets its answer, an ended member is told, a higher version than the group's is a "
        "loss, and each resource's token is checked by itself",
        REQUESTS + "a_lower_number_is_stale_and_changes_nothing",
        REQUESTS + "a_repeated_release_gets_the_same_answer",
        REQUESTS + "a_member_whose_session_ended_is_told_so",
        "tests/coordinator/test_recovery.py::test_a_lower_version_than_seen_starts_a_new_incarnation",
        "tests/coordinator/test_release.py::test_only_the_present_tenure_may_commit_or_release",
    ),
    row(4, "LeavingMemberBumpsEpoch", "the version rises, and those who stay get what was left", RECONCILIATION + "a_leave_raises_the_version"),
    row(
        5, "NoBumpWhenStaticTemporarilyLeaves", "nobody else is told anything, nothing is asked back",
        RECONCILIATION + "leaving_for_a_while_moves_and_tells_nothing",
    ),
    row(
        6, "StaticMemberGetsBackAssignment", "after a graceful restart and after a crash, with few and with many resources",
        LEAVE + "a_rolling_restart_moves_nothing",
        LEAVE + "what_comes_back_has_a_new_token",
    ),
    row(
        7, "SessionTimeoutLifecycle", "armed by the join, renewed by every accepted verb, gone with the leave",
        RECONCILIATION + "a_session_begins_with_the_join_and_ends_with_the_leave",
        REQUESTS + "every_accepted_verb_renews_the_session",
        REQUESTS + "every_repeat_renews_the_session",
    ),
    row(
        8, "SessionTimeoutExpiration", "to the millisecond; its resources are at work again within a heartbeat",
        RECONCILIATION + "a_session_renewed_at_the_last_moment_goes_on_for_a_whole_timeout",
        "tests/coordinator/test_clock.py::test_a_crash_is_healed_within_session_timeout_plus_a_heartbeat",
    ),
    row(
        9, "RebalanceTimeoutLifecycle", "armed by the reply that tells the holder, once, and gone with every end of the revocation",
        RECONCILIATION + "a_revocations_deadline_is_armed_when_told_and_gone_when_over",
        REVOCATIONS + "a_deadline_runs_from_the_reply_that_carried_it",
        REVOCATIONS + "a_deadline_is_armed_once",
    ),
    row(
        10, "RebalanceTimeoutExpiration", "takes that resource and never the member (Kafka fences the member); its late commits are fenced",
        REVOCATIONS + "at_the_deadline_it_moves_by_force_and_only_that",
        REVOCATIONS + "after_a_force_commit_and_release_are_fenced",
    ),
    row(
        11, "FullResponse", "after its claims a member knows exactly what is on record for it; a change is told until it is confirmed",
        RECONCILIATION + "who_comes_back_with_its_claims_knows_everything",
        "tests/coordinator/test_feed.py::test_a_change_is_told_until_the_cursor_has_passed_it",
    ),
    row(
        12, "ReplaceStaticMember", "one of two with an instance id is refused while the other lives, and inherits when it is gone",
        LEAVE + "a_second_live_process_with_the_same_instance_id_is_refused",
        "tests/member/test_session_leave.py::test_a_crash_of_a_static_member_is_waited_for_as_well",
    ),
)  # fmt: skip

LISTS = (
    PeerList("Kafka: current assignment", "CurrentAssignmentBuilderTest at 02e1643", 21, BUILDER),
    PeerList("Kafka: group state", "ConsumerGroupTest and GroupMetadataManagerTest", 12, GROUP),
)
