"""Tracks the part of a partition log that is not durable yet, and makes the tickets that flush this part.

Where rounds of a durability overlap, tickets become objects, and no byte belongs into two objects. So each
ticket takes only bytes that no other ticket has, and a log that comes back after an outage must have every
byte that a ticket took. Otherwise its next batches would get offsets that objects use already.

A ticket carries captures of derived state, which the log makes on the event loop. The flush persists the
log's data first, then writes the captures as side files. So no crash leaves a side file that describes
batches that the log does not have.
"""

from __future__ import annotations

import errno
import threading
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from seqgate.log.errors import StorageFailed
from seqgate.log.files.checkpoints import encode_offsets
from seqgate.log.files.file_names import LOG_START_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from seqgate.log.config import LogPlace
    from seqgate.log.durability.durability import Durability
    from seqgate.log.files.storage import DataFile, DurableFiles, Storage
    from seqgate.log.segments.reader import SegmentList


_FILES_PINNED_AT_ONCE: Final = 64
SMALL_BYTES: Final = 64 * 1024
"""The most unflushed data, in one file, with which a flush counts as small."""


class FileRange(NamedTuple):
    """A range of whole batches in one segment file."""

    file: DataFile
    segment_base: int
    position: int
    end_position: int
    """The position after the last byte."""
    first_offset: int
    end_offset: int
    """The offset after the last record."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes in the range, at least one."""
        return self.end_position - self.position


@dataclass(slots=True, eq=False)
class FlushTicket:
    """The flushes that make offsets below `end_offset` durable: data, files, directories, captures, in order.

    Committing the ticket (`seqgate.log.durability.durability`) touches no log state. The data files are
    pinned, so neither the limit of open files nor a deletion closes them meanwhile. A ticket of an earlier
    `generation` changes nothing when it completes, because the log was reloaded since.
    """

    place: LogPlace
    generation: int
    leader_epoch: int
    begin_offset: int
    """The first offset that was not durable when the ticket was made."""
    end_offset: int
    """The log end offset when the ticket was made (exclusive)."""
    active_base_offset: int
    end_position: int
    """The size of the active segment when the ticket was made, in bytes."""
    storage: Storage
    data: list[DataFile] = field(default_factory=list)
    """The segment files that hold the offsets, ascending, pinned by the log."""
    paths: list[str] = field(default_factory=list)
    """Files written besides the data, and segment files that are not pinned."""
    directories: list[str] = field(default_factory=list)
    """Directories in which names changed."""
    captures: list[Capture] = field(default_factory=list)
    last: LogStartCapture | None = None
    """The capture that is written last: the log start offset of a removal. Flushes have none."""
    is_small: bool = False
    """Whether the ticket has only a few records in one file, so that its flush is very short."""
    ranges: Sequence[FileRange] = ()
    """The bytes that this ticket alone has, ascending, where rounds overlap. Otherwise there are none."""

    def is_just_written(self) -> bool:
        """Return whether all ranges were just written, and so are in memory. Call this on the event loop."""
        return all(self.storage.was_just_written(part.file, part.position) for part in self.ranges)

    def read(self, part: FileRange, position: int, size_bytes: int) -> bytes:
        """Return bytes of a range; any thread may call. Raises OSError, also if the file has fewer bytes."""
        storage, file = self.storage, part.file
        content = (
            storage.read_pinned(file, size_bytes, position)
            if self.data
            else storage.read_by_name(file.path, size_bytes, position)
        )
        if len(content) != size_bytes:
            raise OSError(
                errno.EIO,
                f"the file has only {len(content)} of {size_bytes} bytes at position {position}",
                file.path,
            )
        return content


