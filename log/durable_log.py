"""What of a partition log is durable, what is only written, and how the log fails, comes back and ends.

Source of the rules: Kafka's `UnifiedLog` and `LocalLog`; that an fsync is never tried again, PostgreSQL's fsyncgate (2018).
"""

from __future__ import annotations

import contextlib
import errno
import logging
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from log.durability.flush_ticket import FlushTicket, UndurableNames, sync_paths
from log.errors import CorruptRecord, StorageFailed
from log.files.checkpoints import encode_partition_metadata
from log.files.file_names import PARTITION_METADATA
from log.files.storage import NO_DESCRIPTORS
from log.recovery.load import CleanStop, LoadedLog, load_log, new_log
from log.removal.retention_rules import NOT_HELD
from log.segments.reader import LogReader
from log.state.producer_snapshots import write_snapshot

if TYPE_CHECKING:
    import uuid

    from log.config import LogConfig
    from log.environment import LogEnvironment
    from log.segments.segment import Segment
    from log.state.leader_epochs import LeaderEpochs
    from seq_validator import ProducerTable

_logger = logging.getLogger(__name__)
_FILES_PINNED_AT_ONCE: Final = 64
PASSING_SHORTAGES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, *NO_DESCRIPTORS})
"""What ends a write before anything is promised, and passes by itself."""


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
        is_new: bool = False,
    ) -> None:
        """Load the partition from `directory`, which exists, or begin it there. Raises OSError, IncompatibleFormat.

        The names of one that `is_new` are durable with its first flush.
        """
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
        self._is_newborn = is_new
        """Whether the names of directory and first segment are not durable yet."""
        if is_new:
            self._take(new_log(environment, directory, config, now_ms))
            self._undurable.add([f"{directory}/{PARTITION_METADATA}"], directory)
            self._undurable.add([], str(Path(directory).parent))
        else:
            self._load(recovery_point, clean_stop, now_ms)

    def _load(self, recovery_point: int, clean_stop: CleanStop | None, now_ms: int) -> None:
        # one who first asks for the log may be about to read it without waiting; to open it is to wait
        with self._environment.storage.may_wait():
            loaded = load_log(
                self._environment,
                self.directory,
                self.config,
                recovery_point=recovery_point,
                clean_stop=clean_stop,
                now_ms=now_ms,
            )
        self._take(loaded)

    def _take(self, loaded: LoadedLog) -> None:
        """Begin with what was loaded."""
        self._clean_stop = loaded.clean_stop
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        self._leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.recovery_point = self.high_watermark = loaded.log_end_offset
        self.size_bytes = sum(segment.size_bytes for segment in loaded.segments)
        self.bytes_cut = loaded.bytes_cut
        self._reader = LogReader(self._environment, self._segments, self._bases)
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
        if not storage.may_pin(len(files)):
            paths, files = [file.path for file in files] + paths, []
        pinned = []
        try:
            for file in files:
                storage.pin(file)
                pinned.append(file)
        except OSError as error:
            for file in pinned:
                storage.unpin(file)
            self.take_offline(f"a file could not be opened: {error}", error)
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
        self._is_newborn = False

    def complete_flush(self, ticket: FlushTicket) -> None:
        """The ticket ran: what it covers is durable."""
        self._take_back(ticket)
        if ticket.generation == self._generation and not self.offline:
            self._is_newborn = False
            self.recovery_point = max(self.recovery_point, ticket.end_offset)
            self._flushed = ticket.active_base_offset, ticket.end_position

    def fail_flush(self, ticket: FlushTicket, error: OSError) -> None:
        """The ticket failed: nobody knows what reached the disk, so the log goes offline."""
        self._take_back(ticket)
        if ticket.generation == self._generation:
            # one for which no file could be opened flushed nothing; any other is never tried again
            no_handles = error if error.errno in NO_DESCRIPTORS else None
            self.take_offline(f"a flush failed: {error}", no_handles)

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

    def drop_closed_segments(self) -> None:
        """Take the closed segments out of the page cache, as one does who read them all and won't again."""
        for segment in self._segments[:-1]:
            with contextlib.suppress(OSError):
                self._environment.storage.forget_cached(segment.file)

    # Failing, re-opening, closing.

    def _check_online(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"{self.topic}-{self.partition} is offline: {self.failure}")

    def _fail(self, reason: str, error: BaseException | None = None) -> NoReturn:
        self.take_offline(reason, error)
        raise StorageFailed(f"{self.topic}-{self.partition} is offline: {reason}")

    def take_offline(self, reason: str, error: BaseException | None = None) -> None:
        """Refuse everything until `reopen`. What was durable stays so; what was only written is undecided.

        Where only room, memory or file handles were missing, as `error` tells, the owner may `reopen` once there are some.
        """
        if self.failure is None:
            self.failure = reason
            if isinstance(error, MemoryError) or (
                isinstance(error, OSError) and error.errno in PASSING_SHORTAGES
            ):
                self._environment.short_of_room[self] = None
            _logger.error("%s-%d goes offline: %s", self.topic, self.partition, reason)

    def reopen(self, now_ms: int) -> None:
        """Recover from what the disk really has and go on. Raises OSError; the log is then still offline."""
        self._generation += 1
        for segment in self._segments:
            self._environment.storage.retire(segment.file)
            self._environment.forget_indexes(segment.file.path)
        self.producers.clear()
        if self._is_newborn:
            self._name_again()
        self._load(min(self.recovery_point, self.log_end_offset), None, now_ms)
        self.failure = None
        self._environment.short_of_room.pop(self, None)
        _logger.info("%s-%d is back, it ends at offset %d", self.topic, self.partition, self.log_end_offset)

    def _name_again(self) -> None:
        """Make the directory and what it says durable, written anew: their first flush may have failed. Raises OSError."""
        storage = self._environment.storage
        path = f"{self.directory}/{PARTITION_METADATA}"
        storage.replace_file(path, encode_partition_metadata(self.topic_id))
        storage.sync_directory(str(Path(self.directory).parent))
        self._is_newborn = False

    def close(self, *, clean: bool) -> CleanStop | None:
        """Release the files. A clean close makes everything durable first and says what the next start may trust.

        A log that is offline, or fails while it closes, returns None: it will be recovered. Never raises for the disk.
        """
        ticket = self.prepare_close() if clean else None
        error = None
        if ticket is not None:
            try:
                ticket.run()
            except OSError as failure:
                error = failure
        return self.finish_close(ticket, error, clean=clean)

    def prepare_close(self) -> FlushTicket | None:
        """What a clean close must make durable; to be run, in any thread, and given to `finish_close`."""
        if self._undurable.tickets_out:
            _logger.warning("%s-%d is closed while a flush is under way", self.topic, self.partition)
            self.take_offline("it is closed while a flush is under way")
        if self.offline or self._is_as_stopped():
            return None
        try:
            self._undurable.add([*self._write_indexes(), self._write_snapshot()], self.directory)
        except (OSError, CorruptRecord) as error:
            self.take_offline(f"it could not be closed cleanly: {error}")
        return self.prepare_flush()

    def finish_close(
        self, ticket: FlushTicket | None, error: OSError | None, *, clean: bool = True
    ) -> CleanStop | None:
        """Release the files after what `prepare_close` gave was run; returns as `close`."""
        if ticket is not None and error is None:
            self.complete_flush(ticket)
        elif ticket is not None and error is not None:
            self.fail_flush(ticket, error)
        stop = None
        if clean and not self.offline:
            stop = self._clean_stop if self._is_as_stopped() else self._stop_now()
        for segment in self._segments:
            self._environment.storage.retire(segment.file, for_readers=True)
            self._environment.forget_indexes(segment.file.path)
        self.producers.clear()
        self._generation += 1
        self._environment.short_of_room.pop(self, None)
        if self.failure is None:
            self.failure = "it is closed"
        return stop

    def _is_as_stopped(self) -> bool:
        """Whether nothing of the files changed since the clean stop that they were loaded from."""
        stop = self._clean_stop
        return (
            stop is not None
            and not self._undurable
            and self.log_end_offset == stop.log_end_offset
            and self._active.base_offset == stop.active_base_offset
            and self.size_bytes == stop.size_bytes
        )

    def _stop_now(self) -> CleanStop:
        try:
            oldest_timestamp = self._segments[0].largest_timestamp() if self.size_bytes else -1
        except (OSError, CorruptRecord):
            oldest_timestamp = -1
        return CleanStop(
            self.log_end_offset,
            self._active.base_offset,
            self._active.size_bytes,
            self.size_bytes,
            oldest_timestamp=oldest_timestamp,
            has_open_transactions=any(entry.has_open_transaction for entry in self.producers),
        )
