"""Limits on unfinished messages, per process and per partition, first come, first served."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from tests.consumers import Place, Seen, bodies_in, new_topic, place, until
from tests.interruptions import WAIT_S, interrupted

from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.partition.in_flight import Share
from cobalance.threads.room import Room

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def test_who_comes_first_is_let_in_first() -> None:
    """Even if a smaller request behind would fit: otherwise the bigger one might never get its turn."""
    room = Room(3)
    first, big, small = room.enter(2), room.enter(3), room.enter(1)
    assert (first.done(), big.done(), small.done()) == (True, False, False)
    room.leave(2)
    assert (big.done(), small.done()) == (True, False)
    room.leave(3)
    assert small.done()


def test_who_gives_up_makes_way() -> None:
    """It makes way for those behind, whether it was waiting or had just been admitted."""
    room = Room(2)
    room.enter(1)
    big, small = room.enter(2), room.enter(1)
    room.give_up(big, 2)
    assert small.done()
    room.give_up(small)
    assert room.enter(1).done()
    assert not room.enter(1).done()


def test_leaving_that_a_signal_handler_interrupts() -> None:
    """By raising, at any moment: other threads go on, and who waits is let in at the latest when somebody leaves next."""
    moment, is_interrupted = 0, True
    with ThreadPoolExecutor(1) as other:
        while is_interrupted:
            room, heard = Room(1), list[object]()
            room.enter()
            turn = room.enter()
            turn.add_done_callback(heard.append)
            is_interrupted = interrupted(room.leave, moment)
            assert other.submit(turn.done).result(WAIT_S) in {False, True}
            other.submit(room.leave).result(WAIT_S)
            assert turn.done()
            assert heard
            moment += 1
    assert moment > 5


def test_a_share_gives_back_no_more_than_it_has() -> None:
    """What a lost channel left unfinished is counted once, even if it is settled late."""
    room = Room(3)
    share = Share(None, room)
    for turn in share.turns(3):
        turn.queue(lambda: None)
    share.entered(3)
    share.leave(1)
    share.leave()
    share.leave(1)
    assert room.enter(3).done()
    assert not room.enter(1).done()


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "sync"])
async def test_no_more_handlers_run_at_a_time_than_the_process_may(here: Place, in_thread: bool) -> None:
    """Even if all partitions have messages; and each has its turn."""
    running = most = 0
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        seen.note(delivery)
        running -= 1

    loop = anyio.lowlevel.current_token()

    def handle_in_thread(delivery: Delivery) -> None:
        anyio.from_thread.run(handle, delivery, token=loop)

    with new_topic(here.amqp_url, 4) as topic:
        for partition in range(4):
            here.publish(topic, *range(10), partition=partition)
        async with here.member(topic, handle_in_thread if in_thread else handle, max_in_flight=2):
            await seen.wait(40)
        assert [bodies_in(here.amqp_url, name) for name in topic.queue_names] == [[]] * 4
    assert most <= 2


async def test_unfinished_messages_of_a_partition_are_bounded(here: Place) -> None:
    """With manual acks, the next is handed over when one is finished, however many were prefetched."""
    handed: list[Delivery] = []
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        handed.append(delivery)
        seen.note(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(6))
        group = here.member(topic, handle, ack="manual", max_in_flight_per_partition=2)
        async with group:
            await seen.wait(2)
            for finished in range(4):
                assert len(handed) == finished + 2
                group.ack(handed[finished])
                await seen.wait(finished + 3)
            group.ack(handed[4])
            group.ack(handed[5])
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []


async def test_who_waits_for_room_lets_its_partition_go(here: Place) -> None:
    """One partition's handler hangs; messages of another that wait in line go to a second member at once."""
    hold, seen, others = anyio.Event(), Seen(), Seen()

    async def hang(delivery: Delivery) -> None:
        seen.note(delivery)
        await hold.wait()

    async def handle(delivery: Delivery) -> None:
        others.note(delivery)

    with new_topic(here.amqp_url, 2) as topic:
        async with here.member(topic, hang, max_in_flight=1) as member:
            await member.wait_held(*topic.queue_names)
            here.publish(topic, "a", "b", partition=0)
            await seen.wait(1)
            here.publish(topic, "c", "d", partition=1)
            async with here.member(topic, handle):
                assert await others.wait(2) == ["c", "d"]
            hold.set()
    assert here.journal("forced", "abandoned") == []


async def test_a_failing_message_leaves_its_room_between_tries(here: Place) -> None:
    """Others are worked while it waits for its retry."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "bad":
            raise ValueError

    with new_topic(here.amqp_url, 2) as topic:
        async with here.member(topic, handle, max_in_flight=1, retries=1_000) as member:
            await member.wait_held(*topic.queue_names)
            here.publish(topic, "bad")
            await until(lambda: "bad" in seen.bodies)
            here.publish(topic, *range(5), partition=1)
            await until(lambda: [it for it in seen.bodies if it != "bad"] == list("01234"))


async def test_a_tenure_that_is_cut_off_leaves_its_room(here: Place) -> None:
    """No one reports its message as finished any more: others get its place, and its queue is free again."""
    hold, seen = anyio.Event(), Seen()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "a" and seen.bodies.count("a") == 1:
            await hold.wait()

    with new_topic(here.amqp_url, 2) as topic:
        async with here.member(topic, handle, max_in_flight=1) as member:
            held = await member.wait_held(*topic.queue_names)
            here.publish(topic, "a")
            await seen.wait(1)
            here.publish(topic, "b", partition=1)
            held[0].scope.cancel()
            assert sorted(await seen.wait(3)) == ["a", "a", "b"]
        assert [bodies_in(here.amqp_url, name) for name in topic.queue_names] == [[], []]


@pytest.mark.parametrize("limit", ["prefetch", "max_in_flight", "max_in_flight_per_partition"])
def test_limits_below_a_batch_are_refused(limit: str) -> None:
    """A batch would wait forever."""
    with place("amqp://nowhere") as here, pytest.raises(UsageError, match=limit):
        here.member("topic", print, batch=Batch(10), **{limit: 9})
