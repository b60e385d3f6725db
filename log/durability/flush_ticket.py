"""The work of one flush of a partition log: prepared on the event loop, run in a thread, completed on the loop."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.durability.capture import Capture
    from log.durability.log_start import LogStartCapture
    from log.files.data_file import DataFile
    from log.files.storage import Storage
    from log.place import LogPlace

SMALL_BYTES: Final = 64 * 1024
"""The most unflushed data, in one file, with which a flush counts as small."""


class FileRange(NamedTuple):
    """A range of whole batches in one segment file."""

    file: DataFile
    segment_base: int
    """The base offset of the segment."""
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
    """Everything that must be flushed to make the offsets below `end_offset` durable, in this order: data, files,
    directories, captures.

    Committing the ticket (`log.durability.durability`) touches no log state. The data files are pinned, so neither the
    limit of open files nor a deletion closes them meanwhile. A ticket of an earlier `generation` changes nothing when
    it completes, because the log was reloaded since.
    """

    place: LogPlace
    generation: int
    leader_epoch: int
    begin_offset: int
    """The first offset that was not durable when the ticket was made."""
    end_offset: int
    """The log end offset when the ticket was made (exclusive)."""
    active_base_offset: int
    begin_position: int
    """The position in the active segment up to which an earlier flush has surely made data durable."""
    end_position: int
    """The size of the active segment when the ticket was made, in bytes."""
    storage: Storage
    """The storage that holds the files."""
    data: list[DataFile] = field(default_factory=list)
    """The segment files that hold the offsets, ascending, pinned by the log."""
    paths: list[str] = field(default_factory=list)
    """Files written besides the data, and segment files that are not pinned."""
    directories: list[str] = field(default_factory=list)
    """Directories in which names changed."""
    captures: list[Capture] = field(default_factory=list)
    last: LogStartCapture | None = None
    """The capture that is written after everything else: the log start offset of a removal. Flushes have none."""
    ranges: Sequence[FileRange] = ()
    """The bytes that this ticket has and no other ticket, ascending, where rounds overlap. Otherwise there are none."""

    @property
    def size_bytes(self) -> int:
        """The most bytes of the active segment that are not durable yet."""
        return self.end_position - self.begin_position

    @property
    def is_small(self) -> bool:
        """Whether the ticket has only a few records in one file, so that a flush takes the shortest possible time."""
        return (
            self.size_bytes <= SMALL_BYTES
            and len(self.data) == 1
            and not (self.paths or self.captures or self.last)
        )

    def is_just_written(self) -> bool:
        """Return whether all ranges are among the last bytes written, so that they come from memory. Call this on the event loop."""
        return all(self.storage.was_just_written(part.file, part.position) for part in self.ranges)

    def read(self, part: FileRange, position: int, size_bytes: int) -> bytes:
        """Return bytes of one of the ranges; any thread may call. Raises OSError, also if the file has fewer bytes."""
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
