"""A fetch that waits until enough bytes have arrived or its time is up (Kafka's DelayedFetch)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from gateway.runtime.partitions.partition import Partition


class DelayedFetch:
    """Waits on partitions and completes once, by progress or by timeout.

    Progress is `min_bytes` more bytes than at the start, in all partitions together. A partition that goes offline or
    is deleted counts as progress, too, because the reader should learn of it. While written records wait for their
    flush, every flush counts as progress, because these records may be enough. For a reader of committed records
    (`committed_only`) only a last stable offset that moved is progress.
    """

    __slots__ = (
        "_committed_only",
        "_complete",
        "_grown_bytes",
        "_lags",
        "_loop",
        "_min_bytes",
        "_partitions",
        "_sizes",
        "_stable",
        "_timer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        *,
        min_bytes: int,
        max_wait_ms: int,
        committed_only: bool = False,
        complete: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._min_bytes = min_bytes
        self._complete: Callable[[], None] | None = complete
        self._sizes = [partition.log.size_bytes for partition in partitions]
        self._grown_bytes = 0
        self._committed_only = committed_only
        self._stable = self._stable_offsets()
        visible = self._stable or [partition.log.high_watermark for partition in partitions]
        self._lags = any(
            end_offset < partition.log.log_end_offset
            for end_offset, partition in zip(visible, partitions, strict=True)
        )
        for index, partition in enumerate(partitions):
            partition.watch(self, partial(self._progress, index))
        self._timer = loop.call_later(max_wait_ms / 1000, self._finish)

    def _stable_offsets(self) -> list[int]:
        if not self._committed_only:
            return []
        return [partition.log.last_stable_offset for partition in self._partitions]

    def _progress(self, index: int) -> None:
        """Check one partition for progress.

        Checking all partitions at each append would cost too much for a large fetch.
        """
        partition = self._partitions[index]
        log = partition.log
        ended = partition.closed or log.offline
        if self._committed_only and not ended and log.last_stable_offset == self._stable[index]:
            return
        if self._min_bytes > 1 and not ended and not self._lags:
            size_bytes = log.size_bytes
            self._grown_bytes += size_bytes - self._sizes[index]
            self._sizes[index] = size_bytes
            if 0 <= self._grown_bytes < self._min_bytes:
                return
        self._finish()

    def _finish(self) -> None:
        complete, self._complete = self._complete, None
        if complete is None:
            return
        self.cancel()
        # Complete later in this turn, so that all partitions that one flush round makes visible are read together.
        self._loop.call_soon(complete)

    def cancel(self) -> None:
        """Stop waiting; the callback is not called any more."""
        self._complete = None
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
