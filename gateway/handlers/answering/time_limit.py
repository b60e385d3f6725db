"""Limits the time of an administrative request: to its own timeout, and to `seqgate.admin.timeout.ms`.

When the time is up, work in progress continues, and `seqgate tasks` shows it; work not yet begun is dropped. The
answer is REQUEST_TIMED_OUT in both cases, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from kio.schema.index import api_key_map

from gateway.handlers.answering.api import RequestContext
from gateway.runtime.loop.slices import in_slices

T = TypeVar("T")


class TimeLimit:
    """The time limit of one request, which begins now."""

    def __init__(self, context: RequestContext[Any], asked: timedelta | None = None) -> None:
        """Allow the time that the request asks for, but no more than the gateway does."""
        self._node = node = context.node
        limit = timedelta(milliseconds=node.config.int("seqgate.admin.timeout.ms"))
        if asked is not None:
            limit = min(limit, asked)
        self._name = api_key_map[context.api_key].replace("_", " ")
        self._deadline_s = node.loop.time() + limit.total_seconds()

    @property
    def left_s(self) -> float:
        """The seconds that are left; 0 or less when the time is up."""
        return self._deadline_s - self._node.loop.time()

    async def run(
        self, work: Coroutine[Any, Any, T], of: str = "", *, late: Callable[[T], object] | None = None
    ) -> T:
        """Wait for the work while there is time; `of` names its subject for `seqgate tasks`. Raises TimeoutError.

        `late` is called with the result of work that ends well after its time.
        """
        left_s = self.left_s
        if left_s <= 0:
            work.close()
            raise TimeoutError
        tasks = self._node.tasks
        task = tasks.begin(f"{self._name} {of}".rstrip(), is_brief=True)
        doing = tasks.start(task, work)
        try:
            return await asyncio.wait_for(asyncio.shield(doing), left_s)
        except TimeoutError:
            if late is not None:
                doing.add_done_callback(partial(_tell, late))
            raise

    async def each(self, things: Iterable[T]) -> AsyncIterator[T]:
        """Yield each thing, with other requests in between. Raises TimeoutError when the time is up."""
        async for thing in in_slices(things):
            if self.left_s <= 0:
                raise TimeoutError
            yield thing


def _tell(late: Callable[[T], object], doing: asyncio.Task[T]) -> None:
    if not doing.cancelled() and doing.exception() is None:
        late(doing.result())
