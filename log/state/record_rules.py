"""What a partition log asks of the records of a batch: are they duplicates by producer name, are they due later.

Topics that neither deduplicate nor delay have no record rules, and pay for one look. A record that was there before is
acknowledged and not stored. The rest of its batch is stored with the offsets and the sequences that it came with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from log.errors import NameFenced, NameLimitReached, NamesNotReady, NameUndecided
from log.format.batch_rewriting import empty_batch, plain_records, rewritten_batch, stored_records
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
    """What is to be stored of a batch, and what its records tell."""

    batch: BatchHeader
    view: memoryview
    advances: Sequence[NameAdvance] = ()
    """How far the batch takes producer names."""
    duplicates: int = 0
    """How many of its records are not stored."""
    due_times: DueTimes = NOTHING_DUE_LATER
    wants_replay: bool = False
    """Whether the batch has names, and the log must be replayed further before they can be judged."""
    refused: NameRejectionReason | None = None
    refusal: str = ""
    raises_epochs: bool = False
    """Whether nothing of the batch is new but an epoch, which must be saved before the batch may be acknowledged."""
    is_dropped: bool = False
    """Whether nothing of the batch is to be stored."""
    answer_after: int = -1
    """The offset that must be durable before a dropped batch may be acknowledged."""


class RecordRules:
    """The rules of one topic. Judging changes nothing."""

    __slots__ = ("config", "delays", "names")

    def __init__(self, config: LogConfig, names: Names | None, delays: Delays | None) -> None:
        """Judge by what these two remember."""
        self.config = config
        self.names = names
        self.delays = delays

    def judge(self, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int) -> Found:
        """Judge the producer names of a batch, and see what is due later.

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
        """Take note of a batch of which nothing is stored. Raises LogError for one that is refused."""
        names = self.names
        assert names is not None
        if found.refused is not None:
            raise _REFUSALS[found.refused](found.refusal)
        if found.raises_epochs:
            names.raise_epochs(found.advances)
            raise NamesNotReady(
                "A new epoch of a producer name came with nothing else that is new; it is being saved. Retry later."
            )
        names.touch(found.advances, found.duplicates, now_ms)

    def fold_in(
        self, found: Found, batch: BatchHeader, view: memoryview, now_ms: int, high_watermark: int
    ) -> None:
        """Remember what a batch that was written tells."""
        if self.delays is not None:
            self.delays.fold_in(batch, view, found.due_times)
        if self.names is not None:
            self.names.fold_in(batch, view, found.advances, now_ms, high_watermark)
            self.names.topic_names.budget.dropped_records += found.duplicates


def _without(
    batch: BatchHeader, view: memoryview, duplicates: Collection[int], config: LogConfig
) -> tuple[BatchHeader, memoryview]:
    """Return the batch without the records at these offset deltas. An empty batch has no time, as no record has it."""
    if len(duplicates) == batch.record_count:
        batch.max_timestamp = NO_TIMESTAMP
        rewritten = empty_batch(batch)
    else:
        plain = plain_records(batch, view, config.max_decompressed_bytes)
        first = batch.base_offset
        kept = [record for record in stored_records(batch, plain) if record.offset - first not in duplicates]
        rewritten = rewritten_batch(batch, plain, kept)
    return parse_header(rewritten), memoryview(rewritten)
