"""Rebalanser's 31 ZooKeeper tests, its randomised monitor and its sequence verifier."""

from __future__ import annotations

from proof.peers.row import PeerList, PeerTest, cannot_apply, row

SCALING = "tests/group/test_scaling.py::test_"
RANDOMISED = "tests/sims/test_randomised.py::test_a_randomised_run_keeps_every_promise"
MONITOR = "tests/coordinator/test_claim_monitor.py::test_"
DEMO = "tests/cli/test_demo.py::test_"
CHECKS = "tests/sims/test_checks.py::test_a_planted_violation_is_seen"

ONE_BY_ONE = (
    "GivenMultipleResourcesAndThreeClientsAtStartWithClientsStoppingOneByOne_ThenResourceAssignmentsReassignedAccordingly",
    "GivenMultipleResourcesAndOneClientAtStartWithNewClientsStartingOneByOne_ThenResourceAssignmentsReassignedAccordingly",
)
EAGER_PAUSES = (
    "This does not hold here, on purpose: eager mode is the baseline in which every change stops everything, and a change that "
    "needs no move is what cooperative mode leaves alone (rows 9 and 11). That it pauses once, deals again and rests is checked by "
    "tests/group/test_scaling.py::test_eager_mode_stops_even_for_a_member_without_work."
)

CLIENTS = (
    row(
        1, "ResourceBarrier_GivenSingleClient_ThenGetsAllResourcesAssigned",
        "one callback with all five, in one instant, and nothing else as long as nothing changes",
        SCALING + "a_single_member_is_given_all_five_at_once[cooperative]",
        "tests/group/test_group_scaling.py::test_a_single_member_is_assigned_all_five_in_one_callback",
    ),
    row(
        2, "GlobalBarrier_GivenSingleClient_ThenGetsAllResourcesAssigned",
        "the same in eager mode",
        SCALING + "a_single_member_is_given_all_five_at_once[eager]",
        "tests/group/test_group_scaling.py::test_a_single_member_is_assigned_all_five_in_one_callback",
    ),
    row(
        3, "ResourceBarrier_GivenSixResourcesAndThreeClients_ThenEachClientGetsTwoResources",
        "two each, none twice",
        SCALING + "three_members_share_six[cooperative]",
    ),
    row(
        4, "GlobalBarrier_GivenSixResourcesAndThreeClients_ThenEachClientGetsTwoResources",
        "two each, none twice, in eager mode",
        SCALING + "three_members_share_six[eager]",
    ),
    row(
        5, f"ResourceBarrier_{ONE_BY_ONE[0]}",
        "2/2/2, 3/3, 6; each member that stays begins with just what was left and is asked for nothing (Rebalanser stops it)",
        SCALING + "members_that_stop_one_by_one_hand_over_and_disturb_nobody",
    ),
    row(
        6, f"GlobalBarrier_{ONE_BY_ONE[0]}",
        "2/2/2, 3/3, 6; everybody finishes everything, then begins; who has stopped hears nothing more",
        SCALING + "members_that_stop_one_by_one_stop_all_in_eager_mode",
    ),
    row(
        7, f"ResourceBarrier_{ONE_BY_ONE[1]}",
        "6, 3/3, 2/2/2; who is there finishes its surplus and nothing else, who comes begins with just that",
        SCALING + "members_that_start_one_by_one_take_the_surplus_only",
    ),
    row(
        8, f"GlobalBarrier_{ONE_BY_ONE[1]}",
        "6, 3/3, 2/2/2; everything is finished, then all is dealt again",
        SCALING + "members_that_start_one_by_one_stop_all_in_eager_mode",
    ),
    row(
        9, "ResourceBarrier_GivenOneResourceAndOneClient_ThenAdditionalClientsDoNotTriggerRebalancing",
        "two more join and one of them leaves: nobody is told anything",
        SCALING + "members_without_work_come_and_go_unnoticed",
    ),
    cannot_apply(10, "GlobalBarrier_GivenOneResourceAndOneClient_ThenAdditionalClientsDoNotTriggerRebalancing", EAGER_PAUSES),
    row(
        11, "ResourceBarrier_GivenTwoResourcesAndThreeClients_ThenRemovingUnassignedClientDoesNotTriggerRebalancing",
        "the third comes and goes: nobody is told anything",
        SCALING + "a_member_without_work_that_goes_is_not_missed",
    ),
    cannot_apply(
        12, "GlobalBarrier_GivenTwoResourcesAndThreeClients_ThenRemovingUnassignedClientDoesNotTriggerRebalancing", EAGER_PAUSES
    ),
    row(
        13, "ResourceBarrier_GivenTwoResourcesAndThreeClients_ThenRemovingAssignedClientDoesTriggerRebalancing",
        "the third begins with what was left, and the other one that works is told nothing",
        SCALING + "a_member_with_work_that_goes_is_replaced_by_the_one_without",
    ),
    row(
        14, "GlobalBarrier_GivenTwoResourcesAndThreeClients_ThenRemovingAssignedClientDoesTriggerRebalancing",
        "one each for the two that are left",
        SCALING + "a_member_with_work_that_goes_is_replaced_in_eager_mode",
    ),
)  # fmt: skip

