"""Group commit into a bucket: a round becomes objects of the write-ahead log, and flushes no file.

A round takes the tickets of all logs with new records, reads their bytes back from the local files, and puts
the bytes into the write-ahead log as one object, or as several objects if the bytes exceed the limit of one.
Rounds overlap: the next round may begin once all objects of the previous round are put. Rounds end in order,
because the write-ahead log confirms its objects in order. After a round, as after a flush of the local disk,
high watermarks move and the waiting requests get their answers.

A round begins at once while no object is in flight. Otherwise it waits for enough bytes or time. No round
exceeds the budget of puts (`PutLimits`), except with full objects, the cheapest way to put bytes.

An object that was put has one of two outcomes. Either it is confirmed, or another gateway has ended the
session. Then every ticket fails, all logs go offline, and the gateway stops.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from seqgate.gateway.cluster.wal.wal_object import DataRow, FileRow, RowData, WalRow
from seqgate.gateway.metadata.image import TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.gateway.runtime.partitions.flusher import FlushRound, FlushWaiter, LogFlusher, LogOwner
from seqgate.gateway.runtime.partitions.unwritten import SOON_S, PutBudget, PutLimits, Unwritten
from seqgate.gateway.tasks import settle
from seqgate.log import CachedDurability, CorruptRecord, FileRange, FlushTicket, LogError
from seqgate.log.format.record_batch import HEADER_BYTES, crc_matches, parse_header, whole_batches

logger = logging.getLogger(__name__)


class WriteAheadLog(Protocol):
    """The session's log as rounds use it; `seqgate.gateway.cluster.wal.session_wal` implements it."""

    on_fenced: list[Callable[[str], None]]
    """Called with a sentence when somebody else has ended the session. Nothing is confirmed after that."""

    def put(self, rows: Sequence[WalRow], data: Sequence[RowData], confirmed: Callable[[], None]) -> None:
        """Put the next object, without waiting. Calls `confirmed` once the bucket surely holds this object
        and all earlier ones of this session.
        """


