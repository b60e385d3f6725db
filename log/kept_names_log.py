"""What a partition log does to keep its memory of producer names: it is written down by flushes, and before anything goes.

A record that retention, DeleteRecords or compaction takes may be all that has a name, so what is remembered is durable first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.errors import StorageFailed
from log.named_log import NamedLog
from log.removal.retention_rules import RetentionDecision
from log.state.name_snapshots import NamesCapture, write_start

if TYPE_CHECKING:
    from log.compaction.cleanable import Cleanable
    from log.config import LogConfig
    from log.durability.flush_ticket import FlushTicket
    from log.recovery.load import CleanStop
    from log.retained_log import RetentionTicket
    from log.segments.regions import DeletedSegment
    from log.segments.segment import Segment

_WITHOUT_A_LIMIT: Final = 1 << 62


class KeptNamesLog(NamedLog):
    """A partition log's memory of producer names on the disk."""

    def update_config(self, config: LogConfig) -> None:
        """As DelayedLog's. What was remembered when deduplication ended is remembered when it begins again.

        The log is offline when its files can't be read or written.
        """
        super().update_config(config)
        if self.offline:
            return
        try:
            if self.names is None:
                if config.deduplicates:
                    self._begin_deduplicating()
            elif not config.deduplicates:
                self._write_start()
                # what is deleted from now on is not looked at for names
                self._write_names_if_ready()
                self._stop_deduplicating()
            else:
                if self._configured_headers().names != self._name_headers.names:
                    # a start would look for the new ones in what has the old ones
                    self._write_names_if_ready()
                self._apply_name_settings()
        except StorageFailed:
            return
        except OSError as error:
            self.take_offline(f"what is remembered of producer names can't be read: {error}", error)

    def _write_start(self) -> None:
        """Have it durable from which offset on names are remembered. Raises StorageFailed."""
        if self._unwritten_start is None:
            return
        storage = self._environment.storage
        try:
            write_start(storage, self.directory, self.topic, self.partition, self._unwritten_start)
        except OSError as error:
            self._fail(
                f"the start of what is remembered of producer names could not be written: {error}", error
            )
        self._unwritten_start = None

    def capture_names(self) -> bool:
        """Have what is remembered now written down by the next flush; False when it is written, or not complete."""
        names = self.names
        if names is None or self._replay_offset is not None or self.offline:
            return False
        if not self._names_changed and not names.has_forgotten:
            return False
        try:
            self._write_start()
        except StorageFailed:
            return False
        self._captured = NamesCapture(self._snapshots, names.written(), self.log_end_offset)
        self._names_changed = self._has_gap = False
        self._named_since_capture = 0
        self._environment.names_overdue.pop(self, None)
        self._undurable.add([], self.directory)
        return True

    def prepare_flush(self) -> FlushTicket | None:
        """As DurableLog's; the ticket writes down what was captured, once the records are durable."""
        ticket = super().prepare_flush()
        if ticket is not None and self._captured is not None:
            ticket.names, self._captured = self._captured, None
            self._captures_out += 1
        return ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        """As DurableLog's."""
        super().complete_flush(ticket)
        if self.names is not None and ticket.names is not None and ticket.names.snapshots is self._snapshots:
            self._captures_out -= 1
            self._written_end = max(self._written_end, ticket.names.log_end_offset)
            self.names.is_written(ticket.names.times)
            is_all = not self._names_changed and self._captured is None and not self._captures_out
            self._unwritten_from = None if is_all else ticket.names.log_end_offset

    def roll(self, now_ms: int) -> None:
        """As RetainedLog's; a closed segment need not be read again for names."""
        super().roll(now_ms)
        self.capture_names()

    def _write_names(self, now_ms: int) -> None:
        """Have all names of the log durable now. Raises StorageFailed."""
        self.replay_names(_WITHOUT_A_LIMIT, now_ms)
        self._names_changed = True
        self.capture_names()
        ticket = self.prepare_flush()
        if ticket is None:
            self._check_online()
            return
        try:
            ticket.run()
        except OSError as error:
            self.fail_flush(ticket, error)
            self._check_online()
        else:
            self.complete_flush(ticket)

    def _write_names_if_ready(self) -> None:
        if self.names_ready:
            self._write_names(self._loaded_at_ms)

    def prepare_close(self) -> FlushTicket | None:
        """As DelayedLog's; what is remembered is written down with the rest."""
        self.capture_names()
        return super().prepare_close()

    def finish_close(
        self, ticket: FlushTicket | None, error: OSError | None, *, clean: bool = True
    ) -> CleanStop | None:
        """As DelayedLog's."""
        stop = super().finish_close(ticket, error, clean=clean)
        self._stop_deduplicating()
        return stop

    def decide_retention(self, now_ms: int) -> RetentionDecision:
        """As DelayedLog's; nothing goes that has not been read for names."""
        if self._replay_offset is not None:
            return RetentionDecision([], "it is still being read for producer names")
        return super().decide_retention(now_ms)

    def prepare_retention(self, now_ms: int) -> RetentionTicket | None:
        """As RetainedLog's. What goes may be all that has some of the names, so they are written down."""
        self._capture_names_below(self.log_end_offset)
        return super().prepare_retention(now_ms)

    def delete_old_segments(self, now_ms: int) -> list[DeletedSegment]:
        """As RetainedLog's."""
        if self.names is not None:
            doomed = self.decide_retention(now_ms).doomed
            self._write_names_below(doomed[-1][0].end_offset if doomed else 0, now_ms)
        return super().delete_old_segments(now_ms)

    def prepare_delete_records(self, offset: int) -> RetentionTicket | None:
        """As RetainedLog's. What goes may be all that has some of the names, so they are written down; of a log that is still
        read for them `delete_records_before` does that, and until then nothing may be made durable.
        """
        wanted = self._wanted_start(offset)
        if self._replay_offset is not None:
            return None
        self._capture_names_below(wanted)
        return super().prepare_delete_records(wanted)

    def delete_records_before(self, offset: int, now_ms: int = 0) -> int:
        """As RetainedLog's."""
        self._write_names_below(self._wanted_start(offset), now_ms)
        return super().delete_records_before(offset, now_ms)

    def _must_flush_before(self, start_offset: int) -> bool:
        return self._has_unwritten_below(start_offset) or super()._must_flush_before(start_offset)

    def _has_unwritten_below(self, offset: int) -> bool:
        """Whether a record before the offset may have a name that only the log tells of: a start does not read what is deleted."""
        if self.names is None:
            return False
        if self._unwritten_from is not None and self._unwritten_from < offset:
            return True
        # a start that misses records can't tell of open transactions whether the markers it finds are theirs
        return self._written_end < offset and bool(self.names.open_transactions())

    def _capture_names_below(self, offset: int) -> None:
        """Once more if that is under way: the ticket that is made now must not be done before them."""
        if self._has_unwritten_below(offset):
            self._names_changed = True
            self.capture_names()

    def _write_names_below(self, offset: int, now_ms: int) -> None:
        if self._has_unwritten_below(offset):
            self._write_names(now_ms)

    def _remove(self, doomed: list[Segment], now_ms: int) -> None:
        if doomed:
            end_offset = self._bases[len(doomed)] if len(doomed) < len(self._bases) else self.log_end_offset
            self._write_names_below(end_offset, now_ms)
        super()._remove(doomed, now_ms)

    def cleanable(self, clean_end_offset: int | None, durable_end_offset: int, now_ms: int) -> Cleanable:
        """As CompactedLog's; only what is written down of names."""
        if self.names is not None and self._unwritten_from is not None:
            durable_end_offset = min(durable_end_offset, self._unwritten_from)
        return super().cleanable(clean_end_offset, durable_end_offset, now_ms)
