"""Why a group, or one of its partitions, is as it is: in sentences, from the snapshot and the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import UsageError, counted
from cobalance.operate.backlog import ENDS_BEFORE, ends_before
from cobalance.operate.verdict import WINDOW_MS
from cobalance.operate.wording import Wording, duration, expired, of_group

if TYPE_CHECKING:
    from cobalance.description import GroupDescription, MemberDescription, ResourceDescription
    from cobalance.operate.moves import Account

MOST_NAMED = 5
NOT_RETURNED = "its handler, or one before it, has not returned"


@attrs.frozen
class Explanation:
    """Explains from one snapshot, and what a journal says."""

    group: GroupDescription
    account: Account

    def sentences(self) -> list[str]:
        """About the account's partition, or about the group if it has none.

        Raises:
            UsageError: there is no such partition.
        """
        name = self.account.resource
        if name is None:
            return [*self._of_group()]
        resource = next((it for it in self.group.resources if it.name == name), None)
        if resource is None:
            raise UsageError(self._missing(name))
        where, why = [*self._where(resource)], [*self._why(resource)]
        return [*where, *why, *self._waiting(resource), *self._work(resource), *self._gaps()]

    def attention(self) -> list[str]:
        """What somebody should know of the group first, from the snapshot alone; empty if nothing."""
        return [*self._of_members(), *self._of_partitions()]

    def _missing(self, name: str) -> str:
        known = [it.name for it in self.group.resources]
        if any(it.name == name for it in self.group.let_go):
            return f"{name!r} has left group {self.group.name!r}, since no member names it any more; its offset is kept"
        return f"group {self.group.name!r} has no {name!r}: it has {_listed(known) or 'nothing'}"

    # -- a partition ---------------------------------------------------------------------------------------------------

    def _where(self, it: ResourceDescription) -> Iterator[str]:
        owner, since = self._who(it.owner), duration(it.age_ms)
        meanings = {
            "held": f"{it.name} is held by {owner} under token {it.token}, for {since}.",
            "granted": f"{it.name} was granted to {owner} {since} ago under token {it.token}; it has not confirmed that yet.",
            "pending": f"{it.name} is being handed over by {owner}, whose drain has taken {since}.",
            "graced": f"{it.name} is kept for {owner}, {self._kept(it)}.",
            "free": f"{it.name} is held by nobody, for {since}.",
            "halted": f"{it.name} has been worked by nobody for {since}: {it.halted}.",
        }
        yield meanings.get(it.state, f"{it.name} is {it.state}.")
        if it.is_removing:
            yield "It is being removed: no list names it any more."

    def _kept(self, it: ResourceDescription) -> str:
        """How its holder went, and how long ago, as the journal has it; or else the snapshot."""
        graced = self.account.graced(it.owner)
        age_ms = it.age_ms if graced is None else self.group.at_ms - graced.at_ms
        is_silent = graced is not None and graced.reason not in {"left", "replaced"}
        went = f"which {expired(graced.reason)}" if graced is not None and is_silent else "which has gone"
        return went if age_ms is None else f"{went}, for {duration(age_ms)} by now"

    def _why(self, it: ResourceDescription) -> Iterator[str]:
        moves = self.account.moves
        if moves.begun is None:
            yield "The journal does not say how it came there: it does not reach back so far."
            return
        yield f"{self._wording.begun(moves, f'{duration(self.group.at_ms - moves.begun.at_ms)} ago')}."
        ended = moves.ended
        if it.owner is None and ended is not None and ended.token == moves.begun.token:
            yield f"That ended {duration(self.group.at_ms - ended.at_ms)} ago: {self._wording.ended(moves, ended)}."
        if moves.revoked is not None and it.state == "pending":
            yield f"It is asked back, {self._wording.asked_back(moves)}."

    def _waiting(self, it: ResourceDescription) -> Iterator[str]:
        if it.state == "pending":
            limit = "" if it.deadline_in_ms is None else f"; in {duration(it.deadline_in_ms)} it is moved by force"
            yield f"It waits until that member has finished and released it{limit}."
            if not it.is_removing:
                yield "Then whoever has the most room gets it: that is decided at that moment, not before."
        elif it.state == "free":
            yield from self._waits_for_holder(it)
        elif it.state == "graced":
            owner = self._member(it.owner)
            left = duration(owner.expires_in_ms) if owner and owner.expires_in_ms is not None else "a while"
            yield f"It waits for that instance id to come back, for {left} more; then others get it."
        elif it.tried_in_ms is not None:
            yield f"It is tried again in {duration(it.tried_in_ms)}, or at once: {self._resume(it)}."
        elif it.halted is not None:
            yield f"It waits for an operator, once the cause is removed: {self._resume(it)}."

    def _waits_for_holder(self, it: ResourceDescription) -> Iterator[str]:
        if self.group.state == "Recovering":
            yield "It waits for members to say what they hold: a new group, or one whose data was lost, does so for a session timeout."
        elif self.group.state == "Empty":
            yield "It waits for a member: the group has none."
        elif not it.is_named:
            yield "It waits for a member that names it: none of those present does."
        elif not any(member.capacity for member in self.group.members):
            yield "It waits for a member with a capacity: all present are standbys (capacity 0)."
        else:
            yield "It is given away at the next call of any member."

    def _work(self, it: ResourceDescription) -> Iterator[str]:
        backlog = it.backlog
        if backlog.lag is not None:
            flight = f", {backlog.in_flight} of them in flight" if backlog.in_flight else ""
            oldest = f", the oldest for {duration(backlog.oldest_ms)}" if backlog.oldest_ms is not None else ""
            yield f"{counted(backlog.lag, 'message is', 'messages are')} left to do{flight}{oldest}."
            if (backlog.oldest_ms or 0) >= WINDOW_MS:
                yield f"{NOT_RETURNED.capitalize()}."
        elif ends_before(it.committed, backlog.log_end_offset):
            yield f"How much is left to do is unknown: the stream {ENDS_BEFORE}."
        known = backlog.lag is not None
        meanings = {
            "WARN": "They are worked, but more come than are done; or they wait for a move.",
            "STALL": "Nothing of that gets done." if known else "It is not worked.",
            "STOP": f"Nobody is there to {'do that' if known else 'work it'}.",
        }
        if it.verdict in meanings and (backlog.lag or it.verdict != "WARN"):
            yield f"{it.verdict}: {meanings[it.verdict]}"

    def _resume(self, it: ResourceDescription) -> str:
        return of_group(self.group, "resume", it.name)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _of_group(self) -> Iterator[str]:
        group, last = self.group, self.account.last_changes(self.group.settings.gather_ms)
        yield f"Group {group.name} is {group.state}: {counted(len(group.members), 'member')}, {counted(len(group.resources), 'partition')}."
        if last:
            ago, change = duration(group.at_ms - last[-1].entry.at_ms), self._wording.cause(last[-1].entry)
            began = f"it began {duration(group.at_ms - last[0].entry.at_ms)} ago"
            since = "then" if len(last) == 1 else began
            moved = counted(sum(it.moves for it in last), "partition")
            yield f"The last change was {ago} ago: {change}. Since {since}, {moved} moved or began."
        yield from (f"{it.kind} at {it.place}: {it.problem}" for it in group.servers if it.problem)
        yield from self._of_members()
        yield from self._of_partitions()
        yield from self._gaps()

    def _of_members(self) -> Iterator[str]:
        if self.group.state == "Recovering":
            yield "It waits for members to say what they hold; until then nothing moves."
        for state, words in (
            ("silent", "silent for longer than the session timeout, and nobody is there to act on that"),
            ("graced", "gone; what they held is kept for their instance ids"),
            ("leaving", "leaving: they finish what they hold"),
        ):
            found = [self._who(it.id) for it in self.group.members if it.state == state]
            if found:
                yield f"{_listed(found)}: {words}."

    def _of_partitions(self) -> Iterator[str]:
        for it in [it for it in self.group.resources if it.state == "pending"][:MOST_NAMED]:
            limit = "" if it.deadline_in_ms is None else f", by force in {duration(it.deadline_in_ms)}"
            yield f"{it.name} waits for {self._who(it.owner)} to finish, for {duration(it.age_ms)}{limit}."
        free = [it.name for it in self.group.resources if it.state == "free"]
        if free:
            yield f"{counted(len(free), 'partition')} held by nobody: {_listed(free)}."
        halted = [it for it in self.group.resources if it.halted is not None]
        for it in halted[:MOST_NAMED]:
            yield f"{it.name} is worked by nobody: {it.halted}; {self._resume(it)}."
        for verdict in ("STOP", "STALL", "WARN"):
            found = [it.name for it in self.group.resources if it.verdict == verdict]
            if found:
                yield f"{verdict}: {_listed(found)}."
        longest = max(self.group.resources, key=lambda it: it.backlog.oldest_ms or 0, default=None)
        if longest is not None and (longest.backlog.oldest_ms or 0) >= WINDOW_MS:
            age, owner = duration(longest.backlog.oldest_ms), self._who(longest.owner)
            yield f"{longest.name} has had a message in flight for {age}, at {owner}: {NOT_RETURNED}."

    # -- words ---------------------------------------------------------------------------------------------------------

    def _gaps(self) -> Iterator[str]:
        if self.account.missing:
            yield f"{counted(self.account.missing, 'entry of the journal is', 'entries of the journal are')} gone, so older causes may be missing."

    @property
    def _wording(self) -> Wording:
        return Wording(self._who)

    def _who(self, member: str | None) -> str:
        """Host and process, the instance id if it has one, and the member id."""
        if member is None:
            return "nobody"
        found = self._member(member)
        label = found.label if found is not None else self.account.labels.get(member)
        instance = f"{found.instance_id} on " if found is not None and found.instance_id else ""
        return f"{instance}{label} ({member})" if label else member

    def _member(self, member: str | None) -> MemberDescription | None:
        return next((it for it in self.group.members if it.id == member), None)


def _listed(names: Iterable[str]) -> str:
    them = [*names]
    rest = len(them) - MOST_NAMED
    return ", ".join(them[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
