"""A bucket that has the only copy of some segments, and refuses to let the event loop wait for it."""

from __future__ import annotations

import threading
from pathlib import Path

from seqgate.log import PartitionLog
from seqgate.log.files.disk import SystemDisk
from seqgate.log.sparse import SegmentKey, SparseDisk


class Bucket:
    def __init__(self) -> None:
        self.disk = SparseDisk(SystemDisk())
        self.disk.source = self
        self.fetched: list[int] = []
        """The positions of all blocks that were fetched."""
        self._contents: dict[SegmentKey, bytes] = {}

    def take_first_segment(self, log: PartitionLog) -> None:
        """Take the bytes of the first segment from the local disk."""
        segment = log.segments.segments[0]
        path = str(segment.file.path)
        file = self.disk.files.of(path)
        assert file is not None
        key = SegmentKey(log.topic_id, log.partition, segment.base_offset, 1)
        self._contents[key] = Path(path).read_bytes()
        self.disk.stored(file, key, segment.size_bytes)
        file.absent = file.all_blocks

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        assert threading.current_thread() is not threading.main_thread(), "the event loop waited"
        self.fetched.append(position)
        return self._contents[key][position : position + size_bytes]
