"""How many members a group should have: what is counted, what bounds it, and that it does not flap."""

from __future__ import annotations

import gc
import json
from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
from prometheus_client import CollectorRegistry
from tests.cli_process import cobalance
from tests.consumers import Place, until
from tests.operate.described import group, member

from cobalance import Batch, Delivery, GroupAdmin, Topic
from cobalance.description import Backlog, GroupDescription
from cobalance.errors import InvalidSettings, UnknownGroup
from cobalance.operate.desired import Desired, Scaling, ScalingSettings
from cobalance.operate.desired_page import desired_pages
from cobalance.threads.worker_threads import in_thread

SETTINGS = ScalingSettings(drain_within_ms=100_000, out_after_ms=30_000, in_after_ms=300_000)


def described(
    at_s: float, members: int, lags: list[int | None], handled: int | None = 0, **given: Any
) -> GroupDescription:
    """A group whose members hold its partitions in turn, and have each got the same done."""
    base = group()
    names = [f"q-{n}" for n in range(len(lags))]
    present = tuple(
        member(id=f"m{n}", resources=tuple(names[n::members]), handled=handled, **given) for n in range(members)
    )
    resources = tuple(
        attrs.evolve(
            base.resources[0], name=name, owner=f"m{n % members}" if members else None, backlog=Backlog(lag=lag)
        )
        for n, (name, lag) in enumerate(zip(names, lags, strict=True))
    )
    return attrs.evolve(base, members=present, resources=resources, at_ms=round(1_000 * at_s))


class World:
    """Members that get so much done each, as long as there is something; looked at every five seconds."""

    def __init__(self, members: int = 1, partitions: int = 12, each_per_s: float = 10) -> None:
        self.members, self.partitions, self.each_per_s = members, partitions, each_per_s
        self.at_s, self.lag, self.handled, self.occupied_ms = 0.0, 0.0, 0.0, 0.0
        self.scaling = Scaling(SETTINGS)

    def pass_time(self, came_per_s: float, s: int = 5, share: float | None = None) -> Desired:
        """`share` is how much of its time a member says that its work takes; None if it says nothing."""
        able = self.each_per_s * self.members * s
        done = min(able, self.lag + came_per_s * s)
        self.lag += came_per_s * s - done
        self.handled += done / max(1, self.members)
        self.at_s += s
        waiting, rest = divmod(round(self.lag), self.partitions)
        lags: list[int | None] = [waiting + (n < rest) for n in range(self.partitions)]
        self.occupied_ms += 1_000 * s * (share or 0)
        begun = round(self.handled) / self.handled if self.handled else 1  # what is not done has not been begun
        occupied = None if share is None else round(self.occupied_ms * begun)
        return self.scaling.judge(
            described(self.at_s, self.members, lags, round(self.handled), occupied_ms=occupied),
        )


def test_more_only_once_that_has_lasted() -> None:
    """Members that get 10 a second done, of 35 that come in: four, and what waits is done in time, too."""
    world = World(members=1)
    first = [world.pass_time(35) for _ in range(5)]
    assert {it.members for it in first[1:]} == {1}
    assert first[-1].reason.endswith("but that has to last")
    later = [world.pass_time(35) for _ in range(8)][-1]
    assert (later.present, later.in_per_s, later.per_member_per_s) == (1, 35.0, 10.0)
    assert later.members is not None
    assert 4 <= later.members <= 6
    assert later.waiting_ms > 30_000


def test_never_more_than_partitions_nor_than_have_work() -> None:
    """Others would have nothing to do."""
    world = World(members=1, partitions=3)
    found = [world.pass_time(1_000) for _ in range(20)][-1]
    assert found.members == 3
    hot = Scaling(SETTINGS)
    one_has_it_all = (described(5 * n, 2, [100 * (n + 1), 0, 0, 0, 0, 0], handled=50 * n) for n in range(20))
    assert [hot.judge(it) for it in one_has_it_all][-1].members == 2


def test_messages_in_flight_are_no_sign_of_work_throughout() -> None:
    """They are lag, too: a member that is looked at while its handler has one is not at the most that it can do. A member that
    gets 10 a second done is seen at that; then twelve share 30 a second, each with one message in its only partition.
    """
    scaling = Scaling(SETTINGS)
    for n in range(6):
        scaling.judge(described(5 * n, 1, [100] * 12, handled=50 * n))
    found = [scaling.judge(described(30 + 5 * n, 12, [1] * 12, handled=round(12.5 * n))) for n in range(80)]
    assert found[-1].per_member_per_s == 10.0
    assert {it.needed for it in found[20:]} == {4}
    assert found[-1].members == 4


