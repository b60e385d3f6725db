"""Writes at the end of one partition log: batches, the next segment, leader epochs. A failed write takes the
log offline.

What is written is not durable yet: paths that a flush must persist go to `Unflushed`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

from seqgate.log.errors import CorruptRecord, StorageFailed
from seqgate.log.format.stamping import stamp
from seqgate.log.segments.segment import Segment
from seqgate.log.state.producer_snapshots import has_snapshot, write_snapshot

if TYPE_CHECKING:
    from seqgate.log.config import LogConfig
    from seqgate.log.durability.unflushed import Unflushed
    from seqgate.log.environment import LogEnvironment
    from seqgate.log.format.record_batch import BatchHeader
    from seqgate.log.partition_log import Outage
    from seqgate.log.segments.reader import SegmentList
    from seqgate.log.state.leader_epochs import LeaderEpochFile
    from seqgate.log.state.record_states import RecordStates
    from seqgate.seq_validator import ProducerTable


_MOST: Final = 2**31 - 1
"""The largest position, and the largest offset after the base offset, that Kafka's index files can hold."""


class LogWriter:
    """The writing end of a log that was loaded. All methods raise StorageFailed; the log is then offline."""

    __slots__ = (
        "_directory",
        "_environment",
        "_epochs",
        "_outage",
        "_producers",
        "_record_states",
        "_segments",
        "_unflushed",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: str,
        outage: Outage[Any],
        unflushed: Unflushed,
        record_states: RecordStates,
        segments: SegmentList,
        epochs: LeaderEpochFile,
        producers: ProducerTable,
    ) -> None:
        """Take the parts of the log that a write concerns."""
        self._environment = environment
        self._directory = directory
        self._outage = outage
        self._unflushed = unflushed
        self._record_states = record_states
        self._segments = segments
        self._epochs = epochs
        self._producers = producers

    def write(
        self, batch: BatchHeader, view: memoryview, last_offset: int, config: LogConfig, now_ms: int
    ) -> int:
        """Write the batch at the log end, in a new segment if one is due. Return the timestamp that the
        broker gave it, or −1.
        """
        segments, outage = self._segments, self._outage
        if config.message_timestamp_type != "CreateTime" and batch.record_count:
            batch.max_timestamp = now_ms  # the broker's timestamp replaces the client's, and decides when the segment rolls by time
        try:
            must_roll = segments.active.must_roll(batch, last_offset, config, now_ms)
        except (CorruptRecord, OSError) as error:
            outage.fail(f"the active segment can't be read: {error}", error)
        if must_roll and not self.roll(batch.base_offset, now_ms):
            _check_can_hold(segments.active, batch, last_offset)
        active = segments.active
        head, rest, log_append_time_ms = stamp(batch, view, config, now_ms)
        try:
            written = self._environment.storage.write(active.file, (head, rest), active.size_bytes)
        except OSError as error:
            outage.fail(f"a write failed: {error}", error)
        if written != batch.size_bytes:
            no_room = OSError(errno.ENOSPC, "only a part of the bytes was written")
            outage.fail(
                f"only {written} of {batch.size_bytes} bytes could be written; is the disk full?", no_room
            )
        kept_writes = self._environment.durability.kept_writes
        if kept_writes is not None:
            kept_writes.keep(active.file, active.size_bytes, batch.base_offset, last_offset + 1, (head, rest))
        return log_append_time_ms

    def roll(self, log_end_offset: int, now_ms: int) -> bool:
        """Begin a new segment at `log_end_offset`, unless the active segment is empty. Return whether a
        segment began.

        A log whose first flush is not over stays in its first segment. Otherwise a crash could leave the
        second segment without the first, and a start would take the second for the whole log.
        """
        segments = self._segments
        if segments.active.base_offset == log_end_offset or self._unflushed.first_flush_pending:
            return False
        segment = Segment(self._environment, self._directory, log_end_offset, 0, now_ms)
        try:
            paths = self.write_side_files(log_end_offset)
            self._environment.storage.create(segment.file)
            self._unflushed.add(paths, self._directory)
            segments.add(segment)
            # Capture the names, so that a start need not replay the closed segment for them.
            self._record_states.capture_names()
        except OSError as error:
            self._outage.fail(f"a new segment could not be created: {error}", error)
        except MemoryError as error:
            self._outage.fail("the memory did not suffice for a new segment", error)
        return True

    def write_side_files(self, log_end_offset: int, *, may_omit: bool = False) -> list[str]:
        """Write the indexes of the active segment and a producer snapshot. Return their paths, not durable
        yet.

        With `may_omit`, write no indexes that `index_files` takes for unnecessary. A log of one such segment
        that remembers no producer then gets no snapshot either, unless there is an older one. Raises OSError,
        CorruptRecord; the log stays online.
        """
        indexes = self._segments.write_indexes(may_omit=may_omit)
        is_small = may_omit and not indexes and len(self._segments.segments) == 1
        if is_small and not len(self._producers) and not has_snapshot(self._environment, self._directory):
            return []
        snapshot = write_snapshot(
            self._environment,
            self._directory,
            self._producers,
            log_end_offset,
            self._unflushed.durable_end_offset,
        )
        return [*indexes, snapshot]

    def begin_leader_epoch(self, leader_epoch: int, base_offset: int) -> None:
        """Write that batches from `base_offset` on belong to `leader_epoch`."""
        try:
            self._unflushed.add([self._epochs.begin(leader_epoch, base_offset)], self._directory)
        except OSError as error:
            self._outage.fail(f"the leader epoch could not be written: {error}", error)


def _check_can_hold(segment: Segment, batch: BatchHeader, last_offset: int) -> None:
    """Check that the active segment can hold one more batch, although the log should roll and must not yet.
    Raises StorageFailed.

    The log stays online: the first flush ends soon, or takes the log offline. An empty segment holds any
    batch.
    """
    is_too_large = segment.size_bytes > _MOST - batch.size_bytes
    if segment.size_bytes and (is_too_large or last_offset - segment.base_offset > _MOST):
        raise StorageFailed(
            f"{segment.file.path} is full, and the next segment must wait for the log's first flush; retry "
            "later"
        )
