"""Mistakes about the holes of segment files, whose bytes only the bucket has."""

from __future__ import annotations

from seqgate.log.files.page_cache import SparseFile
from seqgate.log.files.sparse_disk import SparseDisk
from tests.faults.holes import Holes
from tests.simulation.planted.fault import Change, bucket_fault, fault_in
from tests.simulation.worlds import World

_ZEROS: Change = (Holes, "check_read", lambda *_: None)
"""A hole of the simulated disk gives zeros, as that of a real one does. Without this, its reader would fail
the run.
"""


@bucket_fault
def holes_read_as_zeros() -> list[Change]:
    """absent bytes count as resident, so every read of a hole is answered from the local file with zeros"""
    return [_ZEROS, (SparseFile, "lacks", lambda *_: False), (SparseFile, "first_absent", lambda *_: None)]


@bucket_fault
def holes_count_as_cached() -> list[Change]:
    """only reads that wait look for holes; those on the event loop take the local file for whole"""

    def is_cached(self: SparseDisk, descriptor: int, position: int, size_bytes: int, /) -> bool:
        below = self._below
        return not below.tells_cached or below.is_cached(descriptor, position, size_bytes)

    return [
        _ZEROS,
        (SparseDisk, "is_cached", is_cached),
        (SparseDisk, "read_cached", SparseDisk._read_cached),
    ]


@fault_in(world=World.BUCKET, is_found=False)
def holes_forgotten_at_a_stop() -> list[Change]:
    """a start after a clean stop takes the segment files on the disk for whole"""
    restore = SparseDisk.restore

    def as_whole(self: SparseDisk, path: str, key: object, size_bytes: int, _: int) -> bool:
        return restore(self, path, key, size_bytes, 0)  # type: ignore[arg-type]

    return [_ZEROS, (SparseDisk, "restore", as_whole)]