def test_what_a_member_can_do_is_known_before_any_burst() -> None:
    """A group that keeps up all the time says how much of their time that takes its members: it has too many."""
    world = World(members=6, each_per_s=200)
    found = [world.pass_time(138, share=0.115) for _ in range(62)][-1]
    assert found.per_member_per_s == pytest.approx(200, rel=0.01)
    assert (found.needed, found.members) == (1, 1)


def test_without_it_only_what_was_done_is_known() -> None:
    """Members that acknowledge by hand do not say how much of their time that takes: none is too many."""
    world = World(members=6, each_per_s=200)
    found = [world.pass_time(138) for _ in range(62)][-1]
    assert (found.per_member_per_s, found.members) == (23.0, 6)


def test_what_was_measured_under_load_is_the_most_for_a_day() -> None:
    """What members wait for besides is found in the first burst, and counts after it: no number goes up and down over
    that. Until they get more done, or for a day, since they may have become quicker.
    """
    world = World(members=2, each_per_s=20)
    assert [world.pass_time(10, share=0.05) for _ in range(20)][-1].per_member_per_s == pytest.approx(100, rel=0.01)
    assert [world.pass_time(200, share=0.2) for _ in range(30)][-1].per_member_per_s == pytest.approx(20, rel=0.01)
    world.lag = 0
    calm = [world.pass_time(10, share=0.05) for _ in range(40)]
    assert calm[-1].per_member_per_s == pytest.approx(20, rel=0.01)
    world.each_per_s = 60
    uneven = [world.pass_time(it, share=0.05) for it in (80, *[2] * 11) * 3]  # more than that, at one look in twelve
    assert uneven[-1].per_member_per_s == pytest.approx(20, rel=0.01)
    assert [world.pass_time(100, share=0.5) for _ in range(40)][-1].per_member_per_s == 50
    assert [world.pass_time(10, share=0.05) for _ in range(40)][-1].per_member_per_s == 50
    found = [world.pass_time(10, s=50, share=0.05) for _ in range(24 * 72)]
    assert found[-50].per_member_per_s == 50
    assert found[-1].per_member_per_s == pytest.approx(100, rel=0.01)


def test_messages_in_flight_at_two_looks_are_no_limit() -> None:
    """Members that get one a second done in a tenth of their time are seen twice with a message in each partition, and
    with no more done in between: that happens. They can do ten a second all the same.
    """
    scaling = Scaling(SETTINGS)
    for n in range(12):
        lags: list[int | None] = [1 if n in {9, 10} else 0] * 12
        found = scaling.judge(described(2 * n, 6, lags, handled=2 * n, occupied_ms=200 * n))
        assert n < 5 or found.per_member_per_s == pytest.approx(10)


def test_few_messages_tell_nothing() -> None:
    """One a minute, of which one took a moment: only ten of them say how long they take."""
    world = World(members=2)
    found = [world.pass_time(1 / 60, share=0.01) for _ in range(60)]
    assert found[-1].per_member_per_s == pytest.approx(1 / 60)  # of the minute with one each
    found = [world.pass_time(1 / 60, share=0.01) for _ in range(90)]
    assert found[-1].per_member_per_s == pytest.approx(1 / 120 / 0.01, rel=0.15)


def test_what_an_idle_process_does_is_not_for_its_messages() -> None:
    """Its heartbeats take some time of the processor all night; in the morning a member can do what it could before."""
    world = World(members=6, each_per_s=200)
    evening = [world.pass_time(138, share=0.115) for _ in range(20)][-1]
    night = [world.pass_time(0, share=0.003) for _ in range(12 * 60)][-1]
    morning = world.pass_time(138, share=0.115)
    for it in (evening, night, morning):
        assert it.per_member_per_s == pytest.approx(200, rel=0.01)


def test_fewer_only_once_that_has_lasted_longer() -> None:
    """A quiet minute is no reason, and what was needed at any time meanwhile is kept."""
    world = World(members=6)
    for _ in range(30):
        assert world.pass_time(55).members in {6, None}  # of the first look alone nothing is known
    for _ in range(12):
        assert world.pass_time(5).members == 6
    found = [world.pass_time(5) for _ in range(70)][-1]
    assert found.members == 1
    assert found.reason == "no more have been needed for 300 s"


