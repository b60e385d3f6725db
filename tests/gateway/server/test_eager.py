"""A coroutine that is started eagerly does the same as a task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from seqgate.gateway.server.dispatcher import Finished, StartedCoroutine, Timed, begin


async def resume(work: StartedCoroutine[Any] | Timed[Any]) -> Any:
    return await work


async def test_what_need_not_wait_is_finished_at_once() -> None:
    async def work() -> str:
        return "done"

    begun = begin(work())
    assert isinstance(begun, Finished)
    assert begun.value == "done"


async def test_what_it_raises_at_once_is_raised() -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin(work())


async def test_it_goes_on_in_a_task() -> None:
    futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
    steps = []

    async def work() -> int:
        steps.append(await futures[0])
        await asyncio.sleep(0)
        steps.append(await futures[1])
        return 7

    begun = begin(work())
    assert isinstance(begun, StartedCoroutine)
    task = asyncio.create_task(resume(begun))
    futures[0].set_result("a")
    await asyncio.sleep(0)
    futures[1].set_result("b")
    assert await task == 7
    assert steps == ["a", "b"]


async def test_what_it_waits_for_may_fail() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await future
        except OSError:
            await asyncio.sleep(0)
            return "caught"
        return "not met"

    begun = begin(work())
    assert isinstance(begun, StartedCoroutine)
    future.set_exception(OSError())
    assert await asyncio.create_task(resume(begun)) == "caught"


async def test_it_may_raise_after_waiting() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    begun = begin(work())
    assert isinstance(begun, StartedCoroutine)
    with pytest.raises(ValueError, match="later"):
        await asyncio.create_task(resume(begun))


async def test_it_can_be_cancelled_and_cleans_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    begun = begin(work())
    assert isinstance(begun, StartedCoroutine)
    task = asyncio.create_task(resume(begun))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


async def test_only_its_own_steps_are_timed() -> None:
    seconds = 0.0
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def now_s() -> float:
        return seconds

    async def work() -> str:
        nonlocal seconds
        seconds += 2
        answer = await future
        seconds += 3
        return answer

    timed = Timed(work(), now_s)
    task = asyncio.create_task(resume(timed))
    await asyncio.sleep(0)
    seconds += 100
    future.set_result("done")
    assert await task == "done"
    assert timed.busy_s == 5


async def test_one_that_is_cancelled_is_timed_as_well() -> None:
    seconds = 0.0
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        nonlocal seconds
        try:
            await future
        except asyncio.CancelledError:
            seconds += 3
        return "cancelled"

    timed = Timed(work(), lambda: seconds)
    task = asyncio.create_task(resume(timed))
    await asyncio.sleep(0)
    seconds += 100
    task.cancel()
    assert await task == "cancelled"
    assert timed.busy_s == 3