class ObjectFlusher(LogFlusher):
    """Collects logs with new records and makes them durable together, in objects of `wal`."""

    flushes_disk = False
    keeps_flush_settings = False
    unwritten: Unwritten

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        wal: WriteAheadLog,
        durability: CachedDurability,
        limits: PutLimits | None = None,
        machine: Machine | None = None,
    ) -> None:
        super().__init__(loop, machine)
        self._wal = wal
        self._durability = durability
        self._limits = limits or PutLimits()
        self._budget = PutBudget(self._machine.seconds())
        self.unwritten = Unwritten(self._limits.unwritten_max_bytes)
        self._workers: Workers[ObjectRound]
        self._commits: list[tuple[FlushTicket, asyncio.Future[OSError | None]]] = []
        """The tickets from outside of rounds (`commit`). The next round puts their side files."""
        self._gathering_s = 0.0
        """When the next round began to gather."""
        self._rounds: deque[ObjectRound] = deque()
        """The rounds under way, the oldest first."""
        self._reading: ObjectRound | None = None
        """The round of which not all objects are put; always the newest."""
        self._is_reading = False
        """Whether the worker thread reads an object."""
        self._in_flight = 0
        """The objects that are put and not confirmed."""
        self._next: asyncio.Handle | None = None
        """The next call of `_go_on`, at once or when time is up."""
        self._wake_bytes = 0
        """The unsent bytes from which on `_go_on` need not wait until time is up."""
        self._is_blocked = False
        """Whether flushing can continue only after a confirmation or the end of a read."""
        self._ended_by: str | None = None
        self.when_given_up: list[Callable[[str], None]] = []
        """Called once with the reason when `give_up` is called."""
        self.inline_limit_s = 0.0
        wal.on_fenced.append(self.give_up)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting) + sum(len(each.flush.waiting) for each in self._rounds)

    @property
    def is_idle(self) -> bool:
        return not (self._rounds or self._is_gathering)

    @property
    def _is_gathering(self) -> bool:
        return bool(self._dirty or self._waiting or self._commits)

    def start(self) -> None:
        self._workers = self._machine.workers("objects", 1, self._read)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
        self._workers.stop()

    def mark_dirty(self, owner: LogOwner) -> None:
        log = owner.log
        if not self._dirty:
            self._begin_gathering()
        self._dirty[log] = owner
        self.unwritten.appended(log)
        if self._next is None:
            if not self._is_blocked:
                self._schedule()
        elif self.unwritten.unsent_bytes >= self._wake_bytes:
            self._schedule()

    def wait(self, waiting: FlushWaiter) -> None:
        log = waiting.owner.log
        for current in self._rounds:
            ticket = current.flush.tickets.get(log)
            if ticket is not None and waiting.offset < ticket.end_offset:
                current.flush.waiting.append(waiting)
                return
        if log not in self._dirty:
            self.mark_dirty(waiting.owner)
        self._waiting.append(waiting)

    async def commit(self, owner: LogOwner, ticket: FlushTicket) -> OSError | None:
        """Make a ticket without records durable: first the records up to its end, then its side files. The
        local file of a new log start offset is written last, when an object has it.
        """
        log = owner.log
        if log.recovery_point < ticket.end_offset:
            decided: asyncio.Future[None] = self._loop.create_future()
            self.wait(FlushWaiter(owner, ticket.end_offset - 1, lambda _: settle(decided, None)))
            await decided
            if log.recovery_point < ticket.end_offset:
                return OSError(errno.EIO, "the records before could not be made durable", str(log.place))
        done: asyncio.Future[OSError | None] = self._loop.create_future()
        if not self._is_gathering:
            self._begin_gathering()
        self._commits.append((ticket, done))
        self._schedule()
        error = await done
        if error is not None or ticket.last is None:
            return error
        try:
            await asyncio.to_thread(ticket.last.write, self._durability)
        except OSError as failed:
            return failed
        return None

    # --- when a round begins

    def _begin_gathering(self) -> None:
        self._gathering_s = self._machine.seconds()

    def _schedule(self, delay_s: float = 0.0, wake_bytes: int = sys.maxsize) -> None:
        """Call `_go_on` after a delay, or earlier once so many bytes are unsent."""
        if self._next is not None:
            self._next.cancel()
        self._wake_bytes = wake_bytes
        if delay_s > 0:
            self._next = self._loop.call_later(delay_s, self._go_on)
        else:
            self._next = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Put the next object, or begin the next round, or wait for what either needs."""
        self._next = None
        self._is_blocked = False
        if self._reading is None and self._is_gathering:
            if not self._may_begin():
                return
            self._begin_round()
        if self._reading is not None:
            self._put_next(self._reading)
        elif not self._rounds:
            self._tell_idle()

    def _may_begin(self) -> bool:
        """Return whether a round may begin now. If not, `_go_on` will be called."""
        if self._ended_by is not None or not (self.unwritten.unsent_bytes or self._commits):
            return True
        limits = self._limits
        if self._in_flight >= limits.puts_in_flight:
            self._is_blocked = True
            return False
        if self.unwritten.unsent_bytes >= limits.put_max_bytes:
            return True
        now_s = self._machine.seconds()
        budget_s = self._budget.wait_s(now_s, limits)
        linger_s = self._gathering_s + limits.linger_s - now_s if self._in_flight else 0.0
        if budget_s <= 0 and linger_s <= SOON_S:
            return True
        self._schedule(max(budget_s, linger_s), limits.put_max_bytes)
        return False

    def _begin_round(self) -> None:
        logs, self._dirty = self._dirty, {}
        waiting, self._waiting = self._waiting, []
        commits, self._commits = self._commits, []
        flush = FlushRound(logs, waiting, self._machine.seconds())
        tickets = [ticket for _, ticket in flush.entries]
        # A batch must not be durable without the record by which its partition takes part in a transaction.
        tickets.sort(key=lambda ticket: ticket.place.topic != TRANSACTION_STATE_TOPIC)
        size_bytes = sum(part.size_bytes for ticket in tickets for part in ticket.ranges)
        self.unwritten.sent(size_bytes)
        tickets += [ticket for ticket, _ in commits]
        current = ObjectRound(
            flush,
            RoundReader(tickets, self._durability, self._limits.put_max_bytes),
            commits,
            size_bytes,
            is_quickly_read(tickets, size_bytes),
            unread_bytes=size_bytes,
        )
        self.rounds += 1
        if not tickets:
            self._finish(current)  # The round has no data to put. So it ends at once, before earlier rounds.
            return
        self._rounds.append(current)
        self.is_flushing = True
        if self._ended_by is None:
            self._reading = current
        else:
            self._fail_all(self._ended_by)

    # --- objects

    def _put_next(self, current: ObjectRound) -> None:
        """Read a round's next object and put it, if limits allow. Otherwise `_go_on` will be called."""
        if self._is_reading or self._in_flight >= self._limits.puts_in_flight:
            self._is_blocked = True
            return
        delay_s = 0.0
        if not self._has_full_object(current):
            delay_s = self._budget.wait_s(self._machine.seconds(), self._limits)
        if delay_s > 0:
            self._schedule(delay_s, self._limits.put_max_bytes)
        elif current.is_quick:
            self._was_read(current, current.reader.read())
        else:
            self._is_blocked = self._is_reading = True
            self._workers.put(current)

    def _read(self, current: ObjectRound) -> None:
        """Read the next object of a round; runs in the worker thread."""
        content = current.reader.read()
        self._loop.call_soon_threadsafe(self._was_read, current, content)

    def _was_read(self, current: ObjectRound, content: ObjectContent) -> None:
        self._is_reading = False
        if current is not self._reading:
            return  # the session was fenced meanwhile
        self.failures += current.note_failures()
        if content.rows:
            self._put(current, content)
        if current is self._reading and current.reader.is_done:
            self._reading = None
            current.is_put = True
            self._finish_rounds()
        self._schedule()

    def _put(self, current: ObjectRound, content: ObjectContent) -> None:
        if not self._has_full_object(current):
            self._budget.take(self._machine.seconds(), self._limits)
        current.unread_bytes -= sum(row.length for row in content.rows)
        self._in_flight += 1
        current.objects_out += 1
        try:
            self._wal.put(content.rows, content.data, partial(self._confirmed, current))
        except Exception as error:
            # Later objects would have a gap where this one is missing, so nothing more may be put.
            logger.exception("an object of the write-ahead log can't be put")
            self.give_up(f"an object of the write-ahead log can't be put: {error}")

    def _has_full_object(self, current: ObjectRound) -> bool:
        """Return whether round or later appends have a full object, which costs no budget."""
        return max(current.unread_bytes, self.unwritten.unsent_bytes) >= self._limits.put_max_bytes

    def _confirmed(self, current: ObjectRound) -> None:
        """End the rounds whose objects are all confirmed: the oldest object in flight was confirmed."""
        if self._ended_by is not None:
            return
        self._in_flight -= 1
        current.objects_out -= 1
        self._finish_rounds()
        self._schedule()

    def _finish_rounds(self) -> None:
        while self._rounds and self._rounds[0].is_put and not self._rounds[0].objects_out:
            self._finish(self._next_round())

    def _next_round(self) -> ObjectRound:
        """Return the oldest round, which is over."""
        current = self._rounds.popleft()
        self.is_flushing = bool(self._rounds)
        return current

    def _finish(self, current: ObjectRound) -> None:
        flush = current.flush
        self.failures += flush.finish(self.after_round, self.after_next_round)
        self.round_times.add(self._machine.seconds() - flush.begun_s)
        self.unwritten.settled(current.size_bytes)
        for ticket, done in current.commits:
            settle(done, flush.errors.get(ticket))

    # --- the end of the session

    def give_up(self, reason: str) -> None:
        """Fail everything from now on: the session is over, or the store does not answer at a stop. The
        bucket may still take an object in flight: its producers get an error, a start finds its records.
        """
        if self._ended_by is not None:
            return
        self._ended_by = reason
        self._in_flight = 0
        self._reading = None
        self._fail_all(reason)
        for given_up in self.when_given_up:
            given_up(reason)
        self._schedule()

    def _fail_all(self, reason: str) -> None:
        error = OSError(errno.EIO, reason)
        while self._rounds:
            current = self._next_round()
            flush = current.flush
            flush.failed_files.clear()
            flush.errors |= dict.fromkeys(flush.tickets.values(), error)
            flush.errors |= dict.fromkeys((ticket for ticket, _ in current.commits), error)
            self._finish(current)


