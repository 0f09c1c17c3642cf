"""Messages for a group's resources, and which member was handed which: the effect on consumers.

A message is a number within its resource, counting from 0. A tenure starts at the offset that was committed at its
beginning, hands out nothing more once its resource is asked back, and commits what it handed out with its release.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.coordinator.driver import Group, Member


class Messages:
    """What was published, and every delivery of it."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.published: Counter[str] = Counter()
        self.handed: dict[tuple[str, int], list[str]] = defaultdict(list)
        """(resource, number) → the members that were handed it, in order."""
        self._next: dict[tuple[str, str, int], int] = {}

    def publish(self, names: Iterable[str], count: int = 1) -> None:
        """Publishes this many more for each of these."""
        for name in names:
            self.published[name] += count

    def poll(self, *members: Member) -> list[str]:
        """Hands out one message of everything that may begin (to all members, if none is named), and returns the
        resources.
        """
        polled: list[str] = []
        for member in members or tuple(self.group.members.values()):
            begins = [it for it in sorted(member.holds) if not member.holds[it].pending and member.works_on(it)]
            polled += [name for name in begins if self._hand_out(member, name)]
        return polled

    def poll_all(self) -> None:
        """Hands out messages until there are none left."""
        while self.poll():
            pass

    def position(self, member: Member, name: str) -> int:
        """The position of a tenure."""
        tenure = member.holds[name]
        return self._next.get((member.id, name, tenure.token), tenure.committed or 0)

    def commit(self, member: Member, *names: str) -> list[str]:
        """Commits what was handed out of these (of everything held, if none is named)."""
        return [member.commit(name, self.position(member, name)) for name in names or sorted(member.holds)]

    def release(self, member: Member, *names: str) -> tuple[str, ...]:
        """Finishes these (everything asked back, if none is named): one call commits and releases each."""
        results: tuple[str, ...] = ()
        for name in names or member.pending:
            at = self.position(member, name)
            results += member.release(name, delivered=at, committed=at, offset=at)
        return results

    def drain(self, *members: Member) -> None:
        """All members finish what is asked back and poll on, until nothing is asked back."""
        for _ in range(200):
            self.group.beat(*members)
            everybody = members or tuple(self.group.members.values())
            if not [self.release(it) for it in everybody if it.pending and not it.is_over and not it.silent]:
                return
        raise AssertionError("the group never comes to rest")

    def _hand_out(self, member: Member, name: str) -> bool:
        at = self.position(member, name)
        if at >= self.published[name]:
            return False
        self.handed[name, at].append(member.id)
        self._next[member.id, name, member.holds[name].token] = at + 1
        return True

    # -- results -----------------------------------------------------------------------------------------------------

    @property
    def again(self) -> list[tuple[str, int]]:
        """Handed out more than once."""
        return sorted(message for message, members in self.handed.items() if len(members) > 1)

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Published and never handed out."""
        return [
            (name, at)
            for name in sorted(self.published)
            for at in range(self.published[name])
            if not self.handed.get((name, at))
        ]

    def check_each_once(self) -> None:
        """Nothing was lost or delivered twice."""
        assert self.again == []
        assert self.missing == []
