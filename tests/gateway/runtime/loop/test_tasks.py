"""Long-running tasks are listed while they run and for some time afterwards."""

from __future__ import annotations

import asyncio

from seqgate.gateway.runtime.loop.clock import KEPT_FINISHED, LONG_MS, TaskList
from tests.gateway.handlers.support import FixedClock


def ended(tasks: TaskList) -> list[tuple[str, str | None]]:
    return [(task.name, task.failure) for task in tasks if task.ended_ms is not None]


async def test_work_is_listed_while_it_runs_with_its_outcome() -> None:
    tasks = TaskList(FixedClock())
    go_on = asyncio.Event()

    async def fail() -> None:
        await go_on.wait()
        raise OSError("no room")

    good, bad = tasks.begin("good"), tasks.begin("bad")
    works = [tasks.start(good, asyncio.sleep(0)), tasks.start(bad, fail())]
    assert [task.name for task in tasks] == ["good", "bad"]
    go_on.set()
    await asyncio.gather(*works, return_exceptions=True)
    await asyncio.sleep(0)
    assert set(ended(tasks)) == {("good", None), ("bad", "no room")}
    assert tasks.get(good.number) is good


async def test_brief_work_is_forgotten_unless_it_took_long() -> None:
    clock = FixedClock()
    tasks = TaskList(clock)
    tasks.end(tasks.begin("quick", is_brief=True))
    slow = tasks.begin("slow", is_brief=True)
    clock.time_ms += LONG_MS
    tasks.end(slow)
    assert ended(tasks) == [("slow", None)]


async def test_finished_tasks_are_bounded() -> None:
    tasks = TaskList(FixedClock())
    for number in range(KEPT_FINISHED + 5):
        tasks.end(tasks.begin(f"{number}"))
    assert [task.name for task in tasks] == [f"{number}" for number in range(5, KEPT_FINISHED + 5)]


async def test_a_stop_cancels_running_work() -> None:
    tasks = TaskList(FixedClock())
    tasks.start(tasks.begin("endless"), asyncio.Event().wait())
    await tasks.stop()
    assert ended(tasks) == [("endless", "the task was cancelled")]
