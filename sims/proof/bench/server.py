"""A private Redis whose main thread's CPU is read before and after, so that other load does not count."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
import redis


class Server:
    """A private Redis, and the CPU its main thread has used."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._connection = client.connection_pool.get_connection()
        self.overhead_us = 0.0
        self.overhead_us = min(self.timed(lambda: None)[1] for _ in range(200))
        # How clock_gettime(2) names the CPU time of another process.
        self._clock = (~int(self.info("server")["process_id"]) << 3) | 2

    def command(self, *words: str | int | bytes) -> object:
        """Sends one command; returns its reply as the wire carries it."""
        self._connection.send_command(*words)  # type: ignore[no-untyped-call]
        return self._connection.read_response()

    def info(self, section: str) -> dict[str, str]:
        """What the server says of itself."""
        text = self.command("INFO", section)
        return dict(line.split(":", 1) for line in text.decode().split() if ":" in line)  # type: ignore[attr-defined]

    def spent_us(self) -> float:
        """Microseconds of CPU that the whole process has used, from the kernel, without asking the server."""
        return time.clock_gettime_ns(self._clock) / 1000

    def cpu_us(self) -> float:
        """Microseconds of CPU the main thread has used, in user and system mode."""
        lines = self.info("cpu")
        return (float(lines["used_cpu_user_main_thread"]) + float(lines["used_cpu_sys_main_thread"])) * 1e6

    def timed(self, work: Callable[[], object]) -> tuple[object, float]:
        """Returns the work's result, and the CPU it took the server."""
        before = self.cpu_us()
        result = work()
        return result, self.cpu_us() - before - self.overhead_us


@attrs.define
class CallTimes:
    """CPU of calls, by verb."""

    longest_us: dict[str, float] = attrs.Factory(dict)
    total_us: float = 0.0
    calls: int = 0
    each_us: list[float] = attrs.Factory(list)

    def add(self, verb: str, cpu_us: float) -> None:
        self.each_us.append(cpu_us)
        self.longest_us[verb] = max(self.longest_us.get(verb, 0.0), cpu_us)
        self.total_us += cpu_us
        self.calls += 1

    @property
    def over_5_ms(self) -> list[float]:
        """The calls above the goal, in ms: a busy machine makes different calls slow, our own code the same ones."""
        return [round(us / 1000, 1) for us in self.each_us if us > 5000]

    @property
    def p999_ms(self) -> float:
        """The 99.9th percentile: of a thousand calls, all but one are shorter."""
        return sorted(self.each_us)[int(len(self.each_us) * 0.999)] / 1000

    @property
    def longest_ms(self) -> float:
        """The longest call of any verb."""
        return max(self.longest_us.values(), default=0.0) / 1000
