"""Gives memory back to the operating system after many partitions were deleted.

A table keeps the size of its fullest time until entries are added. Python keeps free objects of frequent types for reuse
until a full garbage collection, and the C library keeps free pages until `malloc_trim`. After thousands of
deletions this free memory adds up to tens of megabytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import sys
from collections.abc import Sequence
from typing import Any, Final

logger = logging.getLogger(__name__)

GIVE_BACK_AFTER: Final = 500
"""The number of closed partitions after which memory is given back, which takes some milliseconds."""
SPARSE_TABLE_BYTES: Final = 8 << 10
"""Size up to which a table is not worth rebuilding."""
SPARSE_ENTRY_BYTES: Final = 400
"""Bytes per entry above which a table counts as sparse: it was several times as full before."""


class FreedMemory:
    """Decides when to give memory back, and does it."""

    def __init__(self, tables: Sequence[dict[Any, Any]] = ()) -> None:
        """Take the tables that shrink with deletions; the sequence may grow later."""
        self._tables = tables
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
        logger.info("%d partitions were deleted: giving their memory back", closed - self._given_back_at)
        self._given_back_at = closed
        for table in self._tables:
            shrink(table)
        gc.collect()
        # only glibc has `malloc_trim`
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        return True


def shrink(table: dict[Any, Any]) -> None:
    """Rebuild a table in place, with its order, if it has far more room than its entries need."""
    if sys.getsizeof(table) > SPARSE_TABLE_BYTES + SPARSE_ENTRY_BYTES * len(table):
        entries = list(table.items())
        table.clear()
        table.update(entries)
