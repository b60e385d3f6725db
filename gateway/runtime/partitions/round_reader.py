"""Reads what the tickets of one round cover, piece by piece: the rows and the data of one object after the other."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gateway.cluster.wal.wal_object import DataRow, FileRow, Row, RowData
from log import CachedDurability, CorruptRecord, FileRange, FlushTicket, LogError
from log.format.record_batch import HEADER_BYTES, crc_matches, parse_header, whole_batches

logger = logging.getLogger(__name__)


class ObjectContent(NamedTuple):
    """The rows of one object, and the data of each row."""

    rows: list[Row]
    data: list[RowData]


class RoundReader:
    """Reads the tickets of one round, in order, and writes their side files. One thread at a time may call.

    A ticket whose bytes can't be read is left out from there on. Its ranges are then those that no object has.
    """

    def __init__(self, tickets: Iterable[FlushTicket], durability: CachedDurability, max_bytes: int) -> None:
        """Take the tickets. An object ends at `max_bytes`, but a batch is never divided."""
        self._tickets = deque(tickets)
        self._to_check = {ticket for ticket in self._tickets if not ticket.is_just_written()}
        """The tickets whose bytes may come from the disk instead of memory. A disk may have changed bytes, so they are checked before an object holds them."""
        self._parts = deque(self._tickets[0].ranges) if self._tickets else deque[FileRange]()
        self._durability = durability
        self._max_bytes = max_bytes
        self.unread: dict[FlushTicket, OSError] = {}
        """The tickets that failed before all of their records were in an object."""
        self.without_files: dict[FlushTicket, OSError] = {}
        """The tickets whose side files could not be written, though objects have their records."""

    @property
    def is_done(self) -> bool:
        """Whether the bytes of all tickets were read."""
        return not self._tickets

    def read(self) -> ObjectContent:
        """Read the next object. It has no rows where nothing more can be read."""
        content = ObjectContent([], [])
        room = self._max_bytes
        while self._tickets and room > 0:
            ticket = self._tickets[0]
            try:
                if self._parts:
                    size_bytes = self._read_part(ticket, self._parts[0], room, content)
                    if not size_bytes:
                        break
                    room -= size_bytes
                    continue
                room -= self._read_files(ticket, content)
            except (LogError, OSError) as error:
                self._leave_out(ticket, error)
            except Exception as error:
                # Whatever the error was, the round must end.
                logger.exception("%s can't be read for an object in an unexpected way", ticket.place)
                self._leave_out(ticket, error)
            self._go_on()
        return content

    def _go_on(self) -> None:
        """Drop the first ticket, and continue with the next one."""
        self._tickets.popleft()
        self._parts = deque(self._tickets[0].ranges) if self._tickets else deque()

    def _leave_out(self, ticket: FlushTicket, error: Exception) -> None:
        known = error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}")
        if self._parts:
            ticket.ranges = tuple(self._parts)
            self.unread[ticket] = known
        else:
            self.without_files[ticket] = known

    def _read_part(self, ticket: FlushTicket, part: FileRange, room: int, content: ObjectContent) -> int:
        """Read a range, or its first batches if there is not more room; return the bytes, 0 where no batch has room.

        Raises OSError, LogError.
        """
        end_offset, data, size_bytes = self._first_bytes(ticket, part, room, must_fit=bool(content.rows))
        if not size_bytes:
            return 0
        position = part.position + size_bytes
        if position == part.end_position:
            self._parts.popleft()
        else:
            self._parts[0] = part._replace(position=position, first_offset=end_offset)
        _, _, partition, topic_id = ticket.place
        content.rows.append(
            DataRow(
                topic_id,
                partition,
                max(0, ticket.leader_epoch),
                part.first_offset,
                end_offset,
                part.segment_base,
                part.position,
                size_bytes,
            )
        )
        content.data.append(data)
        return size_bytes

    def _first_bytes(
        self, ticket: FlushTicket, part: FileRange, room: int, *, must_fit: bool
    ) -> tuple[int, RowData, int]:
        """Return the offset after the first batches of a range, their bytes, and how many these are; 0 where no batch has room.

        Raises OSError, LogError.
        """
        kept_writes = self._durability.kept_writes
        kept = None if kept_writes is None else kept_writes.next_in(part)
        if kept_writes is not None and kept is not None:
            if kept.position == part.position:
                if kept.size_bytes > room and must_fit:
                    return part.first_offset, b"", 0
                kept_writes.drop_below(part.file, part.position + 1)
                return kept.end_offset, kept.pieces, kept.size_bytes
            part = part._replace(end_position=kept.position, end_offset=kept.first_offset)
        if part.size_bytes <= room:
            end_offset, data = part.end_offset, ticket.read(part, part.position, part.size_bytes)
        else:
            end_offset, data = _first_batches(ticket, part, room, must_fit=must_fit)
        if data and ticket in self._to_check:
            _check(ticket, data, part.first_offset, end_offset)
        return end_offset, data, len(data)

    def _read_files(self, ticket: FlushTicket, content: ObjectContent) -> int:
        """Write the side files of a ticket whose records were all read; return their bytes. Raises OSError."""
        files: list[tuple[str, bytes]] = []
        try:
            self._durability.write_side_files(ticket, files)
        finally:
            _, _, partition, topic_id = ticket.place
            for name, data in files:
                epoch = max(0, ticket.leader_epoch)
                content.rows.append(FileRow(topic_id, partition, name, len(data), epoch))
                content.data.append(data)
        return sum(len(data) for _, data in files)


def _check(ticket: FlushTicket, data: bytes, first_offset: int, end_offset: int) -> None:
    """Check that the disk returned sound batches of all these offsets. Raises CorruptRecord."""
    view, end, offset = memoryview(data), 0, first_offset
    for position, batch in whole_batches(data):
        end = position + batch.size_bytes
        # The CRC does not cover the base offset.
        if batch.base_offset != offset or not crc_matches(batch, view, position):
            raise CorruptRecord(f"{ticket.place} is damaged at offset {offset}")
        offset = batch.last_offset + 1
    if end != len(data) or offset != end_offset:
        raise CorruptRecord(f"{ticket.place} is damaged: a batch that no object has is cut short")


def _first_batches(ticket: FlushTicket, part: FileRange, room: int, *, must_fit: bool) -> tuple[int, bytes]:
    """Return the first whole batches of a range that fit into `room` bytes, and the offset after these batches.

    Where not even one fits, return no bytes with `must_fit`, else the first batch. Raises OSError, LogError.
    """
    data = ticket.read(part, part.position, room)
    end_offset, size_bytes = part.first_offset, 0
    for position, batch in whole_batches(data):
        end_offset, size_bytes = batch.last_offset + 1, position + batch.size_bytes
    if not size_bytes and not must_fit:
        head = data if len(data) >= HEADER_BYTES else ticket.read(part, part.position, HEADER_BYTES)
        batch = parse_header(head)
        if batch.size_bytes > part.size_bytes:
            raise CorruptRecord(f"{ticket.place} is damaged at offset {part.first_offset}")
        end_offset, size_bytes = batch.last_offset + 1, batch.size_bytes
        data = ticket.read(part, part.position, size_bytes)
    return end_offset, data[:size_bytes]
