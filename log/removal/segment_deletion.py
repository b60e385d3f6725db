"""Removes segments in two steps, as Kafka does: rename to `*.deleted` at once, delete after `file.delete.delay.ms`.

Source: Kafka's `LocalLog.deleteSegmentFiles`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from log.files.file_names import DELETED_SUFFIX, SEGMENT_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from log.environment import LogEnvironment
    from log.segments.segment import Segment


def remove_segments(environment: LogEnvironment, segments: Iterable[Segment], due_ms: int) -> None:
    """Rename the segments' files to `*.deleted`, and queue the files for deletion from `due_ms` on. Raises OSError.

    A crash may leave such files behind; loading the log deletes them.
    """
    for segment in segments:
        environment.storage.descriptors.retire(segment.file, for_readers=True)
        environment.forget_indexes(segment.file.path)
        for suffix in SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            with contextlib.suppress(FileNotFoundError):
                environment.storage.rename(path, path + DELETED_SUFFIX)
                environment.deletions.add(path + DELETED_SUFFIX, due_ms)
