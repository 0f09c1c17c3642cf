"""Groups with a past, made by the production scripts in virtual time."""

from __future__ import annotations

from tests.coordinator.backends import MemoryBackend
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.client import Coordinator

GROUP = "g"


class WatchedGroup(Group):
    """Others look at it meanwhile, and looking writes: its records are not checked after each call."""

    def check(self) -> None:
        """Nothing is checked."""


class Scene:
    """A group, and the clock of its Redis."""

    def __init__(self, partitions: int, members: int = 2) -> None:
        self.backend = MemoryBackend("luajit21")
        self.group = WatchedGroup(self.backend)
        self.partitions = names(partitions, "orders-")
        first = self.join(1)
        self.group.set_resources(first, self.partitions)
        self.settle()
        for number in range(2, members + 1):
            self.join(number)
            self.settle()

    def join(self, number: int, **options: object) -> Member:
        """A process joins."""
        return self.group.join(f"m{number}", label=f"web-{number}/{4710 + number}", **options)

    def member(self, number: int) -> Member:
        """The one that joined under this number."""
        return self.group.members[f"m{number}"]

    def hear(self) -> None:
        """Everybody hears what is new."""
        for member in self.group.members.values():
            if not member.is_over:
                member.hear()

    def settle(self, drain_ms: int = 400) -> None:
        """Time passes, and everybody releases what is asked back, until nothing is."""
        self.hear()
        while any(member.pending for member in self.group.members.values()):
            self.pass_time(drain_ms)
            for member in self.group.members.values():
                if member.pending:
                    member.release(*member.pending)
            self.hear()

    def pass_time(self, ms: int) -> None:
        """Time passes while everybody keeps its session."""
        while ms > 0:
            step = min(ms, SETTINGS.heartbeat_interval_ms)
            self.backend.now_ms += step
            self.hear()
            ms -= step

    def other_group(self, name: str) -> None:
        """Another group in the same Redis, without members."""
        Coordinator(self.backend, name).create(SETTINGS)


def churned(partitions: int = 12) -> Scene:
    """Three members after a planned handover, a forced one, a leave and a crash; and one partition that is draining."""
    scene = Scene(partitions, members=3)
    scene.pass_time(20_000)
    scene.join(4)
    scene.hear()
    scene.pass_time(SETTINGS.revocation_timeout_ms + 500)  # nobody releases anything
    scene.hear()
    scene.pass_time(10_000)
    scene.group.members.pop("m2")  # it is killed
    scene.pass_time(2 * SETTINGS.session_timeout_ms)
    scene.settle()
    scene.pass_time(15_000)
    scene.join(5)
    scene.settle(drain_ms=1_500)
    scene.pass_time(8_000)
    scene.join(6)
    scene.hear()
    scene.pass_time(1_000)
    return scene