class Unflushed:
    """The durable end of a log, and all after it that waits for a flush: data, files, directories, captures.

    Only `complete` and `confirm` move `durable_end_offset`. A ticket in flight may still fail, so each new
    ticket repeats the files, directories and captures of all tickets in flight.

    Where rounds overlap, tickets become objects, which are confirmed in order. Then a ticket for a round
    repeats nothing: it has the ranges of files that no earlier ticket has. A ticket for something else
    (`counts_out`) has no ranges: whoever makes it durable waits for rounds up to its end offset first.
    """

    __slots__ = (
        "_captures",
        "_directories",
        "_ends",
        "_flushed",
        "_out",
        "_paths",
        "_sent",
        "_storage",
        "durable_end_offset",
        "first_flush_pending",
        "generation",
        "place",
    )

    def __init__(self, storage: Storage, place: LogPlace, durability: Durability, ends: DurableEnds) -> None:
        """Create without unflushed files; `reset` sets the durable end offset. `ends` counts its moves."""
        self._storage = storage
        self._ends = ends
        ends.moves += 1
        self._sent = Sent() if durability.rounds_overlap else None
        self.place = place
        self.generation = 0
        """How often the log was reloaded or closed. Tickets of an earlier generation are ignored."""
        self.first_flush_pending = False
        """Whether the names of directory and first segment are not durable yet."""
        self.durable_end_offset = 0
        self._forget()

    def _forget(self) -> None:
        self._paths: list[str] = []
        self._directories: list[str] = []
        self._captures: list[Capture] = []
        self._out: list[FlushTicket] = []
        self._flushed = -1, 0

    def reset(self, segments: SegmentList, loaded_end_offset: int) -> None:
        """Start over with a log that was just loaded: all of it is durable.

        Where rounds overlap, that is so at the first load only. After an outage objects still decide.
        """
        self._forget()
        self._flushed = segments.active.base_offset, segments.active.size_bytes
        self._ends.moves += 1
        if self._sent is None:
            self.durable_end_offset = loaded_end_offset
        elif self._sent.end is None:
            self.durable_end_offset = loaded_end_offset
            self._sent.move(segments, loaded_end_offset)

    def check_sent(self, segments: SegmentList, loaded_end_offset: int) -> None:
        """Check that a log loaded again has all that objects may have. Raises StorageFailed, OSError."""
        if self._sent is not None and not self._sent.is_in(segments, loaded_end_offset):
            raise StorageFailed(
                f"{self.place} ends at offset {loaded_end_offset} on the local disk, and the bucket was sent "
                "records up to "
                f"{self._sent.end_offset}: restart the gateway to rebuild the partition from the bucket"
            )

    def unsent_bytes(self, segments: SegmentList) -> int:
        """Return how many bytes of the log no ticket has, where rounds overlap."""
        return 0 if self._sent is None else self._sent.size_bytes(segments)

    @property
    def has_files(self) -> bool:
        """Whether a new or replaced file waits for a ticket."""
        return bool(self._paths or self._directories or self._captures)

    @property
    def has_captures(self) -> bool:
        """Whether a side file waits for a ticket, or for the completion of one."""
        return bool(self._captures) or any(ticket.captures for ticket in self._out)

    @property
    def is_durable(self) -> bool:
        """Whether all files but the data are durable: none waits for a ticket or its completion."""
        return not self.has_files and not any(
            ticket.paths or ticket.directories or ticket.captures for ticket in self._out
        )

    @property
    def is_removing(self) -> bool:
        """Whether a removal's ticket is in flight, after which the log starts later."""
        return any(ticket.last is not None for ticket in self._out)

    @property
    def tickets_out(self) -> int:
        return len(self._out)

    def add(self, paths: list[str], directory: str) -> None:
        """Add new or replaced files in `directory` to the next ticket."""
        self._paths += paths
        self._directories.append(directory)

    def add_capture(self, capture: Capture, replaced: Capture | None = None) -> None:
        """Add a side file to the next ticket, in place of `replaced` if no ticket has taken that yet."""
        if replaced is not None and replaced in self._captures:
            self._captures.remove(replaced)
        self._captures.append(capture)

    def prepare(
        self, segments: SegmentList, log_end_offset: int, leader_epoch: int, *, counts_out: bool = False
    ) -> FlushTicket | None:
        """Return a ticket for everything that is not durable; None when all is. Raises OSError.

        With `counts_out`, work that is already in tickets in flight counts as well, because the caller can't
        wait for those tickets. Give each ticket back once, to `take_back`.
        """
        active, sent = segments.active, self._sent
        ranges: Sequence[FileRange] = ()
        if sent is not None:
            found = self._next(sent, segments, log_end_offset, counts_out)
            if found is None:
                return None
            files, paths, directories, captures, ranges = found
        else:
            if not (self.durable_end_offset < log_end_offset or self.has_files or (counts_out and self._out)):
                return None
            files = [active.file]
            paths, directories, captures = self._work_for_ticket()
            if self.durable_end_offset < active.base_offset:
                first = max(0, bisect_right(segments.bases, self.durable_end_offset) - 1)
                files = [segment.file for segment in segments.segments[first:]]
                # too many segments to keep open: flush the closed ones by their paths
                paths = [file.path for file in files[:-_FILES_PINNED_AT_ONCE]] + paths
                files = files[-_FILES_PINNED_AT_ONCE:]
            if not self._storage.descriptors.pin_all(files):
                paths, files = [file.path for file in files] + paths, []
        base_offset, position = self._flushed
        begin_position = position if base_offset == active.base_offset else 0
        ticket = FlushTicket(
            self.place,
            self.generation,
            leader_epoch,
            self.durable_end_offset,
            log_end_offset,
            active.base_offset,
            active.size_bytes,
            self._storage,
            files,
            paths,
            directories,
            captures,
            is_small=(
                active.size_bytes - begin_position <= SMALL_BYTES
                and len(files) == 1
                and not (paths or captures)
            ),
            ranges=ranges,
        )
        self._out.append(ticket)
        for taken in (self._paths, self._directories, self._captures):
            taken.clear()
        if sent is not None and not counts_out:
            sent.move(segments, log_end_offset)
        return ticket

    def _next(
        self, sent: Sent, segments: SegmentList, log_end_offset: int, counts_out: bool
    ) -> tuple[list[DataFile], list[str], list[str], list[Capture], Sequence[FileRange]] | None:
        """Return the next ticket's pinned files, paths, directories, captures, ranges, or None."""
        if counts_out:
            if not (self.durable_end_offset < log_end_offset or self.has_files or self._out):
                return None
            return [], *self._work_for_ticket(), ()
        if not (sent.end_offset < log_end_offset or self._captures):
            return None
        ranges = sent.ranges(segments, log_end_offset)
        files = [part.file for part in ranges]
        if len(files) > _FILES_PINNED_AT_ONCE or not self._storage.descriptors.pin_all(files):
            files = []
        return files, self._paths.copy(), self._directories.copy(), self._captures.copy(), ranges

    def prepare_empty(self, leader_epoch: int) -> FlushTicket:
        """Return a ticket without work, which does not move the durable end. The caller adds a capture."""
        end, (base_offset, position) = self.durable_end_offset, self._flushed
        ticket = FlushTicket(
            self.place, self.generation, leader_epoch, end, end, base_offset, position, self._storage
        )
        self._out.append(ticket)
        return ticket

    def _work_for_ticket(self) -> tuple[list[str], list[str], list[Capture]]:
        """Return (files, directories, captures) that the next ticket must make durable."""
        paths, directories, captures = self._paths, self._directories, self._captures
        for ticket in reversed(self._out):
            captures = ticket.captures + captures
        for ticket in self._out:
            paths = ticket.paths + paths
            directories = ticket.directories + directories
        return list(dict.fromkeys(paths)), list(dict.fromkeys(directories)), captures.copy()

    def take_back(self, ticket: FlushTicket) -> None:
        """Release the files of a finished ticket, whether it succeeded or failed."""
        if ticket in self._out:
            self._out.remove(ticket)
        for file in ticket.data:
            self._storage.descriptors.unpin(file)

    def complete(self, ticket: FlushTicket) -> bool:
        """Move the durable end and take the ticket back. Return False if the log was reloaded meanwhile."""
        is_current = ticket.generation == self.generation
        if is_current:
            self.first_flush_pending = False
            self.durable_end_offset = max(self.durable_end_offset, ticket.end_offset)
            self._ends.moves += 1
            self._flushed = ticket.active_base_offset, ticket.end_position
        else:
            self.confirm(ticket)
        self.take_back(ticket)
        return is_current

    def confirm(self, ticket: FlushTicket) -> None:
        """Move the durable end, without taking the ticket back, though the log is offline or was reloaded: an
        object has the records. Does nothing where the local disk alone has them.
        """
        if self._sent is not None:
            self.durable_end_offset = max(self.durable_end_offset, ticket.end_offset)
            self._ends.moves += 1

    def failed(self, ticket: FlushTicket, *, has_records: bool) -> None:
        """Note whether objects have a failed ticket's records. If not, the log's later tickets must fail."""
        if has_records:
            self.confirm(ticket)
        elif self._sent is not None:
            self._sent.give_back(ticket)


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
        """Move the end to the log's end: a ticket has all of it, or objects had when the log was loaded."""
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
        """Move the end back to the begin of a ticket that no object gets. Give later ones back, too."""
        if ticket.ranges and self.end is not None:
            first = ticket.ranges[0]
            if first.first_offset < self.end.offset:
                self.end = SentEnd(first.first_offset, first.segment_base, first.position)

    def is_in(self, segments: SegmentList, log_end_offset: int) -> bool:
        """Return whether a log loaded again has every byte of tickets at its old position. Raises OSError."""
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