READ_AT_ONCE_BYTES: Final = 64 << 10
"""Up to this size a round of just written bytes is read in the event loop; a thread would cost more."""


@dataclass(slots=True, eq=False)
class ObjectRound:
    """A flush round, its objects, and the tickets that join it only for their side files."""

    flush: FlushRound
    reader: RoundReader
    commits: list[tuple[FlushTicket, asyncio.Future[OSError | None]]]
    size_bytes: int
    """The bytes of all records in the round."""
    is_quick: bool
    """Whether reading takes less time than a switch to a worker thread."""
    unread_bytes: int
    """The bytes of records that no object has yet; less where objects also have side files."""
    objects_out: int = 0
    """The objects that are put and not confirmed."""
    is_put: bool = False
    """Whether all objects of the round are put."""

    def note_failures(self) -> int:
        """Give back the tickets that were not read; return how many. Note those without side files."""
        for ticket, error in self.reader.without_files.items():
            self.flush.errors[ticket] = error
            self.flush.failed_files.add(ticket)
        unread, self.reader.unread = self.reader.unread, {}
        for ticket, error in unread.items():
            self.flush.fail(ticket, error)
        return len(unread)


def is_quickly_read(tickets: Sequence[FlushTicket], size_bytes: int) -> bool:
    """Return whether reading tickets with so many bytes takes less time than a switch to a worker thread."""
    return size_bytes <= READ_AT_ONCE_BYTES and all(map(_is_cached, tickets))


