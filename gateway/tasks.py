"""Starts tasks, waits for them, and ends those that are not needed any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def start_task(
    tasks: set[asyncio.Task[T]], work: Coroutine[Any, Any, T], name: str | None = None
) -> asyncio.Task[T]:
    """Begin work in a task, which `tasks` holds until the work ends: the event loop holds no task itself."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def settle(future: asyncio.Future[T], result: T) -> None:
    """Set the result of a future, unless the future is done: whoever waits for it may have been cancelled."""
    if not future.done():
        future.set_result(result)


async def happens(event: asyncio.Event, limit_s: float | None) -> bool:
    """Wait for an event; return False if it has not happened after `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            return await event.wait()
    except TimeoutError:
        return False


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks, and wait until they have ended; their errors are dropped. None stands for no task."""
    present = [task for task in tasks if task is not None]
    for task in present:
        task.cancel()
    await asyncio.gather(*present, return_exceptions=True)


async def all_of(tasks: Sequence[asyncio.Future[T]]) -> list[T]:
    """Return the results of all tasks. If one fails, or the caller is cancelled, all others end first."""
    try:
        return await asyncio.gather(*tasks)
    except (Exception, asyncio.CancelledError):
        await end_tasks(*tasks)
        raise
