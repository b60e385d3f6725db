"""What a partition log has written and not made durable yet, and the tickets that are to make it so."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from log.durability.durability import sync_paths
from log.durability.flush_ticket import FlushTicket

if TYPE_CHECKING:
    from log.durability.capture import Capture
    from log.files.data_file import DataFile
    from log.files.storage import Storage
    from log.place import LogPlace
    from log.segments.segment import Segment
    from log.segments.segment_list import SegmentList

_FILES_PINNED_AT_ONCE: Final = 64


class Unflushed:
    """The durable end of a log, and everything behind it: data, files, directories, captures.

    `durable_end_offset` moves only by `complete`. A ticket that is out has proven nothing, so each new ticket carries the
    files, directories and captures of all that are out.
    """

    __slots__ = (
        "_captures",
        "_directories",
        "_flushed",
        "_out",
        "_paths",
        "_storage",
        "durable_end_offset",
        "first_flush_pending",
        "generation",
        "place",
    )

    def __init__(self, storage: Storage, place: LogPlace) -> None:
        """Begin with nothing; `reset` tells where the durable data ends."""
        self._storage = storage
        self.place = place
        self.generation = 0
        """How often the log was loaded again or closed."""
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

    def reset(self, segments: SegmentList, durable_end_offset: int) -> None:
        """Begin anew with a log that was loaded: all of it is durable."""
        self._forget()
        self.durable_end_offset = durable_end_offset
        self._flushed = segments.active.base_offset, segments.active.size_bytes

    @property
    def has_files(self) -> bool:
        """Whether something besides the data waits for a ticket."""
        return bool(self._paths or self._directories or self._captures)

    @property
    def has_captures(self) -> bool:
        """Whether a side file waits for a ticket, or for a ticket that is out."""
        return bool(self._captures) or any(ticket.captures for ticket in self._out)

    @property
    def is_durable(self) -> bool:
        """Whether all files besides the data are durable: none waits for a ticket, or for a ticket that is out."""
        return not self.has_files and not any(
            ticket.paths or ticket.directories or ticket.captures for ticket in self._out
        )

    @property
    def is_removing(self) -> bool:
        """Whether a ticket is out after which the log starts later."""
        return any(ticket.last is not None for ticket in self._out)

    @property
    def tickets_out(self) -> int:
        """How many tickets have not come back."""
        return len(self._out)

    def add(self, paths: list[str], directory: str) -> None:
        """Note files in `directory` that were made or replaced."""
        self._paths += paths
        self._directories.append(directory)

    def add_capture(self, capture: Capture, replaced: Capture | None = None) -> None:
        """Note a side file for the next ticket to write; `replaced`, if no ticket has taken it, is not written any more."""
        if replaced is not None and replaced in self._captures:
            self._captures.remove(replaced)
        self._captures.append(capture)

    def prepare(
        self, segments: SegmentList, log_end_offset: int, leader_epoch: int, *, counts_out: bool = False
    ) -> FlushTicket | None:
        """Return a ticket for everything that is not durable; None when there is nothing. Raises OSError.

        With `counts_out` what the tickets that are out carry counts as well: the caller can't wait for those tickets.
        Each ticket goes back to `take_back`, once.
        """
        if not (self.durable_end_offset < log_end_offset or self.has_files or (counts_out and self._out)):
            return None
        active = segments.active
        files = [active.file]
        paths, directories = self._files_for_ticket()
        captures = [capture for out in self._out for capture in out.captures] + self._captures
        if self.durable_end_offset < active.base_offset:
            first = max(0, bisect_right(segments.bases, self.durable_end_offset) - 1)
            files = [segment.file for segment in segments.segments[first:]]
            # Too many to hold open: closed segments can be flushed by name as well.
            paths = [file.path for file in files[:-_FILES_PINNED_AT_ONCE]] + paths
            files = files[-_FILES_PINNED_AT_ONCE:]
        if not self._storage.descriptors.may_pin(len(files)):
            paths, files = [file.path for file in files] + paths, []
        self._pin(files)
        ticket = FlushTicket(
            self.place,
            self.generation,
            leader_epoch,
            self.durable_end_offset,
            log_end_offset,
            files,
            paths,
            directories,
            captures,
            active.base_offset,
            self._flushed_bytes(active),
            active.size_bytes,
            self._storage,
        )
        self._out.append(ticket)
        self._paths, self._directories, self._captures = [], [], []
        return ticket

    def prepare_empty(self, leader_epoch: int) -> FlushTicket:
        """Return a ticket for nothing, to which the caller adds a capture; it moves no durable end."""
        base_offset, position = self._flushed
        end_offset = self.durable_end_offset
        ticket = FlushTicket(
            self.place,
            self.generation,
            leader_epoch,
            end_offset,
            end_offset,
            [],
            [],
            [],
            [],
            base_offset,
            position,
            position,
            self._storage,
        )
        self._out.append(ticket)
        return ticket

    def _pin(self, files: list[DataFile]) -> None:
        pinned: list[DataFile] = []
        try:
            for file in files:
                self._storage.descriptors.pin(file)
                pinned.append(file)
        except OSError:
            for file in pinned:
                self._storage.descriptors.unpin(file)
            raise

    def _flushed_bytes(self, active: Segment) -> int:
        """Return how much of the active segment was flushed for certain."""
        base_offset, position = self._flushed
        return position if base_offset == active.base_offset else 0

    def _files_for_ticket(self) -> tuple[list[str], list[str]]:
        """Return (files, directories) that the next ticket must make durable."""
        paths, directories = self._paths, self._directories
        for ticket in self._out:
            paths = ticket.paths + paths
            directories = ticket.directories + directories
        return list(dict.fromkeys(paths)), list(dict.fromkeys(directories))

    def take_back(self, ticket: FlushTicket) -> None:
        """Release the files of a ticket that is over, well or badly."""
        if ticket in self._out:
            self._out.remove(ticket)
        for file in ticket.data:
            self._storage.descriptors.unpin(file)

    def complete(self, ticket: FlushTicket) -> bool:
        """Move the durable end by a ticket that ran; False for a ticket of an earlier life of the log."""
        if ticket.generation != self.generation:
            return False
        self.first_flush_pending = False
        self.durable_end_offset = max(self.durable_end_offset, ticket.end_offset)
        self._flushed = ticket.active_base_offset, ticket.end_position
        return True

    def sync_files(self) -> None:
        """Make files and directories, not the data, durable in this thread, at once. Raises OSError."""
        paths, directories = self._files_for_ticket()
        sync_paths(self._storage, paths)
        for directory in directories:
            self._storage.sync_directory(directory)
        self._paths, self._directories = [], []
        self.first_flush_pending = False
