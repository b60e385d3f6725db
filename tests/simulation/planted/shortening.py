"""Mistakes about snapshots of the metadata, and about the log that is shortened for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seqgate.gateway.backends import metadata_snapshots
from seqgate.gateway.cluster.metadata import shared_log
from seqgate.gateway.cluster.uploads.collection import Collection
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import SharedLogContent
from seqgate.log.format.records import iterate_records
from tests.simulation.planted.fault import Change, cluster_fault_in


async def _unchecked(_: PersistentReads, __: int) -> None:
    pass


@cluster_fault_in("pauses", "partitions", "store", is_found=False)
def boundary_not_read_after_the_create() -> list[Change]:
    """a gateway that created a change in an emptied place, or reads one there, takes it for the next change:
    it does not look at the boundary
    """
    return [(shared_log, "check_not_shortened", _unchecked)]


@cluster_fault_in("pauses", "partitions", "store", is_found=False)
def deleted_without_the_boundary() -> list[Change]:
    """objects of the metadata log are deleted, and no boundary says so"""

    class WithoutABoundary(Collection):
        async def move_boundary(self, key: str, boundary: int) -> int:
            return boundary

    return [(metadata_snapshots, "Deletions", WithoutABoundary)]


@cluster_fault_in("joins", "rolling")
def snapshot_without_the_last_change() -> list[Change]:
    """a snapshot lacks the last change before its number"""
    snapshot_of = metadata_snapshots.snapshot_of

    def older(content: SharedLogContent, dropped: Any, now_ms: int) -> Any:
        if len(content.changes) < 2:
            return snapshot_of(content, dropped, now_ms)
        snapshot, _ = snapshot_of(replace(content, changes=content.changes[:-1]), dropped, now_ms)
        end_offset = metadata_snapshots.end_offset_of(content)
        values = [record.value for batch in snapshot.batches for record in iterate_records(batch)]
        batches = metadata_snapshots.image_batches(values, end_offset, now_ms)
        made = snapshot._replace(next_offset=end_offset, batches=batches)
        return made, metadata_snapshots.encode_snapshot(made)

    return [(metadata_snapshots, "snapshot_of", older)]