def test_a_single_look_after_a_pause_decides_nothing() -> None:
    """Nobody looked for eleven minutes, in which the need may have been anything: both times begin again."""
    world = World(members=6)
    for _ in range(70):
        assert world.pass_time(55).members in {6, None}
    found = world.pass_time(0, s=660)
    assert (found.needed, found.members) == (1, 6)
    for _ in range(59):
        assert world.pass_time(0).members == 6
    assert world.pass_time(0).members == 1


@pytest.mark.parametrize("every_s", [10.0, 30.05])
def test_a_burst_that_one_look_sees_is_no_reason(every_s: float) -> None:
    """Also where looks are as far apart as more members must have been needed; two in a row are a reason."""
    scaling = Scaling(SETTINGS)

    def look(n: int, lag: int) -> int | None:
        return scaling.judge(described(every_s * n, 2, [lag] * 12, round(every_s * 10 * n))).members

    assert [look(n, 0) for n in range(1, 9)][1:] == [2] * 7
    assert [look(9, 2_000), look(10, 0)] == [2, 2]
    lasting = [look(n, 2_000) for n in range(11, 15)]
    assert lasting.index(12) * every_s >= 30


def test_a_day_with_and_without() -> None:
    """Followed, it keeps what waits below a minute with less than half of the members that the peak needs all day, and
    changes their number seldom.
    """
    load = [5.0] * 120 + [60.0] * 240 + [110.0] * 120 + [60.0] * 240 + [5.0] * 720  # of each 5 s, a second

    def day(*, is_scaled: bool) -> tuple[int, float, float]:
        world = World(members=2 if is_scaled else 12)
        changes, cost, worst = 0, 0, 0.0
        for came in load:
            found = world.pass_time(came)
            cost += world.members
            worst = max(worst, world.lag / max(1.0, came))
            if is_scaled and found.members not in {None, world.members}:
                world.members, changes = found.members or 0, changes + 1
        return changes, cost, worst

    changes, cost, worst_s = day(is_scaled=True)
    _, most_cost, _ = day(is_scaled=False)
    assert changes <= 12
    assert cost < 0.5 * most_cost
    assert worst_s < 60


def test_nobody_there() -> None:
    """One at once if something waits; none if nothing does, and that is allowed."""
    assert Scaling(SETTINGS).judge(described(0, 0, [3, 0])).members == 1
    assert Scaling(SETTINGS).judge(described(0, 0, [0, 0])).members == 1
    assert Scaling(attrs.evolve(SETTINGS, least=0)).judge(described(0, 0, [0, 0])).members == 0


def test_members_that_restart_are_still_wanted() -> None:
    """All at once, or one after the other; also a member that has not come yet, or not gone yet, when their number was changed."""
    world = World(members=4)
    for _ in range(10):
        world.pass_time(35)
    for members in (3, 0, 0, 1, 2, 4, 4, 3, 4):
        world.members = members
        assert world.pass_time(35).members == 4, members
    found = [world.pass_time(60) for _ in range(8)][-1]
    wanted = found.members
    assert wanted is not None
    assert wanted > 4
    for members in range(4, wanted + 1):
        world.members = members
        assert world.pass_time(60).members == wanted
    fewer = [world.pass_time(5) for _ in range(90)][-1].members
    assert fewer is not None
    assert fewer < wanted
    for members in range(wanted, fewer - 1, -1):
        world.members = members
        assert world.pass_time(5).members == fewer


def test_members_that_do_not_come_back_are_wanted_no_longer() -> None:
    """Once as long has passed as for any other reason to want fewer; and those that come uncalled count once they have stayed."""
    world = World(members=4)
    for _ in range(10):
        world.pass_time(35)
    world.members = 0
    found = [world.pass_time(0).members for _ in range(62)]
    assert found == [4] * 60 + [1] * 2
    world.members = 6
    assert [world.pass_time(0).members for _ in range(8)] == [None] * 6 + [6] * 2


def test_a_deploy_that_begins_new_members_first_is_no_reason_for_more() -> None:
    """A user that obeys the answer would have one more with each of them."""
    world = World(members=3)
    for _ in range(10):
        world.pass_time(20)
    for members in (4, 4, 3, 4, 4, 3, 4, 4, 3, 3):
        world.members = members
        assert world.pass_time(20).members == (3 if members == 3 else None), members


def test_members_that_stay_uncalled_are_wanted_up_to_the_partitions() -> None:
    """Others would have nothing to do."""
    world = World(members=3, partitions=4)
    for _ in range(10):
        world.pass_time(20)
    world.members = 7
    assert [world.pass_time(20).members for _ in range(8)] == [None] * 6 + [4] * 2