class Capture(Protocol):
    """The content of one side file at one moment."""

    def write(self, files: DurableFiles) -> None:
        """Persist the side file in any thread, once the data it describes is durable. Raises OSError."""

    def saved(self) -> None:
        """Record that `write` has succeeded; called in the thread of the log."""


class WriteOnly(NamedTuple):
    """A capture that is just the call that writes it, and one that notes that it is saved."""

    write: Callable[[DurableFiles], None]
    saved: Callable[[], None] = lambda: None


class SideFile:
    """Guards the writes of one kind of side file in a directory, while the log is open.

    Captures are numbered, or have an offset that only grows. A late capture writes nothing after a newer one.
    """

    __slots__ = ("_closed", "_lock", "_number", "_written")

    def __init__(self, written: int = 0) -> None:
        """Take the number of the capture that is on disk; 0 means none."""
        self._lock = threading.Lock()
        self._closed = False
        self._number = written
        self._written = written

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def write(self, number: int, write: Callable[[], None]) -> None:
        """Call `write` unless the file is closed or has a newer capture. Raises what `write` raises."""
        with self._lock:
            if not self._closed and number > self._written:
                write()
                self._written = number

    def write_unnumbered(self, write: Callable[[], None]) -> None:
        """Call `write`, for content that never changes, unless the file is closed. Raises what it raises."""
        with self._lock:
            if not self._closed:
                write()

    def close(self) -> None:
        """Ignore further writes, also in flight: they could reach a new log whose directory has the name."""
        with self._lock:
            self._closed = True


