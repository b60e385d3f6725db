"""Gives memory back to the operating system after many partitions were deleted.

Python keeps free objects of frequent types for reuse until a full garbage collection, and the C library keeps free pages
until `malloc_trim`. After thousands of deletions both together are tens of megabytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Final

GIVE_BACK_AFTER: Final = 500
"""The number of closed partitions after which memory is given back, which takes some milliseconds."""


class FreedMemory:
    """Decides when to give memory back, and does it."""

    def __init__(self) -> None:
        self._given_back_at = 0
        """The number of closed partitions when memory was given back last."""
        self._closed_before = 0

    def give_back_if_due(self, closed: int, files_to_delete: int) -> bool:
        """Give memory back once the deletions of many partitions are over; return whether it did.

        `closed` counts the partitions closed since the start, `files_to_delete` the files that wait for their deletion.
        """
        goes_on = closed != self._closed_before or files_to_delete > 0
        self._closed_before = closed
        if goes_on or closed - self._given_back_at < GIVE_BACK_AFTER:
            return False
        self._given_back_at = closed
        gc.collect()
        # only glibc has the call
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        return True
