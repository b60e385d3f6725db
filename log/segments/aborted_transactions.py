"""Finds the aborted transactions that a reader must skip, in the transaction indexes of a log's segments.

Source of the rules: Kafka's `LocalLog.addAbortedTransactions` (KIP-98).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from log.segments.positions import offset_after

if TYPE_CHECKING:
    from log.segments.regions import FileRegion
    from log.segments.segment_list import SegmentList
    from log.segments.transaction_index import AbortedTransaction


def add_aborted(segments: SegmentList, aborted: AbortedTransaction) -> None:
    """Add an aborted transaction whose marker was just appended to the active segment's transaction index."""
    active = segments.active
    if not active.aborts.has_any:
        segments.aborting.append(active.base_offset)
    active.aborts.add(aborted)


def aborted_between(segments: SegmentList, first_offset: int, upper_bound: int) -> list[tuple[int, int]]:
    """Return (producer_id, first_offset) of the aborted transactions that reach into [first_offset, upper_bound).

    The transactions come in the order of their markers, which may lie beyond. Without aborted transactions the call costs
    nothing. Raises OSError.
    """
    found: list[tuple[int, int]] = []
    if not segments.aborting:
        return found
    holding = segments.bases[segments.number_of(first_offset)]
    for base_offset in segments.aborting[bisect_left(segments.aborting, holding) :]:
        segment = segments.segments[bisect_left(segments.bases, base_offset)]
        if segment.aborts.index().collect(first_offset, upper_bound, found):
            break
    return found


def aborted_in(
    segments: SegmentList, offset: int, region: FileRegion, log_end_offset: int
) -> list[tuple[int, int]]:
    """Return the aborted transactions that a reader of `region`, found for `offset`, must skip. Raises OSError.

    Some may lie beyond the region, as in Kafka: the last offset of the region is known only from the next entry of the offset
    index.
    """
    number = bisect_left(segments.bases, region.segment_base_offset)
    relative_offset = offset_after(segments.segments[number], region.end_position)
    if relative_offset is not None:
        upper_bound = region.segment_base_offset + relative_offset
    else:
        upper_bound = segments.end_offset(number, log_end_offset)
    return aborted_between(segments, offset, upper_bound)


def aborted_from(segments: SegmentList, marker_offset: int, before_offset: int) -> list[AbortedTransaction]:
    """Return the transactions that begin below `before_offset` and were aborted by markers from `marker_offset` on.

    Raises OSError.
    """
    found: list[AbortedTransaction] = []
    for base_offset in segments.aborting[bisect_left(segments.aborting, marker_offset) :]:
        index = segments.segments[bisect_left(segments.bases, base_offset)].aborts.index()
        for aborted in index.transactions():
            if aborted.first_offset < before_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= before_offset:
                return found
    return found
