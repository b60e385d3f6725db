"""Persists the log start offset of one partition, in a file in Kafka's checkpoint format.

Kafka keeps the log start offsets of all partitions in one file and writes that file once a minute. Here each
offset is durable before the first segment below it is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqgate.log.durability.unflushed import SideFile
from seqgate.log.files.checkpoints import encode_offsets
from seqgate.log.files.file_names import LOG_START_OFFSET

if TYPE_CHECKING:
    from seqgate.log.files.durable_files import DurableFiles


class LogStart:
    """The file with the log start offset. The offset in it only moves forward."""

    __slots__ = ("_file", "_key", "_path")

    def __init__(self, directory: str, topic: str, partition: int, durable_offset: int) -> None:
        """Begin with the offset that the file holds."""
        self._path = f"{directory}/{LOG_START_OFFSET}"
        self._key = topic, partition
        self._file = SideFile(durable_offset)

    def advance(self, offset: int, files: DurableFiles) -> None:
        """Persist the offset by `files` unless a later offset is durable already. Any thread may call. Does
        nothing when closed.

        Raises OSError.
        """
        self._file.write(offset, lambda: files.replace(self._path, self.content(offset)))

    def content(self, offset: int) -> bytes:
        """Return what the file holds when the log starts at the offset."""
        return encode_offsets({self._key: offset})

    def close(self) -> None:
        """Ignore all further writes, also those of removals in flight.

        Otherwise a write could reach a new log in a directory of the same name.
        """
        self._file.close()


class LogStartCapture:
    """A new log start offset. A ticket persists it last, after the derived state from the records to remove."""

    __slots__ = ("_log_start", "_offset")

    def __init__(self, log_start: LogStart, offset: int) -> None:
        """Create for the file that holds the log start offset, and the new offset."""
        self._log_start = log_start
        self._offset = offset

    def write(self, files: DurableFiles) -> None:
        """Persist the new log start offset. Raises OSError."""
        self._log_start.advance(self._offset, files)

    def file(self) -> tuple[str, bytes]:
        """Return the name of the file and its new content, for an object that must have both before `write`."""
        return LOG_START_OFFSET, self._log_start.content(self._offset)

    def saved(self) -> None:
        """Do nothing: the removal that made the ticket moves the log start."""
