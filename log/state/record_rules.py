"""Judges the records of a batch: which are duplicates by producer name, and which are due later.

Topics that neither deduplicate nor delay have no record rules, and pay for one check. A duplicate record is acknowledged and not
stored. The other records of the batch are stored at the offsets and with the sequences of the whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from log.errors import NameFenced, NameLimitReached, NamesNotReady, NameUndecided
from log.format.batch_validation import empty_batch, plain_records, rewritten_batch, stored_records
from log.format.record_batch import NO_TIMESTAMP, parse_header
from log.state.delays import NOTHING_DUE_LATER
from log.state.names import transaction_of
from seq_validator.names import NameRejectionReason, NamesRejected

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from log.config import LogConfig
    from log.format.record_batch import BatchHeader
    from log.state.delays import Delays, DueTimes
    from log.state.names import Names
    from seq_validator.names import NameAdvance

_REFUSALS: Final = {
    NameRejectionReason.FENCED: NameFenced,
    NameRejectionReason.UNDECIDED: NameUndecided,
    NameRejectionReason.LIMIT_REACHED: NameLimitReached,
    NameRejectionReason.FORGETTING: NamesNotReady,
    NameRejectionReason.PARTIAL: NamesNotReady,
}


class Found(NamedTuple):
    """The findings about a batch: the part to store, and what to fold in afterwards."""

    batch: BatchHeader
    view: memoryview
    advances: Sequence[NameAdvance] = ()
    """The highest new sequence id of each producer name in the batch."""
    duplicates: int = 0
    """The number of records that are not stored."""
    due_times: DueTimes = NOTHING_DUE_LATER
    wants_replay: bool = False
    """Whether the batch has producer names that can't be judged before the log is fully replayed."""
    refused: NameRejectionReason | None = None
    refusal: str = ""
    raises_epochs: bool = False
    """Whether the batch has a new name epoch and duplicates. The epoch must be durable before the batch is acknowledged."""
    is_dropped: bool = False
    """Whether all records of the batch are duplicates, so that nothing is stored."""
    answer_after: int = -1
    """The offset that must be durable before a dropped batch may be acknowledged."""


class RecordRules:
    """The rules of one topic. Judging changes nothing."""

    __slots__ = ("config", "delays", "names")

    def __init__(self, config: LogConfig, names: Names | None, delays: Delays | None) -> None:
        """Take the names and delays to judge by, each None if the topic does not use them."""
        self.config = config
        self.names = names
        self.delays = delays

    def judge(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> Found:
        """Return the findings about a batch: duplicates by producer name, and records due later.

        Raises InvalidRecord, UnsupportedCompressionType, DelayedLimitReached.
        """
        found = self._judge_names(batch, view, now_ms, high_watermark)
        is_stored = not (found.is_dropped or found.raises_epochs or found.wants_replay or found.refused)
        if self.delays is not None and is_stored:
            return found._replace(due_times=self.delays.judge(found.batch, found.view, now_ms))
        return found

    def _judge_names(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> Found:
        names = self.names
        records = [] if names is None else names.records_of(batch, view)
        if names is None or not records:
            return Found(batch, view)
        if not names.is_ready:
            return Found(batch, view, wants_replay=True)
        verdict = names.table.judge(
            records, now_ms, high_watermark=high_watermark, transaction_of=transaction_of(batch)
        )
        if isinstance(verdict, NamesRejected):
            return Found(batch, view, refused=verdict.reason, refusal=verdict.message)
        advances, duplicates = verdict.advances, verdict.duplicates
        if not duplicates:
            return Found(batch, view, advances)
        if names.table.raises_epochs(advances):
            return Found(batch, view, advances, raises_epochs=True)
        if len(duplicates) == batch.record_count and batch.producer_id < 0:
            return Found(
                batch,
                view,
                advances,
                len(duplicates),
                is_dropped=True,
                answer_after=verdict.wait_for_offset,
            )
        batch, view = _without(batch, view, set(duplicates), self.config)
        return Found(batch, view, advances, len(duplicates))

    def settle(self, found: Found, now_ms: int) -> None:
        """Finish a batch that is not stored: count duplicates as activity, or raise the LogError of a refusal."""
        names = self.names
        assert names is not None
        if found.refused is not None:
            raise _REFUSALS[found.refused](found.refusal)
        if found.raises_epochs:
            names.raise_epochs(found.advances)
            raise NamesNotReady(
                "The batch raises the epoch of a producer name and repeats stored records; the epoch is being persisted. Retry later."
            )
        names.touch(found.advances, found.duplicates, now_ms)

    def fold_in(
        self, found: Found, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int
    ) -> None:
        """Fold a batch that was written into names and delays."""
        if self.delays is not None:
            self.delays.fold_in(batch, view, found.due_times)
        if self.names is not None:
            self.names.fold_in(batch, view, found.advances, now_ms, high_watermark)
            self.names.topic_names.budget.dropped_records += found.duplicates


def _without(
    batch: BatchHeader, view: memoryview, duplicates: Collection[int], config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """Return the batch without the records at these offset deltas. A batch without records gets no max_timestamp."""
    if len(duplicates) == batch.record_count:
        batch.max_timestamp = NO_TIMESTAMP
        rewritten = empty_batch(batch)
    else:
        plain = plain_records(batch, view, config.max_decompressed_bytes)
        first = batch.base_offset
        kept = [record for record in stored_records(batch, plain) if record.offset - first not in duplicates]
        rewritten = rewritten_batch(batch, plain, kept)
    return parse_header(rewritten), memoryview(rewritten)
