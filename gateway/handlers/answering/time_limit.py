"""How long an administrative request may take: its own time-out, and `seqgate.admin.timeout.ms` at most.

What was begun when the time is over goes on, and `seqgate tasks` tells of it; what was not is not begun. The answer is
REQUEST_TIMED_OUT for both, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from kio.schema.index import api_key_map

from gateway.handlers.answering.api import RequestContext
from gateway.runtime.loop.slices import in_slices

T = TypeVar("T")


class TimeLimit:
    """The time of one request, which begins now."""

    def __init__(self, context: RequestContext, asked: timedelta | None = None) -> None:
        """Allow what the request asks for, but no more than the gateway does."""
        services = context.services
        limit = timedelta(milliseconds=services.config.int("seqgate.admin.timeout.ms"))
        if asked is not None:
            limit = min(limit, asked)
        self._services = services
        self._name = api_key_map[context.api_key].replace("_", " ")
        self._deadline_s = services.loop.time() + limit.total_seconds()

    @property
    def left_s(self) -> float:
        """Seconds until the time is over; not above 0 when it is."""
        return self._deadline_s - self._services.loop.time()

    async def run(self, work: Coroutine[Any, Any, T], of: str = "") -> T:
        """Wait for the work while there is time; `of` says what it is about. Raises TimeoutError."""
        left_s = self.left_s
        if left_s <= 0:
            work.close()
            raise TimeoutError
        tasks = self._services.tasks
        task = tasks.begin(f"{self._name} {of}".rstrip(), is_brief=True)
        return await asyncio.wait_for(asyncio.shield(tasks.start(task, work)), left_s)

    async def each(self, things: Iterable[T]) -> AsyncIterator[T]:
        """Each thing in turn, others' requests in between. Raises TimeoutError when the time is over."""
        async for thing in in_slices(things):
            if self.left_s <= 0:
                raise TimeoutError
            yield thing