def test_a_member_that_restarts_while_others_go_puts_nothing_off() -> None:
    """Two are called for, of four; the third, which has yet to go, restarts first, again and again."""
    world = World(members=4)
    for _ in range(10):
        world.pass_time(35)
    assert 2 in [world.pass_time(15).members for _ in range(200)]
    for members in (4, 3, *(2, 3, 3, 3, 3, 3, 3, 3, 3) * 9, 2):
        world.members = members
        assert world.pass_time(15).members == 2, members
    world.members = 3
    for _ in range(8):
        world.pass_time(15)
    assert world.pass_time(15).members == 2, "the third has been there all the time"


@pytest.mark.parametrize(("others", "wanted"), [(4, 5), (0, 1)])
def test_a_member_that_restarts_for_ever_does_not_prevent_that_there_are_more(others: int, wanted: int) -> None:
    """The load kills it, and would not if it were shared by more. Changes put it off for five times as long at most."""
    world, found = World(members=wanted), list[Desired]()
    for n in range(60):
        world.members = others + (n % 9 < 5)  # up for 25 s, down for 20 s
        found.append(world.pass_time(70))
    early = {it.members for it in found[:30] if it.members is not None}
    assert early == {wanted}
    more = next(it for it in found if (it.members or 0) > wanted)
    assert found.index(more) <= 33
    assert more.reason == "so many have been needed for 150 s"


def test_a_member_that_restarts_for_ever_does_not_prevent_that_there_are_fewer() -> None:
    """What was needed at any time in five times as long is kept."""
    world, found = World(members=5), list[Desired]()
    for n in range(330):
        world.members = 4 + (n % 9 < 5)
        found.append(world.pass_time(15, share=15 / 10 / world.members))
    assert {it.members for it in found[1:300]} == {5}
    fewer = next(it for it in found[1:] if it.members != 5)
    assert fewer.members == 2
    assert fewer.reason == "no more have been needed for 1500 s"


def test_a_long_deploy_is_no_reason_for_anything() -> None:
    """Members are replaced one after the other for ten minutes, and the others do as well as before."""
    world = World(members=6)
    for _ in range(20):
        world.pass_time(45)
    for n in range(120):
        world.members = 6 - n % 2
        assert world.pass_time(45).members == 6
    assert world.lag < 100


def test_those_who_are_kept_a_place_are_wanted() -> None:
    """At the first look, too: their instance ids come back."""
    gone = described(0, 4, [3] * 8, state="graced")
    assert Scaling(SETTINGS).judge(gone).members == 4
    assert Scaling(SETTINGS).judge(described(0, 4, [3] * 8, state="graced", capacity=0)).members == 1


@pytest.mark.parametrize(("lags", "handled"), [([None, 0], 1), ([1, 1], None)])
def test_what_is_not_known_is_no_number(lags: list[int | None], handled: int | None) -> None:
    """Of the lag, or of what members get done for a whole window."""
    scaling = Scaling(SETTINGS)
    for n in range(20):
        scaling.judge(described(5 * n, 1, [100 * (n + 1), 100], handled=50 * n))
    assert scaling.judge(described(100, 1, [2_000, 100], handled=1_000)).members == 2
    found = [scaling.judge(described(105 + 5 * n, 1, lags, handled)) for n in range(13)][-1]
    assert found.members is None
    assert "not known" in found.reason
    page = desired_pages(lambda _: described(0, 1, lags, handled), SETTINGS)("/api/v1/groups/g/desired-members")
    assert page is not None
    assert page().status == 503


def test_a_group_that_nobody_asks_about_any_more_is_forgotten() -> None:
    """After a day, of this process: Redis of another group may be days ahead. One that is deleted at once."""

    def snapshot(name: str) -> GroupDescription:
        if name in deleted:
            raise UnknownGroup("it is deleted")
        return described(now_s + 200_000 * (name == "b"), 1, [0, 0], 0)

    def ask(name: str) -> int:
        page = find(f"/api/v1/groups/{name}/desired-members")
        assert page is not None
        page()
        gc.collect()
        return sum(isinstance(it, Scaling) for it in gc.get_objects()) - before

    gc.collect()
    before = sum(isinstance(it, Scaling) for it in gc.get_objects())
    now_s, deleted = 0, set[str]()
    find = desired_pages(snapshot, SETTINGS, now_s=lambda: now_s)
    assert [ask(name) for name in "abca"] == [1, 2, 3, 3]
    deleted.add("c")
    assert ask("c") == 2
    now_s = 90_000
    assert ask("a") == 1


