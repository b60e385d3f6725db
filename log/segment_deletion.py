"""Segments leave in two steps, as in Kafka: renamed to `*.deleted` at once, deleted after `file.delete.delay.ms`.

Source: Kafka's `LocalLog.deleteSegmentFiles`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.names import DELETED_SUFFIX, SEGMENT_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from log.environment import LogEnvironment
    from log.segment import Segment


class SegmentDeletion:
    """The files of one partition that wait to be deleted, with the time at which each may go (ms)."""

    __slots__ = ("_environment", "_waiting")

    def __init__(self, environment: LogEnvironment) -> None:
        """Begin with none; files left from before a crash are deleted when the log is loaded."""
        self._environment = environment
        self._waiting: list[tuple[int, str]] = []

    def remove(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Take the segments' names away. Raises OSError."""
        storage = self._environment.storage
        for segment in segments:
            storage.retire(segment.file, for_readers=True)
            self._environment.forget_indexes(segment.file.path)
            for suffix in SEGMENT_SUFFIXES:
                path = segment.path(suffix)
                if storage.exists(path):
                    storage.rename(path, path + DELETED_SUFFIX)
                    self._waiting.append((due_ms, path + DELETED_SUFFIX))

    def delete_due(self, now_ms: int) -> int:
        """Delete the files whose time has come; returns how many. Raises OSError."""
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        for path in due:
            self._environment.storage.delete(path)
        if due:
            self._waiting = [entry for entry in self._waiting if entry[0] > now_ms]
        return len(due)
