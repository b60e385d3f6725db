"""Removes records from a deduplicating partition by DeleteRecords, retention and compaction. The names must
survive.
"""

from __future__ import annotations

from dataclasses import replace

from seqgate.log import LogConfig, retention
from seqgate.log.cleaning import begin_swap, cleanable, has_closed_segments_after
from tests.faults.simulated_disk import SimulatedDisk
from tests.log.compaction.cleaning import begin, run, swap
from tests.log.support import delete_due
from tests.properties.names_with_limits import NamesWithLimits

LATER_MS = 1 << 43


class NamesThatOutliveRecords(NamesWithLimits):
    """Removes records, and notes which of them were removed before the log had read their names."""

    def __init__(self, disk: SimulatedDisk, config: LogConfig, *, has_limits: bool) -> None:
        super().__init__(disk, config, has_limits=has_limits)
        self.clean_end_offset: int | None = None
        self.was_unread = False
        """Whether deduplication was turned off before the replay for names was complete."""

    def checkpoint(self) -> None:
        assert self.directory is not None
        self.directory.checkpoint()

    def roll(self) -> None:
        self.log.roll(self.now_ms())

    def delete_records(self, part: int) -> None:
        """Delete records as the gateway does."""
        log = self.log
        if self.is_kept_whole:
            return
        offset = log.log_start_offset + (log.high_watermark - log.log_start_offset) * part // 100
        self._note_gone(offset)
        ticket = retention.prepare_delete_records(log, offset, self.now_ms())
        if ticket is not None:
            self.run_retention(ticket)

    def retain(self, kept_bytes: int) -> None:
        """Run retention by size."""
        log = self.log
        if self.is_kept_whole:
            return
        config = replace(self.topic_config, retention_bytes=kept_bytes)
        log.update_config(config)
        try:
            doomed = retention.decide_retention(log, LATER_MS).doomed
            if doomed:
                self._note_gone(doomed[-1][0].end_offset)
                ticket = retention.prepare_retention(log, LATER_MS)
                if ticket is not None:
                    self.run_retention(ticket)
        finally:
            log.update_config(self.topic_config)

    @property
    def is_kept_whole(self) -> bool:
        """Return whether no record may be removed, because an evicted name would look like one that was never
        read.
        """
        return self.has_limits and not self.topic_config.deduplicates

    def _note_gone(self, offset: int) -> None:
        """Note batches that were written and removed while deduplication was off; their names are not
        remembered.
        """
        if not self.topic_config.deduplicates:
            for batch in self.history.batches:
                if batch.base_offset < offset and (
                    self.was_unread or not batch.counts or batch.is_transactional
                ):
                    self.gone_while_off |= self.history.of_transaction(batch)

    def clean_up(self) -> None:
        assert self.directory is not None
        delete_due(self.directory.environment, self.now_ms() + 10_000_000)

    def compact(self) -> None:
        """Compact once, as the worker process and the gateway do together."""
        log = self.log
        if (
            self.is_kept_whole
            or not self.topic_config.compact
            or not has_closed_segments_after(log, self.clean_end_offset or 0)
        ):
            return
        self.checkpoint()
        found = cleanable(log, self.clean_end_offset, log.recovery_point, self.now_ms())
        if found.first_uncleanable_offset <= found.first_dirty_offset:
            return
        self._note_gone(found.first_uncleanable_offset)
        cleaning = begin(log, clean_end_offset=self.clean_end_offset, now_ms=self.now_ms())
        cleaned, finished = run(self.storage, cleaning)
        for segment in cleaned:
            ticket = begin_swap(log, cleaning, segment)
            assert ticket is not None
            swap(log, ticket, self.now_ms())
        self.clean_end_offset = finished.clean_end_offset
        self.counts["cleanings"] += 1
