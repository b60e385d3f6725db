"""Making a partition's bytes durable: prepared on the event loop, run in a thread, completed on the event loop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from log.storage import DataFile, Storage


class FlushTicket:
    """What must reach the disk for all offsets below `end_offset` to be durable.

    `run` may be called in any thread and touches no log state: the data files are pinned, so neither the handle
    bound nor a deletion closes them meanwhile.
    """

    __slots__ = ("_directories", "_paths", "_storage", "end_offset", "end_position", "files", "generation")

    def __init__(
        self,
        storage: Storage,
        *,
        files: list[DataFile],
        paths: list[str],
        directories: list[str],
        end_offset: int,
        end_position: int,
        generation: int,
    ) -> None:
        """Name the data files (pinned by the caller), other files, and directories to make durable, in this order."""
        self._storage = storage
        self._paths = paths
        self._directories = directories
        self.files = files
        self.end_offset = end_offset
        self.end_position = end_position
        self.generation = generation

    @property
    def paths(self) -> list[str]:
        """Other files that the ticket makes durable."""
        return self._paths

    @property
    def directories(self) -> list[str]:
        """Directories whose new names the ticket makes durable."""
        return self._directories

    def run(self) -> None:
        """Flush. Raises OSError; then `fail_flush` must be called, never `run` again."""
        for file in self.files:
            self._storage.sync(file)
        for path in self._paths:
            # Retention may have deleted it meanwhile; then nobody needs it.
            with contextlib.suppress(FileNotFoundError):
                self._storage.sync_path(path)
        for directory in self._directories:
            self._storage.sync_directory(directory)
