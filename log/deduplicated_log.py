"""What of a batch a partition log stores where its topic deduplicates by producer names.

Topics that don't deduplicate pay for one look at `names`. A record that was there before is acknowledged and not stored; the
rest of its batch is stored with the offsets and the sequences that it came with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from log.compaction.batch_rewriting import empty_batch, plain_records, rewritten_batch, stored_records
from log.errors import NameFenced, NameLimitReached, NamesNotReady, NameUndecided
from log.format.batch_validation import check_countable
from log.format.named_records import named_records
from log.format.record_batch import CONTROL_FLAG, NO_TIMESTAMP, parse_header
from log.kept_names_log import KeptNamesLog
from log.named_log import REPLAYED_AT_ONCE_BYTES, transaction_of
from log.segments.regions import Appended
from seq_validator.names import NameRejectionReason, NamesRejected

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from log.config import LogConfig
    from log.delayed_log import DueTimes
    from log.format.record_batch import BatchHeader
    from seq_validator.names import NameAdvance, NamedRecord

_REFUSALS: Final = {
    NameRejectionReason.FENCED: NameFenced,
    NameRejectionReason.UNDECIDED: NameUndecided,
    NameRejectionReason.LIMIT_REACHED: NameLimitReached,
    NameRejectionReason.FORGETTING: NamesNotReady,
    NameRejectionReason.PARTIAL: NamesNotReady,
}


class BatchContent(NamedTuple):
    """What is to be stored of a batch whose records were looked at, and what is to be remembered of them then."""

    batch: BatchHeader
    view: memoryview
    advances: Sequence[NameAdvance] = ()
    """How far it takes producer names."""
    duplicates: int = 0
    """How many of its records are not stored."""
    due_times: DueTimes | None = None
    answer: Appended | None = None
    """Where nothing is to be stored."""


class DeduplicatedLog(KeptNamesLog):
    """A partition log that judges batches by the producer names of their records."""

    def _look_into(self, batch: BatchHeader, view: memoryview, now_ms: int) -> BatchContent:
        """Judge the producer names of a batch, and see what is due later.

        Raises InvalidRecord, UnsupportedCompressionType, NameFenced, NameUndecided, NameLimitReached, NamesNotReady,
        DelayedLimitReached.
        """
        content = self._deduplicate(batch, view, now_ms)
        if self.delays is not None and content.answer is None:
            content = content._replace(due_times=self._due_times(content.batch, content.view, now_ms))
        return content

    def _deduplicate(self, batch: BatchHeader, view: memoryview, now_ms: int) -> BatchContent:
        names = self.names
        records = [] if names is None else self._named_records(batch, view)
        if names is None or not records:
            return BatchContent(batch, view)
        if self._replay_offset is not None and not self.replay_names(REPLAYED_AT_ONCE_BYTES, now_ms):
            raise NamesNotReady("What is remembered of producer names is still being read from the log.")
        self._write_start()
        verdict = names.judge(
            records, now_ms, high_watermark=self.high_watermark, transaction_of=transaction_of(batch)
        )
        if isinstance(verdict, NamesRejected):
            if verdict.reason is NameRejectionReason.FORGETTING:
                self._environment.names_overdue[self] = None
            elif verdict.reason is NameRejectionReason.PARTIAL:
                self._environment.names_partial[self] = None
            raise _REFUSALS[verdict.reason](verdict.message)
        advances, duplicates = verdict.advances, verdict.duplicates
        if not duplicates:
            return BatchContent(batch, view, advances)
        if names.raise_epochs(advances):
            self._names_changed = True
            self._environment.names_overdue[self] = None
            raise NamesNotReady(
                "A new epoch of a producer name came with nothing else that is new; it is being written down. Retry later."
            )
        if len(duplicates) == batch.record_count and batch.producer_id < 0:
            names.touch(advances, now_ms)
            self._environment.name_budget.dropped_records += len(duplicates)
            self._names_changed = True
            info = Appended(-1, -1, -1, self.log_start_offset, True, verdict.wait_for_offset)
            return BatchContent(batch, view, answer=info)
        batch, view = _without(batch, view, set(duplicates), self.config)
        return BatchContent(batch, view, advances, len(duplicates))

    def _named_records(self, batch: BatchHeader, view: memoryview) -> list[NamedRecord]:
        if batch.attributes & CONTROL_FLAG:
            return []
        check_countable(batch, self.config)
        return named_records(batch, view, self._name_headers, self.config.max_decompressed_bytes)

    def _take_account(self, content: BatchContent, now_ms: int) -> None:
        """Remember what a batch that was written tells."""
        if content.due_times:
            self._track(content.batch, content.due_times)
        if content.advances and self.names is not None:
            self._fold_names(self.names, content.batch, content.advances, now_ms)
            self._environment.name_budget.dropped_records += content.duplicates


def _without(
    batch: BatchHeader, view: memoryview, duplicates: Collection[int], config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """The batch without the records at these offset deltas. One that is left empty has no time, as no record has it."""
    if len(duplicates) == batch.record_count:
        batch.max_timestamp = NO_TIMESTAMP
        rewritten = empty_batch(batch)
    else:
        plain = plain_records(batch, view, config.max_decompressed_bytes)
        first = batch.base_offset
        kept = [record for record in stored_records(batch, plain) if record.offset - first not in duplicates]
        rewritten = rewritten_batch(batch, plain, kept)
    return parse_header(rewritten), memoryview(rewritten)
