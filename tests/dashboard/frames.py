"""How pages of 2,000 partitions keep up with the screen, as the dashboard's README has it: `python -m tests.dashboard.frames`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chromium import browser, find_chromium, until, window
from tests.dashboard.scenes import Scene
from tests.names import unique

from cobalance import GroupAdmin
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.dashboard.server import DashboardServer

PAGES = {"groups/g": ".virtual", "groups/g/handovers": ".timeline"}
"""Each page, and what scrolls in it."""

SCROLLED = """(async () => {
  const box = document.querySelector('%s'), at = [await new Promise(requestAnimationFrame)];
  for (let step = 0; step < 60; step++) { box.scrollTop += 400; at.push(await new Promise(requestAnimationFrame)); }
  const took = at.slice(1).map((it, index) => it - at[index]).sort((a, b) => a - b);
  return [took[30], took[59], performance.getEntriesByName('first-contentful-paint')[0].startTime];
})()"""
"""Milliseconds: the median and the longest of 60 frames, and the time to the first paint."""


@contextmanager
def large() -> Iterator[str]:
    """2,000 partitions of four members, after a handover of 500; yields the dashboard's URL."""
    scene = Scene(2_000, members=4)
    with (
        GroupAdmin(transport=MemoryTransport(scene.backend.store), amqp_url=f"memory://{unique('dashboard')}") as admin,
        DashboardServer(admin, port=0) as server,
    ):
        yield server.url


def main() -> None:
    with large() as url, browser(find_chromium()) as program:
        for path, box in PAGES.items():
            with window(program, viewport={"width": 1280, "height": 800}) as found:
                found.page.goto(url + path)
                until(found.page, f"document.querySelector('{box}')?.scrollHeight > 40_000")
                frame_ms, longest_ms, painted_ms = found.page.evaluate(SCROLLED % box)
                frames = f"{frame_ms:.1f} ms a frame, the longest {longest_ms:.1f} ms"
                sys.stdout.write(f"{path}: {frames}; first paint {painted_ms:.0f} ms\n")


if __name__ == "__main__":
    main()
