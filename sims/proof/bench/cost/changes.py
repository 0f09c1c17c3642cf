"""What happens to a group of one size, and what each of it costs Redis."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.coordinator.client import Coordinator
from proof.bench.cost.session_group import FOUNDER, SETTINGS, Cost, SessionGroup

if TYPE_CHECKING:
    from proof.bench.server import Server

KINDS = {
    "deal": "all is dealt",
    "join": "one joins",
    "leave": "one leaves",
    "ten come": "one joins that gets ten",
    "ten go": "one leaves that has ten",
    "restart": "a rolling restart, each",
    "crash": "half of them crash",
    "loss": "Redis loses its data",
    "rest": "a second at rest",
}
MOVED = 10
"""Resources that change hands where groups of different sizes are compared."""

MOST_CAPACITY = 1_000
MOST_MOVES = 20_000
"""Of all rounds of one change, or they would take minutes."""
RESTARTS = 20
ROUNDS = 5
YARDSTICK = "local t = {} for i = 1, 4000 do t['k' .. i] = string.format('%.0f', i) end return #t"
YARDSTICK_CALLS = 100


@attrs.frozen
class ChangeCost:
    """One change of a group of one size. What was repeated has medians, but for the longest call of all."""

    kind: str
    members: int
    resources: int
    calls: float
    moves: float
    """How often somebody began to work a resource."""
    redis_ms: float
    """Redis's CPU for all of its calls."""
    longest_ms: float
    p999_ms: float
    over_5_ms: int
    measured: int
    """Calls, of all rounds."""
    bytes_sent: float
    """To members: answers and hints."""
    even_ms: float
    """Virtual time until all was even. Crashes begin with a session timeout, losses with a recovery of that length."""
    beats: float
    """Heartbeats meanwhile that brought nothing. Not among the calls, but at rest."""


@attrs.frozen
class Memory:
    """Bytes that a group takes, its journal aside."""

    members: int
    resources: int
    founder_alone: int
    """Before anybody else has come."""
    full: int
    founder_again: int
    """After all that, and ten minutes more."""
    left_over: int
    """Redis's own, more than before there was a group, after it was deleted."""


def names(resources: int) -> tuple[str, ...]:
    return tuple(f"r{number:06}" for number in range(resources))


