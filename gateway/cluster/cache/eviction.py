"""Keeps the local disk within its limit: evicts the blocks that were not read for the longest time.

Only blocks of segments that the bucket has are evicted. All other bytes stay: records that are not uploaded
yet, indexes, and the records of internal topics, which each start reads as a whole.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Final

from seqgate.log import Storage
from seqgate.log.sparse import BLOCK_BYTES, SparseDisk

logger = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 1.0
"""Time between two checks. A gateway that fills blocks quickly checks sooner."""
SHARE_EVICTED: Final = 1 / 32
"""The share of the limit that one pass evicts beyond the limit, so that the next fetches find room."""
NO_LIMIT: Final = -1


class Eviction:
    """Checks the local bytes at intervals between `start` and `stop`. Use it in the event loop."""

    def __init__(
        self,
        storage: Storage,
        sparse: SparseDisk,
        path: str,
        *,
        limit_bytes: Callable[[], int],
        reserve_bytes: Callable[[], int],
        log_bytes: Callable[[], int],
    ) -> None:
        """Take the data directory, and three numbers that may change.

        `limit_bytes` are the most bytes of segments on the local disk, NO_LIMIT for as many as fit;
        `reserve_bytes` stay free on the disk; `log_bytes` are the bytes of all segments, holes included.
        """
        self._storage = storage
        self._sparse = sparse
        self._path = path
        self._limit_bytes = limit_bytes
        self._reserve_bytes = reserve_bytes
        self._log_bytes = log_bytes
        self._filled_bytes = 0
        self._allowed_bytes = 0
        """The bytes that may be filled in before the next check."""
        self._timer: asyncio.TimerHandle | None = None
        self._pass: asyncio.Task[None] | None = None
        self._complained = False
        self._has_holes = True
        """Whether the file system can punch holes, as far as it is known."""
        self.bytes_evicted = 0
        """The bytes evicted since the start."""
        self.local_bytes = 0
        """The bytes of segments on the local disk at the last check."""

    def start(self) -> None:
        """Check now, and then at intervals."""
        self._begin_pass()
        self._timer = asyncio.get_running_loop().call_later(CHECK_EVERY_S, self.start)

    async def stop(self) -> None:
        """End the checks; return when nothing is being evicted any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pass is not None:
            await asyncio.gather(self._pass, return_exceptions=True)

    def filled(self, size_bytes: int) -> None:
        """Count bytes that were fetched; check soon if there may be too many."""
        self._filled_bytes += size_bytes
        if self._filled_bytes > self._allowed_bytes:
            self._begin_pass()

    async def make_room(self, size_bytes: int) -> None:
        """Evict until the disk has room for so many bytes, whatever the limit is. Raises OSError if there is
        too little to evict.
        """
        missing_bytes = size_bytes - self._free_bytes()
        if missing_bytes <= 0:
            return
        if self._has_holes:
            await asyncio.to_thread(self._evict, missing_bytes)
        if self._free_bytes() < size_bytes:
            raise OSError(
                errno.ENOSPC, f"the disk has no room for {size_bytes} bytes from the bucket", self._path
            )

    def _free_bytes(self) -> int:
        return self._storage.free_bytes(self._path) - self._reserve_bytes()

    def _begin_pass(self) -> None:
        if self._has_holes and (self._pass is None or self._pass.done()):
            self._pass = asyncio.get_running_loop().create_task(self.run_pass(), name="eviction")

    async def run_pass(self) -> None:
        """Evict as much as is too much now."""
        self._filled_bytes = 0
        try:
            excess_bytes = self._excess_bytes()
            if excess_bytes > 0 and self._has_holes:
                await asyncio.to_thread(self._evict, excess_bytes)
        except OSError as error:
            self._complain(error)
        except Exception:
            logger.exception("the eviction from %s failed and is tried again", self._path)

    def _excess_bytes(self) -> int:
        """Return how many bytes to evict; at most 0 if none. Raises OSError."""
        limit_bytes = self._limit_bytes()
        free_bytes = self._free_bytes()
        self.local_bytes = self._log_bytes() - self._sparse.absent_bytes()
        left_bytes = free_bytes
        if limit_bytes != NO_LIMIT:
            left_bytes = min(left_bytes, limit_bytes - self.local_bytes)
        self._allowed_bytes = max(0, left_bytes)
        if left_bytes >= 0:
            return 0
        whole_bytes = self.local_bytes + free_bytes if limit_bytes == NO_LIMIT else limit_bytes
        return -left_bytes + max(BLOCK_BYTES, int(whole_bytes * SHARE_EVICTED))

    def _evict(self, size_bytes: int) -> None:
        """Evict about so many bytes. Raises OSError."""
        for file, numbers in self._sparse.coldest(size_bytes, spares=_is_internal):
            self.bytes_evicted += self._sparse.evict(file, numbers)

    def _complain(self, error: OSError) -> None:
        """Log the reason once. A file system that can't punch holes is not asked again."""
        if self._complained:
            return
        self._complained = True
        if error.errno == errno.EOPNOTSUPP:
            self._has_holes = False
            logger.error(
                "the file system of %s can't punch holes, so seqgate.cluster.cache.bytes limits nothing; use "
                "ext4, xfs, btrfs or tmpfs",
                self._path,
            )
        else:
            logger.warning("blocks can't be evicted from %s and will be tried again: %s", self._path, error)


def _is_internal(path: str) -> bool:
    """Return whether a segment belongs to an internal topic, whose name begins with two underscores."""
    return path.rsplit("/", 2)[-2].startswith("__")
