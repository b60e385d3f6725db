"""What one flush of a partition log makes durable: prepared on the event loop, committed in a thread, completed on the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from log.durability.capture import Capture
    from log.files.data_file import DataFile
    from log.files.storage import Storage
    from log.place import LogPlace

SMALL_BYTES: Final = 64 * 1024
"""A flush of at most this much data, in one file, is a quick one."""


@dataclass(slots=True, eq=False)
class FlushTicket:
    """What must become durable for all offsets below `end_offset` to be so, in this order: data, files, directories, captures.

    Committing the ticket (`log.durability.durability`) touches no log state. The data files are pinned, so neither the limit
    of open files nor a deletion closes them meanwhile. A ticket of an earlier `generation` of the log moves nothing when it comes back.
    """

    place: LogPlace
    generation: int
    leader_epoch: int
    begin_offset: int
    """The first offset that was not durable when the ticket was made."""
    end_offset: int
    """The log end offset when the ticket was made (exclusive)."""
    data: list[DataFile]
    """The segment files that hold the offsets, ascending, pinned by the log."""
    paths: list[str]
    """Files written besides the data, and segment files that are not pinned."""
    directories: list[str]
    """Directories in which names changed."""
    captures: list[Capture]
    active_base_offset: int
    begin_position: int
    """Up to which byte of the active segment an earlier flush got for certain."""
    end_position: int
    """The size of the active segment when the ticket was made, in bytes."""
    storage: Storage
    """Where the files are, and the data can be read."""
    last: Capture | None = None
    """What may become durable only after all else: the log start offset of a removal. No other ticket carries it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of data that are not durable yet in the active segment, at most."""
        return self.end_position - self.begin_position

    @property
    def is_small(self) -> bool:
        """Whether the ticket is a few records of one file and nothing else: a flush of the quickest kind."""
        return (
            self.size_bytes <= SMALL_BYTES
            and len(self.data) == 1
            and not (self.paths or self.captures or self.last)
        )