def changes(
    server: Server, members: int, resources: int, *, alone: int, is_rest_measured: bool
) -> Iterator[ChangeCost | Memory]:
    """Everything in turn, on a group of its own. ``alone`` is what it takes while nobody but its founder has come."""
    before = _used(server)
    group = SessionGroup(server)
    capacity = max(1, resources // (MOVED * members))
    measured = _Measuring(group, members, resources)
    _gather(group, members, capacity)
    group.declare(names(resources))
    group.until_even()
    yield measured.change("deal", [group.measured()])
    full = group.memory()
    if is_rest_measured:
        group.rest(SETTINGS.session_timeout_ms)
        yield measured.rest(group.measured(), SETTINGS.session_timeout_ms / 1_000)
    # At such a capacity its share is ten resources.
    few = round(MOVED * members * capacity / (resources - MOVED))
    yield from measured.coming_and_going("ten come", "ten go", min(max(few, 1), MOST_CAPACITY))
    yield from measured.coming_and_going("join", "leave", capacity)
    restarts = _rounds(members, resources, min(members - 1, RESTARTS), least=2)
    yield measured.change("restart", [_restarted(group, f"m{n + 1:05}") for n in range(restarts)])
    group.measured()
    group.lose_data()
    group.until_even(at_least_ms=SETTINGS.session_timeout_ms + 2 * SETTINGS.heartbeat_interval_ms)
    yield measured.change("loss", [group.measured()])
    group.kill([name for name in group.sessions if name != FOUNDER][: members // 2])
    group.until_even(at_least_ms=SETTINGS.session_timeout_ms + 2 * SETTINGS.heartbeat_interval_ms)
    yield measured.change("crash", [group.measured()])
    again = _founder_again(group)
    _delete(group)
    yield Memory(members, resources, alone, full, again, _used(server) - before)


@attrs.frozen
class _Measuring:
    group: SessionGroup
    members: int
    resources: int

    def change(self, kind: str, costs: Sequence[Cost]) -> ChangeCost:
        """Looks whether all is as it should be, too."""
        self.group.check()

        def median(value: Callable[[Cost], float]) -> float:
            return statistics.median(value(it) for it in costs)

        each = sorted(us for it in costs for us in it.tally.each_us) or [0.0]
        return ChangeCost(
            kind=kind,
            members=self.members,
            resources=self.resources,
            calls=median(lambda it: it.tally.calls),
            moves=median(lambda it: it.moves),
            redis_ms=median(lambda it: it.tally.total_us) / 1_000,
            longest_ms=each[-1] / 1_000,
            p999_ms=each[int(len(each) * 0.999)] / 1_000,
            over_5_ms=sum(us > 5_000 for us in each),
            measured=sum(it.tally.calls for it in costs),
            bytes_sent=median(lambda it: it.bytes_sent),
            even_ms=median(lambda it: it.ms),
            beats=median(lambda it: it.beats.calls),
        )

    def rest(self, cost: Cost, seconds: float) -> ChangeCost:
        """All calls that are made while nothing happens, a second's share of them."""
        both = Cost(bytes_sent=cost.bytes_sent)
        for tally in (cost.tally, cost.beats):
            for us in tally.each_us:
                both.tally.add("", us)
        whole = self.change("rest", [both])
        return attrs.evolve(
            whole,
            calls=whole.calls / seconds,
            redis_ms=whole.redis_ms / seconds,
            bytes_sent=whole.bytes_sent / seconds,
            even_ms=0,
        )

    def coming_and_going(self, come: str, go: str, capacity: int) -> Iterator[ChangeCost]:
        """Again and again, all at one moment, so that nothing else is due."""
        joined, left = [], []
        self.group.run()
        for number in range(_rounds(self.members, self.resources, ROUNDS, least=3)):
            self.group.measured()
            self.group.start(f"{come}-{number}".replace(" ", "-"), capacity)
            self.group.run()
            joined.append(self.group.measured())
            self.group.check()
            self.group.stop(f"{come}-{number}".replace(" ", "-"))
            self.group.run()
            left.append(self.group.measured())
        yield self.change(come, joined)
        yield self.change(go, left)


def _gather(group: SessionGroup, members: int, capacity: int) -> None:
    """All join."""
    for number in range(members):
        group.start(f"m{number:05}", capacity)
        group.run()
    group.measured()


def _rounds(members: int, resources: int, most: int, *, least: int) -> int:
    """How often a member goes and comes."""
    return min(most, max(least, MOST_MOVES * members // (2 * resources)))


def yardstick(server: Server) -> list[float]:
    """Redis's CPU, in µs, for a script that always does the same: how far others disturb the measuring of one call."""
    sha: Any = server.command("SCRIPT", "LOAD", YARDSTICK)
    spent = []
    for _ in range(YARDSTICK_CALLS):
        before = server.spent_us()
        server.command("EVALSHA", sha, 0)
        spent.append(server.spent_us() - before)
    return spent


def _restarted(group: SessionGroup, name: str) -> Cost:
    """One member goes, and its successor comes."""
    group.measured()
    group.stop(name)
    group.run()
    group.start(f"{name}-again", group.capacities[name])
    group.run()
    return group.measured()


def founder_alone(server: Server, resources: int) -> int:
    """What a group takes in which one member has everything."""
    group = SessionGroup(server)
    group.start(FOUNDER, 1)
    group.declare(names(resources))
    group.until_even()
    size = group.memory()
    _delete(group)
    return size


def _founder_again(group: SessionGroup) -> int:
    """What it takes when all others have crashed, and are forgotten."""
    group.kill([name for name in group.sessions if name != FOUNDER])
    group.until_even(at_least_ms=SETTINGS.session_timeout_ms + 2 * SETTINGS.heartbeat_interval_ms)
    group.check()
    group.until_even(at_least_ms=11 * 60_000)
    return group.memory()


def _delete(group: SessionGroup) -> None:
    group.stop(FOUNDER)
    group.until_even()
    group.close()
    Coordinator(group, "bench").delete()  # type: ignore[arg-type]
    group.forget_clock()
    if group.server.command("DBSIZE") != 0:
        raise RuntimeError("something is left of the group")


def _used(server: Server) -> int:
    """Bytes that Redis uses, once it has freed what it was asked to."""
    while int(server.info("memory")["lazyfree_pending_objects"]):
        pass
    return int(server.info("memory")["used_memory"])
