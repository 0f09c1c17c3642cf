"""What is to happen in a replay: the churn lives once in the simulator, and what happens to its processes is noted.

So the faults are those of every other simulation (``simulate/churn_faults.py``), and the same seed gives the same plan.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import attrs

from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.simulate.kernel import Row

if TYPE_CHECKING:
    from cobalance.settings import GroupSettings
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World

Verb = Literal["start", "stop", "kill", "freeze", "resume"]

RATES = (
    "joins_per_hour",
    "leaves_per_hour",
    "crashes_per_member_hour",
    "replacements_per_member_hour",
    "pauses_per_member_hour",
)
_UNDRIVEN = {
    "cuts_per_member_hour": "connections to Redis are not cut",
    "hint_lost": "wake-ups are not lost",
    "host_deaths_per_hour": "machines stay: crashes_per_member_hour kills processes one by one",
    "outages_per_hour": "Redis is the group's own, and stays",
    "poison": "resources are the group's own",
}


@attrs.frozen(kw_only=True)
class PlannedDeed:
    """One order."""

    at_ms: int
    """Since the beginning."""
    verb: Verb
    member: int
    """The first members are 1 to N; later ones go on from there."""
    for_ms: int | None = None
    """For ``freeze``."""
    place: int = 0
    """For ``start``: 1 to N are the places of the first members; a successor takes a free one."""


@attrs.frozen(kw_only=True)
class Plan:
    """What happens to the members of a group."""

    churn: Churn
    """As it is replayed: of the group's size, and without what no agent can do."""
    seed: int
    steps: list[PlannedDeed]
    left_out: list[str]
    """What the churn has and the replay has not, in words."""

    @property
    def counts(self) -> Counter[str]:
        """How many orders there are of each verb."""
        return Counter(step.verb for step in self.steps)


def orders(plan: Plan, startup_ms: int) -> list[tuple[int, PlannedDeed]]:
    """When to order each step: who is to join at a moment has to start by so much earlier, but not before its
    predecessor was dealt with.
    """
    freed_ms: dict[int, int] = {}
    places: dict[int, int] = {}
    found = []
    for step in plan.steps:
        place = places.setdefault(step.member, step.place or step.member)
        if step.verb == "start":
            found.append((max(step.at_ms - startup_ms, freed_ms.get(place, 0)), step))
        else:
            found.append((step.at_ms, step))
        if step.verb in {"stop", "kill"}:
            freed_ms[place] = step.at_ms
    return sorted(found, key=lambda it: it[0])


def staged(
    churn: Churn, *, members: int, most: int, resources: int, instances: bool, length_ms: int, speed: float
) -> Churn:
    """The churn as this group can live it, ``speed`` times as eventful.

    Raises:
        BadChurn: it cannot.
    """
    faster: dict[str, Any] = {name: getattr(churn, name) * speed for name in RATES}
    return churn.changed(
        **faster,
        **dict.fromkeys(_UNDRIVEN, 0),
        deploy_every_ms=max(1_000, int(churn.deploy_every_ms / speed)),
        members=members,
        least_members=min(churn.least_members, members),
        most_members=max(members, min(churn.most_members, most)),
        resources=resources,
        instances=instances,
        capacities=(1,),
        drain_ms_of={},
        length_ms=length_ms,
    )


def draw(churn: Churn, as_staged: Churn, settings: GroupSettings, seed: int) -> Plan:
    """Draws a plan.

    Args:
        churn: what is known of production.
        as_staged: the same, as :func:`staged` returns it.
        settings: of the group that is to live so.
    """
    row = Row.read({"churn": as_staged.table(), "seed": seed, "checks": "none", **attrs.asdict(settings)})
    run = row.run()
    drawing = _Drawing(run.world, as_staged.members)
    run.world.watch.add(drawing)
    run.on_calm = drawing.stop  # type: ignore[method-assign]  # made for that
    run.tell()
    return Plan(churn=as_staged, seed=seed, steps=drawing.steps, left_out=_left_out(churn))


def _left_out(churn: Churn) -> list[str]:
    found = [f"{name} {getattr(churn, name):g}: {why}" for name, why in _UNDRIVEN.items() if getattr(churn, name)]
    found.append(
        "latency_ms, handle_ms, drain_ms, messages_per_s, prefetch: network, handlers and messages are the group's own"
    )
    if set(churn.capacities) != {1}:
        found.append("capacities: the members' own")
    return found


class _Drawing(Check):
    """Not a promise: it notes what happens to processes."""

    promise = ""

    def __init__(self, world: World, members: int) -> None:
        super().__init__(world)
        self.steps: list[PlannedDeed] = []
        self._first = members
        self._numbers: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._frozen: dict[str, int] = {}
        self._is_over = False

    def process_started(self, process: Process) -> None:
        if self._is_over:
            return
        number = self._numbers[process.name] = len(self._numbers) + 1
        self._places[process.name] = self._place(process)
        if number > self._first:
            self._add("start", process, place=self._places[process.name])

    def _place(self, process: Process) -> int:
        """That of its instance id, or the lowest free one."""
        instance = process.member_settings.instance_id
        if instance is not None:
            return int(instance.removeprefix("i")) + 1
        taken = {place for name, place in self._places.items() if name in self.world.living}
        return next(place for place in range(1, len(taken) + 2) if place not in taken)

    def asked_to_leave(self, process: Process) -> None:
        self._add("stop", process)

    def died(self, process: Process) -> None:
        self._add("kill", process)

    def frozen(self, process: Process) -> None:
        self._frozen[process.name] = len(self.steps)
        self._add("freeze", process)

    def thawed(self, process: Process) -> None:
        self._end_freeze(process.name)

    def stop(self) -> None:
        """The story is over; who is still frozen is so until the end."""
        for name in list(self._frozen):
            self._end_freeze(name)
        self._is_over = True

    def _end_freeze(self, name: str) -> None:
        at = self._frozen.pop(name, None)
        if at is not None and not self._is_over:
            step = self.steps[at]
            self.steps[at] = attrs.evolve(step, for_ms=self.world.clock.story - step.at_ms)

    def _add(self, verb: Verb, process: Process, place: int = 0) -> None:
        if not self._is_over:
            number = self._numbers[process.name]
            self.steps.append(PlannedDeed(at_ms=self.world.clock.story, verb=verb, member=number, place=place))
