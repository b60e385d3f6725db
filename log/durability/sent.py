"""Tracks which bytes of a partition log tickets have taken, where each ticket takes only bytes that no other ticket has.

Tickets of a durability whose rounds overlap become objects, and no byte belongs into two objects. So a log that comes back after
an outage must have every byte that a ticket took. Otherwise its next batches would get offsets that objects use already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from log.durability.flush_ticket import FileRange

if TYPE_CHECKING:
    from log.durability.flush_ticket import FlushTicket
    from log.segments.segment_list import SegmentList


class SentEnd(NamedTuple):
    """The end of the bytes that tickets have taken: an offset, and its position in a segment."""

    offset: int
    segment_base: int
    position: int


class Sent:
    """The end of what tickets of one log have taken."""

    __slots__ = ("end",)

    def __init__(self) -> None:
        """Begin without a log; `move` gives the first end."""
        self.end: SentEnd | None = None

    @property
    def end_offset(self) -> int:
        """The offset below which a ticket has every record."""
        return -1 if self.end is None else self.end.offset

    def move(self, segments: SegmentList, end_offset: int) -> None:
        """Move the end to the end of the log: a ticket has all of it, or objects had all of it when the log was loaded."""
        self.end = SentEnd(end_offset, segments.active.base_offset, segments.active.size_bytes)

    def size_bytes(self, segments: SegmentList) -> int:
        """Return how many bytes of the log no ticket has taken."""
        end, active = self.end, segments.active
        if end is None or end.segment_base == active.base_offset:
            return active.size_bytes - (0 if end is None else end.position)
        sizes = sum(segment.size_bytes for segment in segments.holding(end.offset))
        return sizes - (
            end.position if segments.bases[segments.number_of(end.offset)] == end.segment_base else 0
        )

    def ranges(self, segments: SegmentList, log_end_offset: int) -> list[FileRange]:
        """Return the ranges from the present end to the end of the log."""
        assert self.end is not None
        offset, segment_base, position = self.end
        ranges = []
        for number in range(segments.number_of(offset), len(segments)):
            segment = segments.segments[number]
            begin = position if segment.base_offset == segment_base else 0
            if begin < segment.size_bytes:
                end_offset = segments.end_offset(number, log_end_offset)
                first = max(offset, segment.base_offset)
                ranges.append(
                    FileRange(segment.file, segment.base_offset, begin, segment.size_bytes, first, end_offset)
                )
        return ranges

    def give_back(self, ticket: FlushTicket) -> None:
        """Take the end back to where a ticket began whose bytes will be in no object. Later tickets must be given back, too."""
        if ticket.ranges and self.end is not None:
            first = ticket.ranges[0]
            if first.first_offset < self.end.offset:
                self.end = SentEnd(first.first_offset, first.segment_base, first.position)

    def is_in(self, segments: SegmentList, log_end_offset: int) -> bool:
        """Return whether a log that was loaded again has every byte that tickets have taken, at its old position. Raises OSError."""
        assert self.end is not None
        offset, segment_base, position = self.end
        if offset > log_end_offset:
            return False
        number = segments.number_of(offset)
        segment = segments.segments[number]
        if segment.base_offset != segment_base:
            return segment.base_offset == offset
        if offset == segments.end_offset(number, log_end_offset):
            return segment.size_bytes == position
        header = segment.header_at(position)
        return header is not None and header.base_offset == offset
