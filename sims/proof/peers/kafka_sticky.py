"""Kafka's sticky assignor: the 40 tests of AbstractStickyAssignorTest, and three more."""

from __future__ import annotations

from proof.peers.row import PeerList, cannot_apply, row

STICKY = "tests/coordinator/test_sticky.py::test_"
QUOTAS = "tests/coordinator/test_quotas.py::test_"
SUBSCRIPTIONS = "tests/coordinator/test_subscriptions.py::test_"
LARGE = "tests/coordinator/test_large_groups.py::test_"
CLAIMS = "tests/coordinator/test_claims.py::test_"
PROPERTIES = "tests/coordinator/test_assignment_properties.py::test_every_history_ends_even_with_the_fewest_moves"
ENGINES = ("luajit21", "redis")

NO_RACKS = "Resources and members have no racks: rack awareness is out of scope."


def rightful(case: str) -> tuple[str, ...]:
    """The test of claims, for one case, in both orders."""
    return tuple(
        f"{STICKY}what_is_rightly_owned_stays[{engine}-{order}-{case}]"
        for engine in ENGINES
        for order in ("in order", "the last first")
    )


def each(test: str, parameters: str) -> tuple[str, ...]:
    """One parameter of a test, in memory and on Redis."""
    return tuple(f"{STICKY}{test}[{engine}-{parameters}]" for engine in ENGINES)


