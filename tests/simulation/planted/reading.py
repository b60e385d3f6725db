"""Mistakes about the records that consumers get."""

from __future__ import annotations

from typing import Any

from seqgate.log import FileRegion, PartitionLog
from seqgate.log.segments.indexes import OFFSET_ENTRY
from seqgate.log.segments.reader import SegmentList
from seqgate.log.segments.segment import Segment
from tests.simulation.planted.fault import Change, fault, fault_in


@fault
def read_beyond_the_high_watermark() -> list[Change]:
    """a Fetch returns records up to the log end"""
    find = PartitionLog.find

    def beyond(
        self: PartitionLog, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> FileRegion | None:
        if upper_bound == self.high_watermark:
            upper_bound = self.log_end_offset
        return find(self, offset, max_bytes, upper_bound=upper_bound, min_one_batch=min_one_batch)

    return [(PartitionLog, "find", beyond)]


@fault_in("transactions")
def last_stable_offset_ignored() -> list[Change]:
    """read_committed reads up to the high watermark, even when transactions are open"""
    return [(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))]


@fault
def aborts_of_closed_segments_unknown() -> list[Change]:
    """read_committed learns only of aborted transactions in the active segment"""
    aborted = SegmentList.aborted_between

    def of_active(segments: SegmentList, first_offset: int, upper_bound: int) -> list[tuple[int, int]]:
        known, base_offset = segments.aborting, segments.active.base_offset
        segments.aborting = [base for base in known if base == base_offset]
        try:
            return aborted(segments, first_offset, upper_bound)
        finally:
            segments.aborting = known

    return [(SegmentList, "aborted_between", of_active)]


@fault
def aborts_within_the_answer_only() -> list[Change]:
    """read_committed does not learn of an aborted transaction whose marker is behind the returned records"""
    aborted_in = PartitionLog.aborted_in

    def within(log: PartitionLog, offset: int, region: Any) -> list[tuple[int, int]]:
        return [found for found in aborted_in(log, offset, region) if found[1] >= offset]

    return [(PartitionLog, "aborted_in", within)]


@fault
def index_off_by_one() -> list[Change]:
    """the search for an offset starts one index entry too late"""
    position_for = Segment.position_for

    def after(segment: Segment, relative_offset: int) -> int:
        position = position_for(segment, relative_offset)
        indexed = (at for _, at in OFFSET_ENTRY.iter_unpack(segment.indexes().offset_entries))
        return next((at for at in indexed if at > position), position)

    return [(Segment, "position_for", after)]
