"""Deletes the files that the log directory has queued for deletion, in a thread of its own and at a limited rate.

Freeing the space of a large file can take long, so the event loop never does it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from gateway.config import Config
from gateway.runtime.loop.clock import Clock
from log import DeletionTicket, LogDirectory

FILES_PER_TICKET = 500
"""Files of one ticket, all taken from the queue in one turn of the event loop."""


class FileDeletion:
    """The background job; `run` is called every second and deletes the files that one second's limits allow."""

    def __init__(self, config: Config, clock: Clock, log_directory: LogDirectory) -> None:
        self._clock = clock
        self._environment = log_directory.environment
        self._max_files = config.int("seqgate.deletion.max.files.per.second")
        self._max_bytes = config.int("seqgate.deletion.max.bytes.per.second")
        self._bytes_left = 0
        """Bytes that may still be deleted; below 0 after a file larger than the limit."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="deletion")
        self._ticket: DeletionTicket | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no ticket is out, so that no deleted paths are kept in memory."""
        return self._ticket is None

    async def run(self) -> None:
        """Delete files that are due."""
        self._bytes_left = min(self._bytes_left, 0) + self._max_bytes
        files_left = self._max_files
        while files_left > 0 and self._bytes_left > 0:
            ticket = self._environment.deletions.prepare(
                self._environment.storage,
                self._environment.durability,
                self._clock.now_ms(),
                max_files=min(files_left, FILES_PER_TICKET),
                max_bytes=self._bytes_left,
            )
            if ticket is None:
                return
            self._ticket = ticket
            await asyncio.get_running_loop().run_in_executor(self._thread, ticket.run)
            self._environment.deletions.complete(ticket, self._clock.now_ms())
            self._ticket = None
            files_left -= max(1, ticket.files)
            self._bytes_left -= ticket.size_bytes

    def stop(self) -> None:
        """End the thread after its present file; the other files are deleted after the next start."""
        if self._ticket is not None:
            self._ticket.cancelled = True
        self._thread.shutdown(wait=True, cancel_futures=True)
