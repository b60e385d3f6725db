"""Tasks end together."""

from __future__ import annotations

import asyncio

import pytest

from seqgate.gateway.tasks import all_of, end_tasks


async def _failing() -> int:
    await asyncio.sleep(0)
    raise ConnectionError


async def test_ended_tasks_have_ended_whatever_they_raise() -> None:
    tasks = [asyncio.ensure_future(_failing()), asyncio.ensure_future(asyncio.sleep(60))]
    await asyncio.wait(tasks[:1])
    await end_tasks(*tasks, None)
    assert all(task.done() for task in tasks)


async def test_without_tasks_nothing_waits() -> None:
    await end_tasks()
    await end_tasks(None)


async def test_all_results_come_in_order() -> None:
    assert await all_of([asyncio.ensure_future(asyncio.sleep(s, s)) for s in (0.002, 0.001)]) == [
        0.002,
        0.001,
    ]


async def test_one_that_fails_ends_the_others_first() -> None:
    other = asyncio.ensure_future(asyncio.sleep(60, 1))
    with pytest.raises(ConnectionError):
        await all_of([asyncio.ensure_future(_failing()), other])
    assert other.cancelled()


async def test_a_cancelled_caller_ends_all() -> None:
    other = asyncio.ensure_future(asyncio.sleep(60, 1))
    caller = asyncio.ensure_future(all_of([other]))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert other.cancelled()