class DurableEnds:
    """Counts the moves of the durable ends of all logs of a data directory. A new log counts as one."""

    __slots__ = ("moves",)

    def __init__(self) -> None:
        self.moves = 0


class LogStart:
    """The file with a partition's log start offset, in Kafka's checkpoint format. It only moves forward.

    Kafka keeps the log start offsets of all partitions in one file and writes that file once a minute. Here
    each offset is durable before the first segment below it is removed.
    """

    __slots__ = ("_file", "_key", "_path")

    def __init__(self, directory: str, topic: str, partition: int, durable_offset: int) -> None:
        self._path = f"{directory}/{LOG_START_OFFSET}"
        self._key = topic, partition
        self._file = SideFile(durable_offset)

    def advance(self, offset: int, files: DurableFiles) -> None:
        """Persist the offset unless a later one is durable or this is closed. Thread-safe. Raises OSError."""
        self._file.write(offset, lambda: files.replace(self._path, self.content(offset)))

    def content(self, offset: int) -> bytes:
        """Return what the file holds when the log starts at the offset."""
        return encode_offsets({self._key: offset})

    def close(self) -> None:
        self._file.close()


class LogStartCapture(NamedTuple):
    """A new log start offset. A ticket persists it last, after the state derived from removed records."""

    log_start: LogStart
    offset: int

    def write(self, files: DurableFiles) -> None:
        self.log_start.advance(self.offset, files)

    def file(self) -> tuple[str, bytes]:
        """Return the name of the file and its new content, for an object that needs both before `write`."""
        return LOG_START_OFFSET, self.log_start.content(self.offset)
