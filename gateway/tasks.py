"""Waits for tasks, and ends those that are not needed any more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


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
