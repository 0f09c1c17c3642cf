"""Wake-ups from any thread to a task, on asyncio and trio."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

import anyio
import pytest

from cobalance.threads.wakeup import Crossing, Wakeup, result_of

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])
WAIT_S = 60


def in_thread(action: Callable[[], object]) -> None:
    threading.Thread(target=action, daemon=True).start()


def test_a_notification_wakes_the_task(backend: str) -> None:
    """One wait takes all notifications before it."""

    async def main() -> None:
        wakeup = Wakeup()
        with anyio.fail_after(WAIT_S):
            for _ in range(3):
                in_thread(wakeup.notify)
                await wakeup.wait()

    anyio.run(main, backend=backend)


def test_a_notification_before_the_wait_is_not_lost(backend: str) -> None:
    """A common race: the notification came while the task was still busy."""

    async def main() -> None:
        wakeup = Wakeup()
        wakeup.notify()
        with anyio.fail_after(WAIT_S):
            await wakeup.wait()

    anyio.run(main, backend=backend)


def test_a_notification_after_the_loop_is_gone_is_harmless(backend: str) -> None:
    """The I/O thread may outlive the event loop."""

    async def main() -> Wakeup:
        return Wakeup()

    anyio.run(main, backend=backend).notify()


def test_a_future_is_awaited(backend: str) -> None:
    """Its result and its error come through, whether it ends before or after."""
    future, failed, done = Future[int](), Future[int](), Future[int]()
    done.set_result(1)

    async def main() -> None:
        in_thread(lambda: future.set_result(7))
        in_thread(lambda: failed.set_exception(KeyError("x")))
        with anyio.fail_after(WAIT_S):
            assert await result_of(done) == 1
            assert await result_of(future) == 7
            with pytest.raises(KeyError):
                await result_of(failed)

    anyio.run(main, backend=backend)


def test_giving_up_leaves_the_future_alone(backend: str) -> None:
    """Others may be waiting for it too."""
    future = Future[int]()

    async def main() -> None:
        with anyio.move_on_after(0):
            await result_of(future)

    anyio.run(main, backend=backend)
    assert not future.done()
    future.set_result(1)


def test_a_burst_of_futures_crosses_over_once(backend: str) -> None:
    """However many tasks wait. What has already ended is not awaited."""
    futures = [Future[int]() for _ in range(5)]

    async def main() -> None:
        crossing, crossings, results = Crossing(), list[object](), list[int]()
        run_soon = crossing.loop.run_soon

        def counted(do: Callable[[], None]) -> None:
            crossings.append(do)
            run_soon(do)

        crossing.loop.run_soon = counted  # type: ignore[method-assign]

        async def wait(future: Future[int]) -> None:
            results.append(await crossing.result_of(future))

        with anyio.fail_after(WAIT_S):
            futures[0].set_result(0)
            async with anyio.create_task_group() as tasks:
                for future in futures:
                    tasks.start_soon(wait, future)
                await anyio.wait_all_tasks_blocked()
                for number, future in enumerate(futures[1:], 1):
                    future.set_result(number)
        assert sorted(results) == [0, 1, 2, 3, 4]
        assert len(crossings) == 1

    anyio.run(main, backend=backend)


def test_a_loop_knows_whether_it_is_the_current_one(backend: str) -> None:
    """Waiting for another loop's event would never end."""

    async def main() -> Crossing:
        crossing = Crossing()
        assert crossing.loop.is_current()
        return crossing

    other = anyio.run(main, backend=backend)

    async def elsewhere() -> None:
        assert not other.loop.is_current()

    for kind in ("asyncio", "trio"):
        anyio.run(elsewhere, backend=kind)