def without_reports(group: GroupDescription, *late: int) -> GroupDescription:
    """These members have not answered in time."""
    silent = {f"m{n}" for n in late}
    members = tuple(attrs.evolve(it, handled=None, occupied_ms=None) if it.id in silent else it for it in group.members)
    return attrs.evolve(group, members=members)


@pytest.mark.parametrize("every", [2, 3, 4, 20])
def test_a_member_that_answers_late_puts_nothing_off(every: int) -> None:
    """Three get 10 a second done each, of 50 that come in, and at each nth look one of them has not answered: five at
    least are needed, what comes in is known to be 50 nearly always, and more come as soon as if all had answered. What
    it got done shows once it answers.
    """
    scaling, found = Scaling(SETTINGS), []
    for n in range(20):
        looked = described(5 * n, 3, [50 + 25 * n] * 4, handled=50 * n)
        late = [n // every % 3] if n % every == every - 1 else []
        found.append(scaling.judge(without_reports(looked, *late)))
    known = [it for it in found if it.members is not None]
    assert len(known) >= 17
    assert [it.in_per_s for it in known] == [pytest.approx(50)] * len(known)
    assert [it.members for it in found[:7]].count(4) == 0
    assert found[8].members == 4, "all have said often enough what they get done"


@pytest.mark.parametrize(("unknown", "later"), [(1, [1, 1, 1, 2]), (11, [2]), (12, [1] * 6 + [2])])
def test_a_lag_that_is_unknown_for_a_moment_puts_nothing_off(unknown: int, later: list[int | None]) -> None:
    """The answer is unknown just then. After more than a minute of it, both times begin again."""
    scaling, found = Scaling(SETTINGS), []
    for n in range(1, 4 + unknown + len(later)):
        lag = None if 3 < n <= 3 + unknown else 100 * n
        found.append(scaling.judge(described(5 * n, 1, [lag] * 2, handled=50 * n)).members)
    assert found == [None, 1, 1, *[None] * unknown, *later]


def test_the_lower_bound_outlasts_a_change_of_the_members() -> None:
    """Those that were there throughout show what one can do; they do not say how much of their time that takes."""
    scaling = Scaling(SETTINGS)
    for n in range(3):
        scaling.judge(described(5 * n, 2, [0] * 12, handled=0))
    later = [described(15 + 5 * n, 3, [0] * 12, handled=50 * n) for n in range(12)]
    comes_and_goes = [attrs.evolve(it, members=it.members[n % 2 :]) for n, it in enumerate(later)]
    found = [scaling.judge(it) for it in comes_and_goes][-1]
    assert found.per_member_per_s is not None
    assert found.per_member_per_s > 8


def test_a_clock_that_was_set_back() -> None:
    """As Redis's is after it has lost its data, if it goes on at another machine."""
    world = World(members=1)
    for _ in range(20):
        assert world.pass_time(10).members in {1, None}
    world.at_s -= 3_600
    found = [world.pass_time(35).members for _ in range(8)]
    assert found[:3] == [None, 1, 1]
    assert (found[-1] or 0) > 1


def test_standbys_and_those_who_go_do_not_count() -> None:
    """They are no members at work."""
    for given in ({"capacity": 0}, {"state": "leaving"}, {"state": "graced"}, {"state": "silent"}):
        assert Scaling(SETTINGS).judge(described(0, 3, [1, 1], **given)).present == 0


def test_a_long_window_has_no_more_samples_than_a_short_one() -> None:
    """Each look goes over all of them: an hour of looks costs no more than a minute of them, and is measured as a whole."""
    scaling = Scaling(attrs.evolve(SETTINGS, window_ms=3_600_000))
    found = [scaling.judge(described(5 * n, 2, [100, n % 2], handled=50 * n)) for n in range(1_000)][-1]
    assert 50 < len(scaling._samples) <= 62
    assert (found.done_per_s, found.waiting_ms) == (20.0, 999 * 5_000)


@pytest.mark.parametrize(
    "given",
    [{"least": -1}, {"drain_within_ms": 0}, {"in_after_ms": -1}, {"window_ms": 1}, {"window_ms": 3_600_001}],
)
def test_settings_out_of_range(given: dict[str, int]) -> None:
    """They are refused by name."""
    with pytest.raises(InvalidSettings, match=next(iter(given))):
        ScalingSettings(**given)


@pytest.mark.anyio
async def test_on_real_servers(here: Place, topic: Topic) -> None:
    """What members say they have acknowledged is counted, over handovers too; the command and the page agree."""

    async def handle(_: Delivery) -> None:
        await anyio.lowlevel.checkpoint()

    with GroupAdmin(here.redis_url, amqp_url=here.amqp_url) as admin:
        groups = admin.metrics(here.group)
        CollectorRegistry(auto_describe=False).register(groups)
        async with here.member(topic, handle) as one:
            await one.wait_held(*topic.queue_names)
            here.publish(topic, 1, 2, 3)
            here.publish(topic, 4, partition=1)
            await until(lambda: sum(it.handled or 0 for it in admin.snapshot(here.group).members) == 4)
            async with here.member(topic, handle) as two:
                await two.wait_held(topic.queue_names[1])
                await until(lambda: sorted(it.handled or 0 for it in admin.snapshot(here.group).members) == [0, 4])
            page = desired_pages(groups.snapshot)(f"/api/v1/groups/{here.group}/desired-members")
            assert page is not None
            await until(lambda: page().status == 200)
            assert admin.describe(here.group).members[0].handled is None
            given = ("--redis-url", here.redis_url, "--amqp-url", here.amqp_url, "--for", "1s", "--json")
            told = await in_thread(lambda: cobalance("group", "desired-members", here.group, *given))
    found = json.loads(told.out)
    assert (told.code, found["present"], found["members"], found["lag"]) == (0, 1, 1, 0)
    assert found["done_per_s"] == found["in_per_s"] == 0


@pytest.mark.anyio
async def test_messages_are_counted_and_not_runs_of_handlers(here: Place, topic: Topic) -> None:
    """A batch is as many as its messages, and a message that is tried again is one; as the lag counts them."""
    tries: Counter[bytes] = Counter()

    async def handle(batch: list[Delivery]) -> None:
        await anyio.lowlevel.checkpoint()
        tries.update([it.body for it in batch])
        if any(it.body == b"5" and tries[it.body] < 4 for it in batch):
            raise ValueError("tried again")

    with GroupAdmin(here.redis_url, amqp_url=here.amqp_url) as admin:

        def handled() -> list[int]:
            return sorted(it.handled or 0 for it in admin.snapshot(here.group).members)

        here.publish(topic, *range(12))
        here.publish(topic, 12, partition=1)
        async with here.member(topic, handle, batch=Batch(most=10), retries=9) as one:
            await one.wait_held(*topic.queue_names)
            await until(lambda: handled() == [13])
            here.publish(topic, 5)
            await until(lambda: handled() == [14])
    assert tries[b"5"] > 2


@pytest.mark.anyio
@pytest.mark.parametrize("here", ["redis"], indirect=True)
@pytest.mark.parametrize("side_by_side", [False, True])
async def test_what_a_member_could_do_is_measured(here: Place, topic: Topic, *, side_by_side: bool) -> None:
    """In three seconds or more, handlers that wait for 50 ms get 24 messages done, one after the other in each of two
    partitions, or by key in 16 places: a member could do 40, or 320 a second, less what the rest of the process takes.
    """
    took_s = list[float]()

    async def handle(_: Delivery) -> None:
        begun = anyio.current_time()
        await anyio.sleep(0.05)
        took_s.append(anyio.current_time() - begun)

    options: dict[str, Any] = {"order": "key", "concurrency": 16, "key": lambda it: it.body} if side_by_side else {}
    with GroupAdmin(here.redis_url, amqp_url=here.amqp_url) as admin:
        async with here.member(topic, handle, **options) as one:
            await one.wait_held(*topic.queue_names)
            places = 16 if side_by_side else len(topic.queue_names)
            await until(lambda: Scaling(SETTINGS).judge(admin.snapshot(here.group)).lag == 0)
            scaling, first = Scaling(SETTINGS), admin.snapshot(here.group)
            scaling.judge(first)
            for n in range(24):
                here.publish(topic, n, partition=n % len(topic.queue_names))
            await until(lambda: len(took_s) == 24 and admin.snapshot(here.group).at_ms > first.at_ms + 3_000)
            await until(lambda: [it.handled for it in admin.snapshot(here.group).members] == [24])
            found = scaling.judge(admin.snapshot(here.group))
    assert found.per_member_per_s is not None
    assert found.done_per_s is not None
    assert found.per_member_per_s > found.done_per_s
    assert found.per_member_per_s < 1.1 * places * 24 / sum(took_s)
