"""A replay as it happens: orders go to the agents, and the group's journal is watched.

However it ends, the agents hear of it, or notice the silence: what is frozen goes on, and as many members run as before.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import cast, get_args

import attrs

from cobalance.errors import ServerError
from cobalance.journal import BEGINNING, Journal, JournalEntry
from cobalance.threads.gate import Gate
from cobalance_sims.replay.limits import LimitWatch
from cobalance_sims.replay.plan import Plan, PlannedDeed, Verb, orders
from cobalance_sims.replay.posts import BEAT_S, SILENT_S, Post, Posts
from cobalance_sims.replay.stage import NotReady, ReplayStage, Target, label, listed

TURN_S = 0.1
REACHED_S = 5.0
"""How long agents may take to obey, and at the end to restore."""

INTERRUPTED = "it was interrupted"


@attrs.frozen(kw_only=True)
class Deed:
    """What was done to a member."""

    at_ms: int
    """Since the beginning of the replay."""
    verb: Verb
    member: int
    """As in the plan."""
    label: str = ""
    """Host and process id."""
    place: int = 0
    """For ``start``, as in the plan."""
    is_seen: bool = False
    """For ``kill``: the group saw it at once, and did not wait for the end of the session."""


@attrs.frozen(kw_only=True)
class Performance:
    """What happened."""

    stage: ReplayStage
    plan: Plan
    begun_ms: int
    """On the group's clock."""
    length_ms: int
    deeds: list[Deed]
    declined: list[str]
    """Orders that were not carried out, and why."""
    aborted: str
    """Why it was ended early; "" if it was not."""
    entries: list[JournalEntry]
    """The journal, from its beginning."""


def new_name() -> str:
    """A name for a replay, under which its posts are."""
    return uuid.uuid4().hex[:8]