def _is_cached(ticket: FlushTicket) -> bool:
    """Whether the ticket has only records, which can be read without waiting for the disk."""
    if ticket.paths or ticket.captures or ticket.last is not None or not ticket.data:
        return False
    storage = ticket.storage
    return all(storage.is_cached(part.file, part.position, part.size_bytes) for part in ticket.ranges)


class ObjectContent(NamedTuple):
    rows: list[WalRow]
    data: list[RowData]


class RoundReader:
    """Reads the tickets of one round, in order, and writes their side files. One thread at a time may call.

    A ticket whose bytes can't be read is left out from there on. Its ranges are then those in no object.
    """

    def __init__(self, tickets: Iterable[FlushTicket], durability: CachedDurability, max_bytes: int) -> None:
        """Take the tickets. An object ends at `max_bytes`, but a batch is never divided."""
        self._tickets = deque(tickets)
        self._to_check = {ticket for ticket in self._tickets if not ticket.is_just_written()}
        """The tickets whose bytes may come from the disk: these are checked, as a disk may change bytes."""
        self._parts = deque(self._tickets[0].ranges) if self._tickets else deque[FileRange]()
        self._has_begun = False
        """Whether an object has what must not come behind the first records of the first ticket."""
        self._durability = durability
        self._max_bytes = max_bytes
        self.unread: dict[FlushTicket, OSError] = {}
        """The tickets that failed before all of their records were in an object."""
        self.without_files: dict[FlushTicket, OSError] = {}
        """The tickets whose side files could not be written, though objects have their records."""

    @property
    def is_done(self) -> bool:
        return not self._tickets

    def read(self) -> ObjectContent:
        """Read the next object. It has no rows where nothing more can be read."""
        content = ObjectContent([], [])
        room = self._max_bytes
        while self._tickets and room > 0:
            ticket = self._tickets[0]
            try:
                if not self._has_begun:
                    room -= _add_files(ticket, self._durability.first_files(ticket), content)
                    self._has_begun = True
                    continue
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
        self._tickets.popleft()
        self._has_begun = False
        self._parts = deque(self._tickets[0].ranges) if self._tickets else deque()

    def _leave_out(self, ticket: FlushTicket, error: Exception) -> None:
        known = error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}")
        if self._parts:
            ticket.ranges = tuple(self._parts)
            self.unread[ticket] = known
        else:
            self.without_files[ticket] = known

    def _read_part(self, ticket: FlushTicket, part: FileRange, room: int, content: ObjectContent) -> int:
        """Read a range, or the first batches that fit; return their size or 0. Raises OSError, LogError."""
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
        """Return the offset after the first batches, bytes and size; 0 if none. Raises OSError, LogError."""
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
        """Write the side files of a ticket whose records are all read; return the size. Raises OSError."""
        files: list[tuple[str, bytes]] = []
        try:
            self._durability.write_side_files(ticket, files)
        finally:
            size_bytes = _add_files(ticket, files, content)
        return size_bytes


def _add_files(ticket: FlushTicket, files: Sequence[tuple[str, bytes]], content: ObjectContent) -> int:
    """Add the rows of side files to an object; return their size."""
    _, _, partition, topic_id = ticket.place
    for name, data in files:
        content.rows.append(FileRow(topic_id, partition, name, len(data), max(0, ticket.leader_epoch)))
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
    """Return the first whole batches of a range that fit into `room` bytes, and the offset after them. Where
    not even one fits, return no bytes with `must_fit`, else the first batch. Raises OSError, LogError.
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
