"""Tests of programs without servers, as their authors write them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest
from tests.readme_sections import code_blocks

from cobalance import Delivery, Group, MemberSettings, Tenure, Topic
from cobalance.errors import OffsetRegressed, UsageError
from cobalance.testing import Broker, Churn, ask_back

pytest_plugins = ["cobalance.testing.plugin"]


def test_a_handler_alone() -> None:
    """With a realistic delivery."""
    orders = Topic("orders", 12)
    delivery = Delivery.fake(b"{}", key="customer-1", headers={"source": "shop"}, topic=orders, message_id="order-7")
    partition = orders.partition_of("customer-1")
    assert (delivery.queue, delivery.routing_key) == (f"orders-{partition}", f"{partition}/12")
    assert (delivery.body, delivery.headers["source"], delivery.properties.message_id) == (b"{}", "shop", "order-7")
    assert delivery.key == "customer-1"
    assert (delivery.token, delivery.redelivered, delivery.offset, Delivery.fake("text").body) == (
        1,
        False,
        None,
        b"text",
    )
    with pytest.raises(TypeError):
        Delivery.fake(mesage_id="misspelt")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="the body is an object of type dict: give bytes, or text"):
        Delivery.fake({"a": 1})  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_work_function_alone() -> None:
    """Until its tenure is asked back."""
    commits: list[int] = []

    async def copy(bucket: Tenure) -> None:
        done = bucket.committed or 0
        while bucket.active:
            done += 1
            await bucket.commit(done)
            if done == 5:
                ask_back(bucket)

    tenure = Tenure.fake("photos", committed=2, commits=commits)
    await copy(tenure)
    assert commits == [3, 4, 5]
    with pytest.raises(OffsetRegressed):
        await tenure.commit(4)
    with anyio.fail_after(60):
        await tenure.wait_draining()


OPEN_ONCE = """
import os, threading, time
import pytest

pytest_plugins = ["cobalance.testing.plugin"]

@pytest.mark.parametrize("number", range(12))
def test_one(number, cobalance_broker, request):
    cobalance_broker.publish(cobalance_broker.create_topic("orders", 2), "a", "x")
    seen, until = request.config.stash.setdefault(KEY, []), time.monotonic() + 10
    seen.append(count())
    while number and seen[-1] != seen[1] and time.monotonic() < until:
        seen[-1] = count()  # what the last one used may be closed a moment after its end
    assert seen[-1] == seen[1 if number else 0], seen

def count():
    return threading.active_count(), len(os.listdir("/proc/self/fd"))

