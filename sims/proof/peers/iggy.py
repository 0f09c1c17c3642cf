"""Apache Iggy's 33 integration scenarios of cooperative reassignment, strengthened."""

from __future__ import annotations

from proof.peers.row import PeerList, row

DRAINS = "tests/coordinator/test_drains.py::test_"
GROWTH = "tests/coordinator/test_growth.py::test_"
IN_FLIGHT = "tests/coordinator/test_rebalance_in_flight.py::test_"
RETURNS = "tests/coordinator/test_returns.py::test_"
CASES = "tests/coordinator/test_iggy_cases.py::test_"
REVOCATIONS = "tests/coordinator/test_revocations.py::test_"
REQUESTS = "tests/coordinator/test_requests.py::test_"
GROUP = "tests/group/test_group_scaling.py::test_"
REJOIN = "tests/member/test_session_rejoin.py::test_"
PARTITION = "tests/rabbitmq/partition/test_partition.py::test_"

ROWS = (
    row(
        1, "should_not_duplicate_partition_assignments_after_stale_client_cleanup",
        "three silent members leave nobody on record and nothing owned; three new ones have two each, under higher tokens; "
        "nothing is handed out again but what was not committed",
        RETURNS + "silent_members_are_gone_and_their_successors_share_anew",
    ),
    row(
        2, "should_not_reshuffle_partitions_when_new_member_joins",
        "the owner of a single one hears nothing, nobody is emptied, exactly one moves",
        DRAINS + "a_newcomer_leaves_the_owner_of_a_single_one_alone",
    ),
    row(
        3, "should_skip_revoked_partitions_in_round_robin",
        "the owner hands out what it keeps, all of it; nobody else has anything of what is asked back before its release, and the "
        "newcomer goes on where the owner stopped",
        DRAINS + "what_is_asked_back_hands_out_nothing_more",
    ),
    row(
        4, "should_not_lose_messages_with_concurrent_polls_during_partition_add",
        "polled through every page of the growth, each message is handed out exactly once (Iggy does not count them)",
        GROWTH + "growing_under_polls_loses_no_message",
        GROWTH + "growing_page_by_page_under_polls_loses_no_message",
    ),
    row(
        5, "should_handle_partition_add_then_consumer_disconnect_then_new_join",
        "the survivor has 6 and keeps its tenures; the newcomer takes 3, and 3 move in all",
        GROWTH + "the_survivor_has_all_and_a_newcomer_takes_half",
    ),
    row(
        6, "should_handle_partition_delete_while_multiple_consumers_polling",
        "6 become 3, whichever three: one each, the fewest moves, no message twice",
        GROWTH + "shrinking_under_polls_keeps_one_each",
    ),
    row(
        7, "should_reach_even_distribution_after_multiple_joins",
        "6 resources, 1 to 6 members, all at work: even after each join, the fewest moves at each",
        IN_FLIGHT + "six_resources_spread_over_members_that_come_one_by_one",
    ),
    row(
        8, "should_split_evenly_when_consumer_joins_after_partitions_added",
        "3 and 3, three moves, the newcomer goes on behind what was committed",
        GROWTH + "who_comes_after_the_growth_takes_its_share",
    ),
    row(
        9, "should_not_duplicate_messages_when_partitions_added_during_polling",
        "uncommitted polls go on under their tenures; nothing is handed out twice",
        GROWTH + "growing_under_polls_loses_no_message",
        GROWTH + "shrinking_and_growing_back_in_one_drain_moves_nothing",
    ),
    row(
        10, "should_handle_delete_partitions_with_uncommitted_work",
        "uncommitted work on a deleted resource is finished and committed before it goes; a release before that is refused",
        GROWTH + "work_in_hand_on_a_deleted_resource_is_committed_before_it_goes",
    ),
    row(
        11, "should_handle_rapid_partition_changes_with_active_consumers",
        "3, 6, 9 and a join before anybody has drained: 3 each, every message once",
        GROWTH + "three_six_nine_and_a_join",
    ),
    row(
        12, "should_rebalance_after_adding_partitions",
        "3 become 6 on three members: 2 each, nothing moves",
        GROWTH + "growing_under_polls_loses_no_message[luajit21-abc]",
        GROWTH + "growing_under_polls_loses_no_message[redis-abc]",
    ),
    row(
        13, "should_rebalance_after_deleting_partitions",
        "6 become 3 on three members: one each, and only those move that must",
        GROWTH + "shrinking_under_polls_keeps_one_each",
    ),
    row(
        14, "should_handle_partition_add_during_pending_revocation",
        "3 each, with one move: what need not be moved any more is called off",
        GROWTH + "growing_while_a_revocation_is_pending",
    ),
    row(
        15, "should_timeout_revocation",
        "nothing a millisecond before the deadline, all of it then; the late owner's commits are fenced, its other tenures stay",
        DRAINS + "an_unfinished_drain_ends_at_the_deadline_and_not_before",
        REVOCATIONS + "after_a_force_commit_and_release_are_fenced",
    ),
    row(
        16, "should_not_duplicate_after_reconnect_without_heartbeat",
        "evicted for its silence, it comes back as another: each message goes to one of three, its former tokens are void",
        RETURNS + "one_evicted_for_silence_comes_back_as_another",
        REJOIN + "a_member_whose_session_ended_starts_anew_with_nothing",
    ),
    row(
        17, "should_not_duplicate_partition_assignments_after_client_reconnect",
        "a broken connection within the session moves nothing; a process that forgot everything shares like a newcomer",
        RETURNS + "one_that_lost_its_connection_comes_back_as_itself",
        RETURNS + "one_that_lost_its_connection_and_its_memory_shares_like_a_newcomer",
    ),
    row(
        18, "should_not_return_same_message_to_two_consumers_during_rebalance",
        "a message in hand is never handed to the newcomer, which goes on behind it after the commit",
        DRAINS + "a_message_in_hand_is_never_handed_to_the_newcomer",
        PARTITION + "planned_handovers_under_load_keep_order",
    ),
    row(
        19, "should_complete_revocation_on_auto_commit",
        "with nothing unfinished the newcomer has its share before any time passes; a stored offset alone does not end a drain "
        "while work goes on (in Iggy it does)",
        DRAINS + "committing_is_letting_go_at_once",
        DRAINS + "a_stored_offset_does_not_end_a_drain_while_work_goes_on",
    ),
    row(
        20, "should_transfer_never_polled_partitions_immediately",
        "what nobody was told of moves within the join; what is held idle, without any time passing",
        DRAINS + "what_nobody_has_begun_moves_within_the_join",
        DRAINS + "what_is_held_idle_moves_without_any_time_passing",
    ),
    row(
        21, "should_rebalance_when_member_with_pending_revocation_leaves",
        "the target has all of it and polls all of it, whether the owner leaves or crashes; a leave repeats nothing",
        DRAINS + "when_the_owner_goes_in_its_drain_the_target_has_all",
    ),
    row(
        22, "should_not_produce_duplicate_messages_with_sequential_consumer_joins",
        "exactly fifteen deliveries, all different",
        DRAINS + "joins_one_after_the_other_hand_out_fifteen_messages",
    ),
    row(
        23, "should_wait_for_manual_commit_before_completing_revocation",
        "each resource goes with its own commit, not before, and not with another's",
        DRAINS + "each_one_waits_for_its_own_commit",
    ),
    row(
        24, "should_redistribute_when_revocation_target_leaves",
        "the owner keeps all under the same tokens, whether the target leaves or crashes, and nothing is forced later",
        DRAINS + "when_the_target_goes_the_owner_keeps_all",
    ),
    row(
        25, "should_distribute_partitions_evenly_with_concurrent_joins",
        "six real members that enter at once have one each, on asyncio and trio, in memory and on Redis; never two at one",
        GROUP + "six_that_enter_at_once_have_one_each",
    ),
    row(
        26, "should_not_assign_partition_to_wrong_member_after_slab_reuse",
        "what stays asked back after its target has left goes to the living, with its deadline unchanged; the id that left is spent "
        "for good, late joins under it included (vacuous in Iggy)",
        DRAINS + "a_target_that_left_is_replaced_and_never_confused",
        REQUESTS + "a_late_join_makes_no_ghost",
    ),
    row(
        27, "should_not_complete_other_members_revocations_on_leave",
        "two owners' drains go on while a fourth member leaves; nothing is redelivered (Iggy allows it)",
        DRAINS + "a_leave_finishes_nobody_elses_drain",
    ),
    row(
        28, "should_distribute_16_partitions_evenly_across_16_consumers",
        "one owner, all 16 in flight, 15 join before anything is committed: one each, 15 moves, every message once",
        IN_FLIGHT + "joins_while_everything_is_in_flight[luajit21-16-1-16]",
        IN_FLIGHT + "joins_while_everything_is_in_flight[redis-16-1-16]",
    ),
    row(
        29, "should_distribute_excess_evenly_when_multiple_idle_members_join",
        "12 on 4, everything in flight: 3 each, 9 moves; and with the joins in the middle of each other's drains",
        IN_FLIGHT + "joins_while_everything_is_in_flight[luajit21-12-1-4]",
        IN_FLIGHT + "joins_while_everything_is_in_flight[redis-12-1-4]",
        CASES + "joins_during_a_drain_end_even",
        CASES + "the_same_with_the_last_member_dealt_in_the_middle",
    ),
    row(
        30, "should_distribute_remainder_fairly_with_uneven_ratio",
        "10 on 4, everything in flight: within one, 7 moves",
        IN_FLIGHT + "joins_while_everything_is_in_flight[luajit21-10-1-4]",
        IN_FLIGHT + "joins_while_everything_is_in_flight[redis-10-1-4]",
    ),
    row(
        31, "should_collect_excess_from_multiple_overassigned_members",
        "16 on 2, then 8, everything in flight: 2 each, 12 moves, taken from both",
        IN_FLIGHT + "joins_while_everything_is_in_flight[luajit21-16-2-8]",
        IN_FLIGHT + "joins_while_everything_is_in_flight[redis-16-2-8]",
    ),
    row(
        32, "should_not_starve_any_member_in_large_scale_rebalance",
        "24 on 8, everything in flight: 3 each (Iggy's ends with members that have one)",
        IN_FLIGHT + "joins_while_everything_is_in_flight[luajit21-24-1-8]",
        IN_FLIGHT + "joins_while_everything_is_in_flight[redis-24-1-8]",
    ),
    row(
        33, "should_maintain_balance_after_member_churn",
        "16 on 4, 2, 4, at work throughout: survivors' tenures go on, even each time; and any churn in one drain ends even",
        IN_FLIGHT + "four_become_two_become_four",
        IN_FLIGHT + "joins_leaves_and_crashes_one_after_the_other_in_one_drain",
        CASES + "a_leave_moves_no_survivors_resource",
    ),
)  # fmt: skip