class Performer:
    """Performs a plan once.

    Args:
        say: called with a line of text about what is done.
        lag: the present lag, if that is known.
    """

    def __init__(
        self,
        posts: Posts,
        journal: Journal,
        *,
        stage: ReplayStage,
        plan: Plan,
        watch: LimitWatch,
        say: Callable[[str], object],
        lag: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._posts, self._journal, self._stage, self._plan, self._watch = posts, journal, stage, plan, watch
        self._say, self._lag = say, lag
        self._targets: dict[int, Target] = dict(enumerate(stage.targets, 1))
        self._numbers = {(it.agent, it.name): number for number, it in self._targets.items()}
        self._others = {it.label for it in stage.members} - {it.label for it in stage.targets}
        self._alive: dict[str, set[str]] = {}
        """By agent: the labels of its processes that run."""
        self._heard_at: dict[str, float] = {}
        self._entries: list[JournalEntry] = []
        self._deeds: list[Deed] = []
        self._declined: list[str] = []
        self._answers: set[tuple[object, ...]] = set()
        self._trouble = ""
        self._begun_ms = 0
        self._goes_at = 0.0
        self._ordered: list[PlannedDeed] = []

    def perform(self, stop: Gate) -> Performance:
        """Performs it; ``stop`` ends it early.

        Raises:
            NotReady: an agent does not obey.
            ServerError: Redis cannot be reached at the beginning.
        """
        self._look()
        self._watch.know((it.id, it.label) for it in self._stage.members)
        try:
            self._begin(stop)
            aborted = self._go_on(stop)
            length_ms = self._now_ms()
        finally:
            with suppress(ServerError):
                self._posts.write("end")
        self._await({"restored", "gone"}, REACHED_S)
        with suppress(ServerError):
            self._look()
        return Performance(
            stage=self._stage,
            plan=self._plan,
            begun_ms=self._begun_ms,
            length_ms=length_ms,
            deeds=sorted(self._deeds, key=lambda it: it.at_ms),
            declined=self._declined,
            aborted=aborted,
            entries=self._entries,
        )

    def _begin(self, stop: Gate) -> None:
        self._posts.write("begin")
        silent = self._await({"obeys", "refuses"}, REACHED_S, stop)
        if (self._trouble or silent) and not stop.is_open:
            raise NotReady(f"No replay: {self._trouble or f'the agent {min(silent)} does not answer'}.")
        self._begun_ms, self._begun_at = self._posts.write("go"), time.monotonic()

    def _await(self, kinds: set[str], within_s: float, stop: Gate | None = None) -> set[str]:
        """Waits for such a post of each agent; returns those of whom there was none."""
        silent, until = set(self._stage.agents), time.monotonic() + within_s
        while silent and time.monotonic() < until and not (stop and stop.is_open):
            with suppress(ServerError):
                for post in self._posts.read():
                    self._hear(post)
                    silent -= {post.sender} if post.kind in kinds else set()
            time.sleep(TURN_S)
        return silent

    def _now_ms(self) -> int:
        return int((time.monotonic() - self._begun_at) * 1000)

    def _go_on(self, stop: Gate) -> str:
        """Returns why it was ended early."""
        self._heard_at = dict.fromkeys(self._stage.agents, time.monotonic())
        due, reached_at = orders(self._plan, self._stage.startup_ms), time.monotonic()
        while self._now_ms() < self._plan.churn.length_ms:
            try:
                while due and due[0][0] <= self._now_ms():
                    self._order(due[0][1])
                    del due[0]
                self._exchange()
                reached_at = time.monotonic()
            except ServerError as error:
                if time.monotonic() - reached_at > SILENT_S:
                    return f"Redis cannot be reached: {error}"
            if reason := INTERRUPTED if stop.is_open else self._reason():
                return reason
            stop.wait(TURN_S)
        return ""

    def _exchange(self) -> None:
        if time.monotonic() >= self._goes_at:
            self._posts.write("go")
            self._goes_at = time.monotonic() + BEAT_S
        for post in self._posts.read():
            self._hear(post)
        self._look()

    def _look(self) -> None:
        after = self._entries[-1].id if self._entries else BEGINNING
        for entry in self._journal.entries(after):
            self._watch.take(entry, counts=bool(self._begun_ms))
            self._entries.append(entry)

    def _reason(self) -> str:
        lost = [agent for agent, at in self._heard_at.items() if time.monotonic() - at > SILENT_S]
        if self._trouble or lost:
            return self._trouble or f"the agent {lost[0]} has said nothing for {SILENT_S:.0f} s"
        now_ms = self._begun_ms + self._now_ms()
        return self._watch.reason(now_ms, self._lag(), somebody_runs=bool(self._others.union(*self._alive.values())))

    # -- orders --------------------------------------------------------------------------------------------------------

    def _order(self, step: PlannedDeed) -> None:
        number = len(self._ordered)
        if step.verb == "start":
            places = self._stage.places
            agent, slot = places[min(step.place, len(places)) - 1]
            target = Target(agent, f"{self._posts.sender}-{step.member}", "")
            self._targets[step.member] = target
            self._numbers[agent, target.name] = step.member
            words = {"slot": slot}
        else:
            target, words = self._targets[step.member], {}
        if step.verb == "freeze":
            words = {"for_ms": step.for_ms or 0}
        self._posts.write("order", agent=target.agent, order=number, verb=step.verb, name=target.name, **words)
        self._ordered.append(step)

    # -- what agents say -----------------------------------------------------------------------------------------------

    def _hear(self, post: Post) -> None:
        if post.sender not in self._stage.agents or post.text("replay") not in {"", self._posts.sender}:
            return
        self._heard_at[post.sender] = time.monotonic()
        if post.kind == "beat":
            self._hear_beat(post)
        elif post.kind in {"done", "declined"}:
            self._hear_answer(post)
        else:
            self._trouble = self._trouble or _trouble(post)

    def _hear_answer(self, post: Post) -> None:
        """Once, however often it was posted."""
        answer = (post.sender, post.kind, post.text("verb"), post.text("name"), post.number("order"))
        if answer in self._answers:
            return
        self._answers.add(answer)
        if post.kind == "done":
            self._done(post)
        else:
            step = self._step_of(post)
            self._declined.append(f"{step.verb} {step.member}: {post.text('why')}" if step else post.text("why"))

    def _hear_beat(self, post: Post) -> None:
        if self._begun_ms and not post.text("replay"):
            self._trouble = self._trouble or f"the agent {post.sender} does not obey any more"
        self._alive[post.sender] = {
            label(post.sender, pid) for _, _, pid, state, _ in listed(post) if state != "frozen"
        }

    def _step_of(self, post: Post) -> PlannedDeed | None:
        number = post.number("order")
        return self._ordered[number] if 0 <= number < len(self._ordered) else None

    def _done(self, post: Post) -> None:
        member, verb = self._numbers.get((post.sender, post.text("name"))), post.text("verb")
        if member is None or verb not in get_args(Verb) or not self._begun_ms:
            return
        who = label(post.sender, post.number("pid"))
        at_ms = max(0, post.at_ms - self._begun_ms)
        step = self._step_of(post)
        place = step.place if step else 0
        self._deeds.append(Deed(at_ms=at_ms, verb=cast("Verb", verb), member=member, label=who, place=place))
        self._say(f"{at_ms / 1000:7.1f} s  {verb} {member} ({who})")
        if verb == "kill":
            self._watch.killed(who, post.at_ms)


def _trouble(post: Post) -> str:
    """Why a replay cannot go on after this post; "" if it can."""
    if post.kind == "ended":
        return f"{post.text('name')} of agent {post.sender} has ended by itself with {post.words.get('code')}"
    if post.kind == "refuses":
        return f"the agent {post.sender} refuses: {post.text('why')}"
    return f"the agent {post.sender} has ended" if post.kind == "gone" else ""