KEY = pytest.StashKey()
"""


@pytest.mark.thorough
def test_a_broker_ends_with_its_test(tmp_path: Path) -> None:
    """Its thread and its descriptors, or a run of some hundred tests would have none to spare."""
    (tmp_path / "test_open_once.py").write_text(OPEN_ONCE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_open_once.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


class Shop:
    """Two members of a group, with two partitions each."""

    def __init__(self, broker: Broker, churn: Churn) -> None:
        self.broker, self.churn = broker, churn
        self.topic = broker.create_topic("orders", 4)
        self.seen: list[bytes] = []
        self.first, self.second = (churn.join("orders", self.handle) for _ in range(2))
        churn.until(lambda: len(self.first.holds) == len(self.second.holds) == 2)

    async def handle(self, delivery: Delivery) -> None:
        self.seen.append(delivery.body)

    def sell(self, *bodies: str) -> None:
        """One order per customer."""
        for number, body in enumerate(bodies):
            self.broker.publish("orders", f"customer-{number}", body)

    def is_done(self) -> None:
        """Whether each order was handled at least once."""
        self.churn.until(lambda: self.broker.is_empty(self.topic))


@pytest.fixture
def shop(cobalance_broker: Broker, cobalance_group: Churn) -> Shop:
    return Shop(cobalance_broker, cobalance_group)


def test_who_leaves_hands_over(shop: Shop) -> None:
    """The other one gets everything, and then a third its share."""
    shop.sell("1", "2", "3")
    shop.churn.leave(shop.first)
    shop.churn.until(lambda: shop.second.holds == set(shop.topic.queue_names))
    third = shop.churn.join("orders", shop.handle)
    shop.churn.until(lambda: len(third.holds) == 2)
    shop.sell("4")
    shop.is_done()
    assert sorted(shop.seen) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("verb", ["crash", "hang"])
def test_who_is_gone_is_replaced_without_waiting(shop: Shop, verb: str) -> None:
    """Unacknowledged messages are redelivered."""
    getattr(shop.churn, verb)(shop.first)
    shop.sell("1", "2", "3", "4", "5")
    shop.is_done()
    assert set(shop.seen) == {b"1", b"2", b"3", b"4", b"5"}
    assert shop.second.holds == set(shop.topic.queue_names)


def test_who_wakes_up_begins_anew(shop: Shop) -> None:
    """It has lost what it had, joins again, and gets a share."""
    before = shop.first.id
    shop.churn.hang(shop.first)
    shop.churn.until(lambda: len(shop.second.holds) == 4)
    shop.churn.wake(shop.first)
    shop.churn.until(lambda: shop.first.id != before and len(shop.first.holds) == 2)
    shop.sell("1", "2")
    shop.is_done()


def test_an_expired_member_joins_again(shop: Shop) -> None:
    """It is alive, and learns that its session ended."""
    before = shop.first.id
    shop.churn.expire(shop.first)
    shop.churn.until(lambda: shop.first.id != before and len(shop.first.holds) == 2)
    shop.sell("1", "2")
    shop.is_done()


def test_who_hangs_stays_cut_off_when_it_expires(shop: Shop) -> None:
    """It would join again, and be given what it cannot consume."""
    shop.churn.hang(shop.first)
    shop.churn.expire(shop.first)
    shop.churn.until(lambda: len(shop.second.holds) == 4)
    shop.sell("1", "2", "3", "4", "5")
    shop.is_done()
    assert shop.second.holds == set(shop.topic.queue_names)


@pytest.mark.parametrize("verb", ["leave", "crash", "hang", "wake", "expire"])
def test_who_is_gone_is_gone(shop: Shop, verb: str) -> None:
    """A test that takes the wrong one gets an error."""
    shop.churn.crash(shop.first)
    with pytest.raises(UsageError, match="left, or crashed, before"):
        getattr(shop.churn, verb)(shop.first)


def test_a_lost_redis_moves_nothing(shop: Shop) -> None:
    """The members reclaim what they hold."""
    before = shop.first.holds
    tokens = {name: it.token for name, it in shop.first.group.tenures.items()}
    shop.churn.lose_redis()
    assert shop.first.holds == before
    assert {name: it.token for name, it in shop.first.group.tenures.items()} == tokens
    shop.sell("1", "2")
    shop.is_done()


def test_a_redis_may_be_lost_after_a_member_has_failed(cobalance_broker: Broker) -> None:
    """It is awaited no more than one that hangs; its error is raised in the end."""

    async def fail(_: Tenure) -> None:
        raise ValueError("its work")

    churn = Churn("group", cobalance_broker)
    failed, other = churn.join_resources(["a"], work=fail), churn.join_resources(["b"])
    try:
        churn.until(lambda: failed.group.failed is not None and other.holds == {"b"})
        churn.lose_redis()
        assert other.holds == {"b"}
    finally:
        churn.leave(other)
    with pytest.raises(ValueError, match="its work"):
        churn.close()


def test_a_redis_may_be_lost_while_nobody_is_connected(cobalance_group: Churn) -> None:
    """It stays empty until somebody comes back."""
    members = [cobalance_group.join_resources(["r"]) for _ in range(2)]
    for member in members:
        cobalance_group.hang(member)
    cobalance_group.lose_redis()
    cobalance_group.advance(1_000)
    assert cobalance_group.committed() == {}
    cobalance_group.crash(members[0])
    cobalance_group.wake(members[1])
    cobalance_group.until(lambda: members[1].holds == {"r"})


def test_a_crash_interrupts_a_handler(cobalance_broker: Broker, cobalance_group: Churn) -> None:
    """Wherever it is. The next holder gets the message, marked as redelivered."""
    begun, again = threading.Event(), list[bool]()

    async def hangs(_: Delivery) -> None:
        begun.set()
        await anyio.sleep_forever()

    topic = cobalance_broker.create_topic("orders")
    first = cobalance_group.join("orders", hangs)
    cobalance_broker.publish(topic, "k", "1")
    assert begun.wait(60)
    cobalance_group.join("orders", lambda it: again.append(it.redelivered))
    cobalance_group.crash(first)
    cobalance_group.until(lambda: again)
    assert again == [True]


def test_any_resource(cobalance_group: Churn) -> None:
    """Offsets are committed in memory."""

    async def copy(bucket: Tenure) -> None:
        await bucket.commit((bucket.committed or 0) + 3)
        await bucket.wait_draining()

    first = cobalance_group.join_resources(["films", "photos"], work=copy)
    cobalance_group.until(lambda: cobalance_group.committed() == {"films": 3, "photos": 3})
    cobalance_group.crash(first)
    cobalance_group.join_resources(["films", "photos"], work=copy)
    cobalance_group.until(lambda: cobalance_group.committed() == {"films": 6, "photos": 6})


def test_members_choose_their_settings_but_not_their_servers(cobalance_group: Churn) -> None:
    """An option of a member's takes the place of the group's own."""

    async def copy(bucket: Tenure) -> None:
        await bucket.wait_draining()

    cobalance_group.join_resources(["r"], work=copy, member=MemberSettings(capacity=0))
    worker = cobalance_group.join_resources(["r"], work=copy)
    cobalance_group.until(lambda: worker.holds == {"r"})
    with pytest.raises(UsageError, match="leave redis_url out"):
        cobalance_group.join_resources(["r"], work=copy, redis_url="redis://localhost")
    with pytest.raises(UsageError, match="leave amqp_url out"):
        cobalance_group.join("orders", print, amqp_url="amqp://localhost")


def test_a_failure_is_raised_at_the_end(cobalance_broker: Broker) -> None:
    """Even if the test checks nothing."""
    churn = Churn("g", cobalance_broker)

    async def fail(_: Tenure) -> None:
        raise LookupError("r")

    member = churn.join_resources(["r"], work=fail)
    churn.until(lambda: member.group.failed)
    with pytest.raises(LookupError):
        churn.close()
    with pytest.raises(UsageError, match="group 'g'"):
        churn.enter(lambda **_: Group("other"))


def test_the_readmes_test_passes(tmp_path: Path) -> None:
    """As written there, in at most ten lines."""
    (program,) = (block for block in code_blocks("py") if "cobalance_group" in block)
    body = program[program.index("def test_") :].strip()
    assert len(body.splitlines()) <= 10
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["cobalance.testing.plugin"]\n')
    (tmp_path / "test_billing.py").write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert "1 passed" in ended.stdout, ended.stdout


def test_a_member_that_has_failed_keeps_no_other_from_leaving(cobalance_broker: Broker) -> None:
    """Or handlers would go on in the tests behind it."""
    churn = Churn("group", cobalance_broker)
    orders = cobalance_broker.create_topic("orders", partitions=4)
    seen: list[bytes] = []
    failed: list[bytes] = []

    def fail(delivery: Delivery) -> None:
        failed.append(delivery.body)
        raise ValueError("no")

    churn.join("orders", lambda delivery: seen.append(delivery.body))
    churn.join("orders", fail, on_error="raise", retries=0)
    for number in range(8):
        cobalance_broker.publish(orders, f"key-{number}", b"it")
    churn.until(lambda: failed)
    with pytest.raises(ValueError, match="no"):
        churn.close()
    assert churn.members == []
    assert not churn._present()
