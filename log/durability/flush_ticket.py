"""Making a partition's bytes durable: prepared on the event loop, run in a thread, completed on the event loop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from log.files.data_file import DataFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log.files.storage import Storage
    from log.state.name_snapshots import NamesCapture

SMALL_BYTES: Final = 64 * 1024


def sync_paths(storage: Storage, paths: Iterable[str]) -> None:
    """Make files durable by name. One that retention has deleted meanwhile is needed by nobody."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            storage.sync_path(path)


def make_durable(storage: Storage, path: str, content: bytes) -> None:
    """Have the disk hold this content, which the file shows but nobody knows to be durable. Raises OSError.

    Where an earlier flush has failed, the page cache shows what the disk never got, and another flush tells of success:
    what was flushed is read again from the disk, and written anew if it is something else.
    """
    file = DataFile(path)
    storage.sync_path(path)
    storage.forget_cached(file)
    storage.retire(file)
    if storage.read_file(path) != content:
        storage.replace_file(path, content)


class FlushTicket:
    """What must reach the disk for all offsets below `end_offset` to be durable.

    `run` may be called in any thread and touches no log state: the data files are pinned, so neither the handle
    bound nor a deletion closes them meanwhile.
    """

    __slots__ = (
        "_directories",
        "_paths",
        "_storage",
        "active_base_offset",
        "end_offset",
        "end_position",
        "files",
        "generation",
        "names",
        "size_bytes",
    )

    def __init__(
        self,
        storage: Storage,
        *,
        files: list[DataFile],
        paths: list[str],
        directories: list[str],
        end_offset: int,
        active_base_offset: int,
        end_position: int,
        generation: int,
        size_bytes: int,
    ) -> None:
        """Name the data files (pinned by the caller), other files, and directories to make durable, in this order.

        `size_bytes` is how much data is not durable yet, at most.
        """
        self._storage = storage
        self._paths = paths
        self._directories = directories
        self.files = files
        self.end_offset = end_offset
        self.active_base_offset = active_base_offset
        self.end_position = end_position
        self.generation = generation
        self.size_bytes = size_bytes
        self.names: NamesCapture | None = None
        """What is remembered of producer names, to be written down once the data is durable."""

    @property
    def paths(self) -> list[str]:
        """Other files that the ticket makes durable."""
        return self._paths

    @property
    def directories(self) -> list[str]:
        """Directories whose new names the ticket makes durable."""
        return self._directories

    @property
    def is_small(self) -> bool:
        """Whether it is a few records of one file and no other file: a flush of the quickest kind."""
        return self.size_bytes <= SMALL_BYTES and len(self.files) == 1 and not self._paths and not self.names

    @property
    def has_more_to_write(self) -> bool:
        """Whether it writes a file: to flush what is there does not replace it."""
        return self.names is not None

    def run(self) -> None:
        """Flush. Raises OSError; then `fail_flush` must be called, never `run` again."""
        for file in self.files:
            self._storage.sync(file)
        sync_paths(self._storage, self._paths)
        if self.names is not None:
            self._write_names(self.names)
        for directory in self._directories:
            try:
                self._storage.sync_directory(directory)
            except FileNotFoundError:
                # The whole partition may have been deleted meanwhile: then its files were released.
                if not all(file.closing for file in self.files):
                    raise

    def _write_names(self, names: NamesCapture) -> None:
        try:
            names.write()
        except FileNotFoundError:
            # As above.
            if not all(file.closing for file in self.files):
                raise


class UndurableNames:
    """Files and directories written besides the data and not yet durable, and the tickets that are to make them so.

    A ticket that is out has proven nothing, so each new one carries the names of all that are out.
    """

    __slots__ = ("_directories", "_out", "_paths")

    def __init__(self) -> None:
        """Begin with none."""
        self._paths: list[str] = []
        self._directories: list[str] = []
        self._out: list[FlushTicket] = []

    def __bool__(self) -> bool:
        """Whether something waits for a ticket."""
        return bool(self._paths or self._directories)

    @property
    def tickets_out(self) -> int:
        """How many tickets have not come back."""
        return len(self._out)

    def add(self, paths: list[str], directory: str) -> None:
        """Note files in `directory` that were made or replaced."""
        self._paths += paths
        self._directories.append(directory)

    def names_for_ticket(self) -> tuple[list[str], list[str]]:
        """(files, directories) that the next ticket must make durable."""
        paths, directories = self._paths, self._directories
        for ticket in self._out:
            paths = ticket.paths + paths
            directories = ticket.directories + directories
        return list(dict.fromkeys(paths)), list(dict.fromkeys(directories))

    def sent(self, ticket: FlushTicket) -> None:
        """The ticket took the names."""
        self._out.append(ticket)
        self._paths = []
        self._directories = []

    def came_true(self) -> None:
        """All names that wait were made durable without a ticket."""
        self._paths = []
        self._directories = []

    def came_back(self, ticket: FlushTicket) -> None:
        """The ticket is over, well or badly."""
        if ticket in self._out:
            self._out.remove(ticket)
