"""Mistakes of a gateway that serves uploaded records of partitions that another one leads."""

from __future__ import annotations

from typing import Any

from seqgate.gateway.cluster.bucket_reads import Contents
from seqgate.gateway.cluster.uploads import partition_uploads
from tests.simulation.planted.fault import Change, cluster_fault_in


@cluster_fault_in("moves", "joins")
def undecided_records_read_elsewhere() -> list[Change]:
    """readers of committed records get all that is uploaded, as if every transaction had ended"""
    begin = Contents.__init__

    def with_all(self: Contents, *arguments: Any) -> None:
        begin(self, *arguments)
        self.bounds = self.bounds._replace(stable=self.bounds.end)

    return [(Contents, "__init__", with_all)]


@cluster_fault_in("moves", "joins")
def aborts_unknown_elsewhere() -> list[Change]:
    """readers of committed records get aborted ones, too, because the answer names no aborted transaction"""
    return [(Contents, "aborted", lambda *_: [])]


@cluster_fault_in("moves", "joins")
def aborts_of_the_newest_segment_not_uploaded() -> list[Change]:
    """a manifest names the aborted transactions of closed segments only, whose index files it has anyway"""
    return [(partition_uploads, "_last_aborts", lambda _: b"")]