FULL = "never two at one resource; after each interval everything is assigned, and even; with kills and freezes, which it has not"
CONDITIONAL = (
    "never two at one resource while changes follow each other; two minutes after every fifth everything is even"
)
DOUBLE = "never two at one resource, with changes every five seconds"
DELAY = (
    "the same, with messages: nothing needs to be delayed, since the broker's guard refuses a successor while the dead one's "
    "connection is there, and no message comes out of order"
)
_RANDOMISED = (
    ("ResourceBarrier_RandomisedTest_LongInterval_LowClient_LowResource_FullCheck", "cooperative-low", FULL),
    ("GlobalBarrier_RandomisedTest_LongInterval_LowClient_LowResource_FullCheck", "eager-low", FULL),
    ("ResourceBarrier_RandomisedTest_LongInterval_MediumClient_LowResource_FullCheck", "cooperative-medium-low", FULL),
    ("GlobalBarrier_RandomisedTest_LongInterval_MediumClient_LowResource_FullCheck", "eager-medium-low", FULL),
    ("ResourceBarrier_RandomisedTest_LongInterval_MediumClient_MediumResource_FullCheck", "cooperative-medium", FULL),
    ("GlobalBarrier_RandomisedTest_LongInterval_MediumClient_MediumResource_FullCheck", "eager-medium", FULL),
    ("ResourceBarrier_RandomisedReleaseBarrierTest_LongInterval_LargeClient_LargeResource_FullCheck", "cooperative-large", FULL),
    ("GlobalBarrier_RandomisedTest_LongInterval_LargeClient_LargeResource_FullCheck", "eager-large", FULL),
    ("GlobalBarrier_RandomisedTest_LongInterval_VeryLargeClient_VeryLargeResource_FullCheck", "eager-very-large", FULL),
    ("ResourceBarrier_RandomisedTest_LongInterval_SmallClient_LargeResource_FullCheck", "cooperative-small-large", FULL),
    ("GlobalBarrier_RandomisedTest_LongInterval_SmallClient_LargeResource_FullCheck", "eager-small-large", FULL),
    (
        "ResourceBarrier_RandomisedTest_ShortRandomInterval_MediumClient_MediumResource_ConditionalCheck",
        "cooperative-short", CONDITIONAL,
    ),
    (
        "GlobalBarrier_RandomisedTest_ShortRandomInterval_MediumClient_MediumResource_ConditionalCheck",
        "eager-short", CONDITIONAL,
    ),
    (
        "ResourceBarrier_RandomisedTest_ShortRandomInterval_MediumClient_MediumResource_OnAssignmentDelay_ConditionalCheck",
        "cooperative-delayed", DELAY,
    ),
    (
        "GlobalBarrier_RandomisedTest_ShortRandomInterval_MediumClient_MediumResource_OnAssignmentDelay_ConditionalCheck",
        "eager-delayed", DELAY,
    ),
    ("ResourceBarrier_RandomisedTest_ShortInterval_LowClient_LowResource_DoubleAssignmentCheck", "cooperative-double", DOUBLE),
    (
        "ResourceBarrier_RandomisedTest_ShortInterval_LowClient_LowResource_EventHandlerWait_DoubleAssignmentCheck",
        "cooperative-waiting", f"{DOUBLE} and handlers that take up to twenty to let go",
    ),
)  # fmt: skip

WATCHERS = (
    row(
        32, "ResourceMonitor: ClaimViolation, ReleaseViolation",
        "real members in threads, starting and stopping at random while the list changes, tell a monitor what they begin and end; "
        "the monitor is shown to see both violations; in virtual time S2 looks at every step",
        MONITOR + "no_two_real_members_ever_work_on_one_resource",
        MONITOR + "the_monitor_sees_both_violations",
        "tests/member/test_session_churn.py::test_any_churn_ends_in_an_even_group",
        f"{CHECKS}[s2_has_two_at_work]",
    ),
    row(
        33, "verify-output-seq: JUMP FORWARDS, JUMP BACKWARDS, DUPLICATE",
        "per-key counters through a real RabbitMQ, with joins, a leave and a SIGKILL: the verdict is asserted, and each anomaly "
        "is shown to be found; in virtual time M1 looks at every message of every story",
        DEMO + "the_demo_holds_its_promises",
        DEMO + "a_lost_message_is_found",
        DEMO + "a_reordered_message_is_found",
        DEMO + "a_duplicate_without_the_kill_is_found",
        f"{CHECKS}[m1_skips]",
        f"{CHECKS}[m1_reorders]",
        f"{CHECKS}[m1_repeats_what_was_acknowledged]",
        f"{CHECKS}[m1_loses]",
        "tests/proof/test_stories.py::test_a_campaign_keeps_every_promise_and_reaches_every_trouble",
    ),
)  # fmt: skip


def _randomised() -> tuple[PeerTest, ...]:
    return tuple(
        row(number, name, shows, f"{RANDOMISED}[{run}]")
        for number, (name, run, shows) in enumerate(_RANDOMISED, start=15)
    )


LISTS = (
    PeerList(
        "Rebalanser: clients, randomised runs, and what watches them",
        "Rebalanser.ZooKeeper.Tests at a534dc4, and its chaos tests; of each randomised run a quarter of the changes is told, all of "
        "them with COBALANCE_SHARE=1",
        33,
        (*CLIENTS, *_randomised(), *WATCHERS),
    ),
)