BEYOND = (
    row(
        1, "late commit after a forced move", "fenced, whatever the order in which the late owner hears",
        REVOCATIONS + "after_a_force_commit_and_release_are_fenced",
        "tests/member/test_session_revocation.py::test_what_was_lost_is_not_given_back",
    ),
    row(
        2, "A → B → A", "a late commit of the first tenure says nothing about the third",
        CASES + "a_late_commit_of_the_old_owner_says_nothing_about_the_new_one",
    ),
    row(
        3, "restart of the coordinator in the middle of a revocation",
        "tenures and offsets come back with the claims, nobody is forced by a deadline from before",
        "tests/coordinator/test_recovery.py::test_nobody_is_forced_or_called_in_circles",
        "tests/coordinator/test_recovery.py::test_a_deadline_from_before_is_armed_anew",
    ),
    row(
        4, "join storm during a drain", "forty joins within two seconds, half of them gone again: every promise, then even",
        "tests/proof/test_stories.py::test_a_campaign_keeps_every_promise_and_reaches_every_trouble",
        REVOCATIONS + "joins_leaves_and_expiries_during_a_drain_never_leave_it_uneven",
    ),
    row(
        5, "leave with survivors in flight", "the survivors' work goes on under the same tokens",
        IN_FLIGHT + "four_become_two_become_four",
    ),
    row(
        6, "a randomised model test", "any history against an oracle that tries every possibility",
        "tests/coordinator/test_assignment_properties.py::test_every_history_ends_even_with_the_fewest_moves",
    ),
)  # fmt: skip

LISTS = (
    PeerList(
        "Apache Iggy: cooperative reassignment", "verify_consumer_group_partition_assignment.rs at cc269ef70", 33, ROWS
    ),
    PeerList("What Iggy's list does not look for", "what its scenarios leave open", 6, BEYOND),
)
