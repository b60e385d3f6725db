"""Long work on the event loop, cut so that requests go first whenever a slice of time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

SLICE_S: Final = 0.005
"""What has run for so long lets requests go first."""

T = TypeVar("T")


async def in_slices(things: Iterable[T]) -> AsyncIterator[T]:
    """Each thing in turn; whenever what is done with them has taken a slice of time, requests go first."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    for thing in things:
        yield thing
        if loop.time() - started_s > SLICE_S:
            await asyncio.sleep(0)
            started_s = loop.time()