ROWS = (
    row(
        1, "testMemberData",
        "what a member says it owns, and under which token and offset; other versions of the protocol are refused",
        "tests/member/test_session_rejoin.py::test_claims_carry_token_and_offset",
        "tests/coordinator/test_requests.py::test_another_protocol_is_refused_by_every_verb",
    ),
    row(2, "testOneConsumerNoTopic", "no list: a member with nothing", STICKY + "without_a_list_there_is_nothing_to_assign"),
    row(3, "testOneConsumerNonexistentTopic", "an empty list: a member with nothing", *each("one_member_has_whatever_there_is", "nothing")),
    row(4, "testOneConsumerOneTopic", "all three", *each("one_member_has_whatever_there_is", "a topic")),
    row(
        5, "testOnlyAssignsPartitionsFromSubscribedTopics", "claims of what is not on the list come to nothing",
        STICKY + "what_is_not_on_the_list_is_not_assigned_though_claimed",
    ),
    row(6, "testOneConsumerMultipleTopics", "all of both topics", *each("one_member_has_whatever_there_is", "two topics")),
    row(
        7, "testTwoConsumersOneTopicOnePartition", "one has it, the other nothing; the other takes over when the holder dies",
        *each("members_of_one_list_share_it", "1 of 2"),
        QUOTAS + "one_resource_and_many_members_is_active_and_standby",
    ),
    row(8, "testTwoConsumersOneTopicTwoPartitions", "one each", *each("members_of_one_list_share_it", "2 of 2")),
    row(
        9, "testMultipleConsumersMixedTopicSubscriptions", "each works only what it names, and those that can work the same share it evenly",
        SUBSCRIPTIONS + "nobody_is_given_what_its_code_does_not_name",
        SUBSCRIPTIONS + "those_who_can_share_evenly",
    ),
    row(10, "testTwoConsumersTwoTopicsSixPartitions", "three each", *each("members_of_one_list_share_it", "6 of 2")),
    row(
        11, "testConsumerOwningMinQuotaExpectedMaxQuota", "2 and 2 become 3 and 2, and nothing that is owned moves",
        *rightful("who owns its floor may get its ceil"),
    ),
    row(
        12, "testMaxQuotaConsumerMoreThanNumExpectedMaxCapacityMembers", "2, 2, 0 become within one by a single move",
        STICKY + "too_many_with_a_ceiling_lose_one",
    ),
    row(13, "testAllConsumersAreUnderMinQuota", "1, 1, 0 become 2, 2, 1, and nothing that is owned moves", *rightful("all below their floor")),
    row(14, "testAddRemoveConsumerOneTopic", "one move for the newcomer, none for the leaver's end", STICKY + "one_more_and_one_fewer"),
    row(15, "testAddRemoveTwoConsumersTwoTopics", "three moves for two newcomers, none when two leave", STICKY + "two_more_and_two_fewer"),
    row(
        16, "testPoorRoundRobinAssignmentScenario",
        "its eight partitions of five topics among four members, 2 each (its subscriptions differ, our list is one)",
        *each("members_of_one_list_share_it", "8 of 4"),
    ),
    row(17, "testAddRemoveTopicTwoConsumers", "growth moves nothing, shrinking only what must", STICKY + "a_topic_more_and_a_topic_fewer"),
    row(
        18, "testReassignmentAfterOneConsumerLeaves", "190 of 19: one in the middle leaves, and only its own move",
        *each("one_comes_and_one_goes", "190-19"),
    ),
    row(19, "testReassignmentAfterOneConsumerAdded", "20 of 9, then 10: the fewest moves", *each("one_comes_and_one_goes", "20-9")),
    row(
        20, "testSameSubscriptions", "14 topics, 105 partitions, 8 members, one leaves: even both times, and only its own move",
        *each("members_of_one_list_share_it", "105 of 8"),
        *each("one_comes_and_one_goes", "105-8"),
    ),
    row(
        21, "testLargeAssignmentAndGroupWithUniformSubscription",
        "with a fiftieth of its partitions and a tenth of its members (20,000 of 200): shared out, and again for one more and one fewer, with the fewest moves, and no "
        "call above its budget whatever the size; the time of a larger one on a Redis is a figure of `make bench`",
        LARGE + "twenty_thousand_resources_of_two_hundred_members",
        QUOTAS + "no_call_moves_more_than_it_may",
    ),
    row(
        22, "testLargeAssignmentAndGroupWithNonEqualSubscription", "901 resources of two different lists: 600 and 301, and no call above its budget",
        SUBSCRIPTIONS + "a_mixed_group_of_any_size_costs_a_call_little",
    ),
    row(
        23, "testAssignmentAndGroupWithNonEqualSubscriptionNotTimeout", "the same: a call's work is bounded, whatever the size",
        SUBSCRIPTIONS + "a_mixed_group_of_any_size_costs_a_call_little",
    ),
    row(
        24, "testSubscriptionNotEqualAndAssignSamePartitionWith3Generation",
        "one resource claimed by three, in all six orders of their ages: the youngest tenure has it, one or two each",
        STICKY + "three_claims_of_three_ages_make_one_owner",
    ),
    row(
        25, "testLargeAssignmentWithMultipleConsumersLeavingAndRandomSubscription",
        "200 members, 50 of them gone at once: the others keep what they have, and are even (of one list)",
        LARGE + "fifty_of_two_hundred_go_at_once",
    ),
    row(
        26, "testNewSubscription", "a process that names one queue more has it, and its share of the rest",
        SUBSCRIPTIONS + "a_restart_with_one_queue_more_needs_no_version",
        SUBSCRIPTIONS + "a_rolling_update_that_adds_a_queue",
    ),
    row(
        27, "testMoveExistingAssignments", "any history of members that name different things ends with nobody working what it does not name, and no single "
        "move that would even out two of them",
        "tests/coordinator/test_subscription_properties.py::test_every_history_ends_with_each_working_its_own",
    ),
    row(28, "testStickiness", "3 on four, the first leaves: one each, and each keeps what it had", STICKY + "who_has_one_keeps_it_when_the_first_member_goes"),
    row(
        29, "testAssignmentUpdatedForDeletedTopic", "1 and 100 of three topics, one of which was deleted: 101, under the tokens they had",
        STICKY + "a_deleted_topic_among_others_is_all_that_goes",
    ),
    row(
        30, "testNoExceptionThrownWhenOnlySubscribedTopicDeleted", "a member with nothing, which gets the next list",
        STICKY + "when_the_only_topic_is_deleted_its_member_stays_with_nothing",
    ),
    row(
        31, "testReassignmentWithRandomSubscriptionsAndChanges",
        "random members, capacities, lists, drains, losses: even, the fewest moves by an oracle, a fixed point",
        PROPERTIES,
    ),
    row(
        32, "testAllConsumersReachExpectedQuotaAndAreConsideredFilled", "2, 1, 0 of 4 become 2, 1, 1, and nothing that is owned moves",
        *rightful("one is full, one nearly, one empty"),
    ),
    row(
        33, "testOwnedPartitionsAreInvalidatedForConsumerWithStaleGeneration", "the higher token keeps all three, the stale owner has the rest",
        *rightful("a stale owner of the same"),
    ),
    row(
        34, "testOwnedPartitionsAreInvalidatedForConsumerWithNoGeneration", "an owner whose token proves nothing has the rest",
        *rightful("an owner that proves nothing"),
    ),
    row(
        35, "testPartitionsTransferringOwnershipIncludeThePartitionClaimedByMultipleConsumersInSameGeneration",
        "one of the two is left it, nobody works it twice, and the newcomer has its share only from who had too many",
        STICKY + "two_claims_under_one_token_make_one_owner",
    ),
    row(
        36, "testEnsurePartitionsAssignedToHighestGeneration", "each resource with its highest token, three each, nothing rightful moves",
        *rightful("each to its highest token"), CLAIMS + "the_highest_token_wins_and_brings_its_offset",
    ),
    row(
        37, "testNoReassignmentOnCurrentMembers", "a newcomer has what nobody owns, and nothing that is owned moves",
        *rightful("owners of different ages, and a newcomer"),
    ),
    row(
        38, "testOwnedPartitionsAreInvalidatedForConsumerWithMultipleGeneration", "a stale owner keeps just what nobody younger claims",
        *rightful("a stale owner of some of it"),
    ),
    cannot_apply(39, "testRackAwareAssignmentWithUniformSubscription", NO_RACKS),
    cannot_apply(40, "testRackAwareAssignmentWithNonEqualSubscription", NO_RACKS),
    cannot_apply(
        41, "TopicBalanceAfterReassignment",
        "A group's resources are one flat list, so the balance is over all of it: to have each topic even by itself, give each "
        "its own group.",
    ),
    row(
        42, "cooperative: nothing both revoked and assigned in one round; rounds until none is revoked, then balance",
        "over any churn nothing is granted that was asked back and not answered; then even, with the fewest moves",
        STICKY + "nothing_is_granted_while_it_is_asked_back",
        STICKY + "rounds_until_nothing_is_asked_back_end_even_and_at_rest",
        PROPERTIES,
    ),
    row(
        43, "fixed point: assign(assign(x)) = assign(x) (KAFKA-21166, KAFKA-18688)",
        "settling once more changes nothing, after any history",
        QUOTAS + "nothing_moves_when_nothing_has_changed",
        STICKY + "rounds_until_nothing_is_asked_back_end_even_and_at_rest",
        PROPERTIES,
    ),
)  # fmt: skip

LISTS = (PeerList("Kafka: sticky assignor", "AbstractStickyAssignorTest at 02371f2, and three more", 43, ROWS),)
