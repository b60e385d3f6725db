"""What of a partition log is durable, what is only written, and how the log fails, comes back and ends.

Source of the rules: Kafka's `UnifiedLog` and `LocalLog`; that an fsync is never tried again, PostgreSQL's fsyncgate (2018).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NoReturn

from log.errors import StorageFailed
from log.flush import FlushTicket, UndurableNames, sync_paths
from log.producer_snapshots import write_snapshot
from log.reader import LogReader
from log.recovery import CleanStop, load_log
from log.retention import NOT_HELD
from log.segment_deletion import SegmentDeletion

if TYPE_CHECKING:
    import uuid

    from log.config import LogConfig
    from log.environment import LogEnvironment
    from log.leader_epochs import LeaderEpochs
    from log.segment import Segment
    from seq_validator import ProducerTable

_logger = logging.getLogger(__name__)
_FILES_PINNED_AT_ONCE: Final = 64


class DurableLog:
    """The state of a partition log and its durability. All below `recovery_point` is durable.

    After a failed write or flush the log is offline: it answers nothing until `reopen` has recovered it.
    """

    producers: ProducerTable
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    high_watermark: int
    size_bytes: int
    bytes_cut: int
    _segments: list[Segment]
    _bases: list[int]
    _active: Segment
    _leader_epochs: LeaderEpochs
    _reader: LogReader
    _undurable: UndurableNames

    def __init__(
        self,
        environment: LogEnvironment,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        now_ms: int,
        recovery_point: int = 0,
        clean_stop: CleanStop | None = None,
    ) -> None:
        """Load the partition from `directory`, which exists. Raises OSError, IncompatibleFormat."""
        self._environment = environment
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.failure: str | None = None
        self.held_from = NOT_HELD
        """The offset from which on neither retention nor TTL may delete or skip; DeleteRecords may."""
        self._generation = 0
        self._deletion = SegmentDeletion(environment)
        self._load(recovery_point, clean_stop, now_ms)

    def _load(self, recovery_point: int, clean_stop: CleanStop | None, now_ms: int) -> None:
        loaded = load_log(
            self._environment,
            self.directory,
            self.config,
            recovery_point=recovery_point,
            clean_stop=clean_stop,
            now_ms=now_ms,
        )
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        self._leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.recovery_point = self.high_watermark = loaded.log_end_offset
        self.size_bytes = sum(segment.size_bytes for segment in loaded.segments)
        self.bytes_cut = loaded.bytes_cut
        self._reader = LogReader(self._environment.storage, self._segments, self._bases)
        self._reader.high_watermark_moved(self.high_watermark, self.log_end_offset)
        self._undurable = UndurableNames()
        self._flushed = self._active.base_offset, self._active.size_bytes
        """The base offset of a segment and up to which byte a flush covered it."""

    @property
    def offline(self) -> bool:
        """Whether a failed write or flush ended service until `reopen`; `failure` says what happened."""
        return self.failure is not None

    # Durability.

    def prepare_flush(self) -> FlushTicket | None:
        """A ticket for everything written and not yet durable; None when there is nothing or the log is offline.

        Each ticket goes back to `complete_flush` or `fail_flush`, once.
        """
        if self.offline:
            return None
        if self.recovery_point >= self.log_end_offset and not self._undurable:
            return None
        files = [self._active.file]
        paths, directories = self._undurable.names_for_ticket()
        if self.recovery_point < self._active.base_offset:
            first = max(0, bisect_right(self._bases, self.recovery_point) - 1)
            files = [segment.file for segment in self._segments[first:]]
            # Too many to hold open: closed segments can be flushed by name as well.
            paths = [file.path for file in files[:-_FILES_PINNED_AT_ONCE]] + paths
            files = files[-_FILES_PINNED_AT_ONCE:]
        storage = self._environment.storage
        pinned = []
        try:
            for file in files:
                storage.pin(file)
                pinned.append(file)
        except OSError as error:
            for file in pinned:
                storage.unpin(file)
            self.take_offline(f"a file could not be opened: {error}")
            return None
        end_offset, active = self.log_end_offset, self._active
        ticket = FlushTicket(
            storage,
            files=files,
            paths=paths,
            directories=directories,
            end_offset=end_offset,
            active_base_offset=active.base_offset,
            end_position=active.size_bytes,
            generation=self._generation,
            size_bytes=active.size_bytes - self._flushed_bytes(active),
        )
        self._undurable.sent(ticket)
        self._reader.remember(end_offset, active.base_offset, active.size_bytes)
        return ticket

    def _flushed_bytes(self, active: Segment) -> int:
        """How much of the active segment was flushed for certain."""
        base_offset, position = self._flushed
        return position if base_offset == active.base_offset else 0

    def _make_names_durable(self) -> None:
        """Do at once what the next ticket would do for files other than the data. Raises OSError."""
        storage = self._environment.storage
        paths, directories = self._undurable.names_for_ticket()
        sync_paths(storage, paths)
        for directory in directories:
            storage.sync_directory(directory)
        self._undurable.came_true()

    def complete_flush(self, ticket: FlushTicket) -> None:
        """The ticket ran: what it covers is durable."""
        self._take_back(ticket)
        if ticket.generation == self._generation and not self.offline:
            self.recovery_point = max(self.recovery_point, ticket.end_offset)
            self._flushed = ticket.active_base_offset, ticket.end_position

    def fail_flush(self, ticket: FlushTicket, error: OSError) -> None:
        """The ticket failed: nobody knows what reached the disk, so the log goes offline."""
        self._take_back(ticket)
        if ticket.generation == self._generation:
            self.take_offline(f"a flush failed: {error}")

    def _take_back(self, ticket: FlushTicket) -> None:
        self._undurable.came_back(ticket)
        for file in ticket.files:
            self._environment.storage.unpin(file)

    def advance_high_watermark(self, offset: int) -> None:
        """Let consumers read up to `offset` (exclusive); it never goes back and never passes log_end_offset."""
        if offset <= self.high_watermark or offset > self.log_end_offset:
            return
        self.high_watermark = offset
        self._reader.high_watermark_moved(offset, self.log_end_offset)

    def advance_high_watermark_to_end(self) -> None:
        """Let consumers read everything written."""
        # where it lies in the segment need not be kept: it is the end of the active one
        self.high_watermark = self.log_end_offset

    def _write_indexes(self) -> list[str]:
        """Write all indexes of the active segment; their paths, not yet durable. Raises OSError."""
        return [*self._active.write_indexes(), *self._active.write_transaction_index()]

    def _write_snapshot(self) -> str:
        return write_snapshot(
            self._environment, self.directory, self.producers, self.log_end_offset, self.recovery_point
        )

    # Failing, re-opening, closing.

    def _check_online(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"{self.topic}-{self.partition} is offline: {self.failure}")

    def _fail(self, reason: str) -> NoReturn:
        self.take_offline(reason)
        raise StorageFailed(f"{self.topic}-{self.partition} is offline: {reason}")

    def take_offline(self, reason: str) -> None:
        """Refuse everything until `reopen`. What was durable stays so; what was only written is undecided."""
        if self.failure is None:
            self.failure = reason
            _logger.error("%s-%d goes offline: %s", self.topic, self.partition, reason)

    def reopen(self, now_ms: int) -> None:
        """Recover from what the disk really has and go on. Raises OSError; the log is then still offline."""
        self._generation += 1
        for segment in self._segments:
            self._environment.storage.retire(segment.file)
            self._environment.forget_indexes(segment.file.path)
        self.producers.clear()
        self._load(min(self.recovery_point, self.log_end_offset), None, now_ms)
        self.failure = None
        _logger.info("%s-%d is back, it ends at offset %d", self.topic, self.partition, self.log_end_offset)

    def close(self, *, clean: bool) -> CleanStop | None:
        """Release the files. A clean close makes everything durable first and says what the next start may trust.

        A log that is offline, or fails while it closes, returns None: it will be recovered. Never raises for the disk.
        """
        stop = None
        if clean and self._undurable.tickets_out:
            _logger.warning("%s-%d is closed while a flush is under way", self.topic, self.partition)
        elif clean and not self.offline:
            try:
                stop = self._close_clean()
            except (OSError, StorageFailed) as error:
                self.take_offline(f"it could not be closed cleanly: {error}")
        for segment in self._segments:
            self._environment.storage.retire(segment.file)
            self._environment.forget_indexes(segment.file.path)
        self.producers.clear()
        self._generation += 1
        if self.failure is None:
            self.failure = "it is closed"
        return stop

    def _close_clean(self) -> CleanStop:
        self._undurable.add([*self._write_indexes(), self._write_snapshot()], self.directory)
        ticket = self.prepare_flush()
        if ticket is None:
            self._check_online()
        else:
            try:
                ticket.run()
            except OSError as error:
                self.fail_flush(ticket, error)
                raise
            self.complete_flush(ticket)
        return CleanStop(
            self.log_end_offset, self._active.base_offset, self._active.size_bytes, self.size_bytes
        )
