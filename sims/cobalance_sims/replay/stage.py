"""To whom a replay happens: the agents that are there, their processes, and whether these are all of the group."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import attrs

from cobalance.coordinator.advice import command
from cobalance.coordinator.client import Coordinator, MemberRow
from cobalance.errors import CobalanceError
from cobalance.threads.gate import Gate
from cobalance_sims.replay.posts import BEAT_S, Post, Posts

HEARD_S = 3 * BEAT_S
"""Agents that are there have said so by then."""

LOOK_S = 0.2
LONGEST_STARTUP_MS = 60_000


class NotReady(CobalanceError):
    """The group is not as a replay needs it; the message says what to do."""


@attrs.frozen
class Target:
    """A process that an agent has started."""

    agent: str
    name: str
    label: str
    """Host and process id, as in the label of its member."""
    started_ms: int = 0
    """When it was started, on Redis's clock."""


@attrs.frozen(kw_only=True)
class ReplayStage:
    """The group as it is before a replay."""

    targets: list[Target]
    """The first members, in the order of the plan's numbers."""
    members: list[MemberRow]
    """Those of the targets, in their order; then others."""
    resources: int
    at_most: dict[str, int]
    """By agent: how many processes it may have."""

    @property
    def places(self) -> list[tuple[str, int]]:
        """Agent and slot: those of the targets, then what is left, dealt out among the agents."""
        agents = [it.agent for it in self.targets]
        found = [(agent, agents[: at + 1].count(agent)) for at, agent in enumerate(agents)]
        more = [
            (slot, at, agent)
            for at, agent in enumerate(self.agents)
            for slot in range(agents.count(agent) + 1, self.at_most[agent] + 1)
        ]
        return found + [(agent, slot) for slot, _, agent in sorted(more)]

    @property
    def agents(self) -> list[str]:
        """The agents, in the order in which additional processes are started."""
        return list(dict.fromkeys(it.agent for it in self.targets))

    @property
    def startup_ms(self) -> int:
        """How long the program takes from its start until it has joined; 0 if that is not known, since all have joined
        again since.
        """
        took = min(member.joined_ms - it.started_ms for it, member in zip(self.targets, self.members, strict=False))
        return took if 0 <= took <= LONGEST_STARTUP_MS else 0

    @property
    def has_instances(self) -> bool:
        """Whether members have instance ids."""
        return any(it.instance_id for it in self.members)


def label(agent: str, pid: int) -> str:
    """The label of a member that runs beside this agent."""
    return f"{agent.rpartition('/')[0]}/{pid}"


def listed(beat: Post) -> list[tuple[str, int, int, str, int]]:
    """The processes in a beat: name, slot, pid, state, age in ms. Rows of another form are passed over."""
    rows = beat.words.get("processes")
    forms = (str, int, int, str, int)
    return [tuple(row) for row in (rows if isinstance(rows, list) else ()) if list(map(type, row)) == list(forms)]


def find_agents(posts: Posts, group: str, wait: Gate) -> dict[str, Post]:
    """The newest beat of each agent.

    Raises:
        NotReady: there is none, or it is in another replay.
    """
    posts.write("hello")
    found: dict[str, Post] = {}
    until = time.monotonic() + HEARD_S
    settled = until
    while time.monotonic() < min(until, settled) and not wait.wait(LOOK_S):
        for post in posts.read():
            if post.kind == "beat" and post.words.get("processes"):
                found[post.sender] = post
                settled = min(settled, time.monotonic() + BEAT_S)
    if not found:
        raise NotReady(
            f"No agent is in group {group}: start one beside its members' program, as in "
            f"`{command('sims agent', key_prefix=posts.key_prefix, group=group)} -- python my_member.py`."
        )
    if busy := [it for it in found.values() if it.text("replay")]:
        raise NotReady(f"The agent {busy[0].sender} is in replay {busy[0].text('replay')}: wait for its end.")
    return found


def await_stage(
    coordinator: Coordinator, beats: Collection[Post], wait: Gate, *, within_s: float, allow_others: bool = False
) -> ReplayStage:
    """Waits until the agents' processes are the group's members, and all of its resources are held.

    Raises:
        NotReady: it takes too long, or there are members that no agent has started.
        UnknownGroup: no member has joined, and nobody has created the group.
    """
    rows = [
        (slot, beat, name, pid, age)
        for beat in beats
        for name, slot, pid, state, age in listed(beat)
        if state == "running"
    ]
    rows.sort(key=lambda it: (it[0], it[1].sender))
    targets = [Target(beat.sender, name, label(beat.sender, pid), beat.at_ms - age) for _, beat, name, pid, age in rows]
    until = time.monotonic() + within_s
    while True:
        members = list(coordinator.members())
        resources = list(coordinator.resources())
        labels = {it.label: it for it in members if it.status == "active"}
        others = [it for it in members if it.label not in {target.label for target in targets}]
        why = unready(targets, labels, [] if allow_others else others, [it.status for it in resources])
        if not why:
            own = [labels[it.label] for it in targets]
            at_most = {it.sender: it.number("at_most") for it in beats}
            return ReplayStage(targets=targets, members=[*own, *others], resources=len(resources), at_most=at_most)
        if time.monotonic() >= until or wait.wait(LOOK_S):
            raise NotReady(f"Group {coordinator.group} is not ready: {why}.")


def unready(
    targets: Sequence[Target], labels: dict[str, MemberRow], others: Sequence[MemberRow], statuses: Sequence[str]
) -> str:
    """Why a replay cannot begin; "" if it can."""
    if not targets:
        return "no process of an agent runs"
    for it in targets:
        if it.label not in labels:
            return (
                f"{it.name} of agent {it.agent} (process {it.label}) is not a member of it; the command has to be the member "
                "itself (in a shell script: exec)"
            )
    if others:
        return (
            f"its member {others[0].label or others[0].id} was started by no agent; start it with one, or give --allow-others if a "
            "replay may move what it holds"
        )
    if not statuses:
        return "it has no resources"
    waiting = sum(status not in {"held", "halted"} for status in statuses)
    return f"{waiting} of its {len(statuses)} resources are on their way" if waiting else ""
