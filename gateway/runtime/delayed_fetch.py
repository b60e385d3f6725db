"""A fetch that waits for data: until enough bytes are there or its time is up (Kafka's DelayedFetch)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gateway.runtime.partition import Partition


class DelayedFetch:
    """Waits on partitions and completes once, by progress or by time-out.

    `min_bytes` more bytes than at the start, written to any of the partitions, count as progress; a
    partition that went offline or away does too, because the reader should learn of it. While written records
    wait for their flush, any of these may be what is missing: then every flush counts as progress.
    """

    __slots__ = ("_complete", "_lags", "_loop", "_min_bytes", "_partitions", "_size_bytes", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        *,
        min_bytes: int,
        max_wait_ms: int,
        complete: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._min_bytes = min_bytes
        self._complete: Callable[[], None] | None = complete
        self._size_bytes = self._written_bytes()
        self._lags = any(
            partition.log.high_watermark < partition.log.log_end_offset for partition in partitions
        )
        for partition in partitions:
            partition.add_waiter(self, self._progress)
        self._timer = loop.call_later(max_wait_ms / 1000, self._finish)

    def _written_bytes(self) -> int:
        return sum(partition.log.size_bytes for partition in self._partitions)

    def _progress(self) -> None:
        ended = any(partition.closed or partition.log.offline for partition in self._partitions)
        if self._min_bytes > 1 and not ended and not self._lags:
            written = self._written_bytes() - self._size_bytes
            if 0 <= written < self._min_bytes:
                return
        self._finish()

    def _finish(self) -> None:
        complete, self._complete = self._complete, None
        if complete is None:
            return
        self.cancel()
        # not at once: several partitions of one flush round should be read together
        self._loop.call_soon(complete)

    def cancel(self) -> None:
        """Stop waiting; the completion is not called any more."""
        self._complete = None
        self._timer.cancel()
        for partition in self._partitions:
            partition.remove_waiter(self)
