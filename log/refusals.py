"""Answers for a batch that the log does not store: a duplicate's original offsets, or the error of a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.errors import (
    EarlierBatchesUnknown,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    ProducerLimitReached,
    TransactionCoordinatorFenced,
)
from log.segments.regions import Appended
from seq_validator import Duplicate, Rejected, RejectionReason

if TYPE_CHECKING:
    from log.format.record_batch import BatchHeader
    from seq_validator import Verdict

_REFUSALS: Final = {
    RejectionReason.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    RejectionReason.EARLIER_BATCHES_UNKNOWN: EarlierBatchesUnknown,
    RejectionReason.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    RejectionReason.PRODUCER_LIMIT_REACHED: ProducerLimitReached,
    RejectionReason.INVALID_TXN_STATE: InvalidTxnState,
    RejectionReason.TRANSACTION_COORDINATOR_FENCED: TransactionCoordinatorFenced,
}


def not_stored(verdict: Verdict, log_start_offset: int, batch: BatchHeader) -> Appended:
    """Return the offsets of a duplicate's original. Raises LogError for a rejected batch."""
    refuse(verdict)
    assert isinstance(verdict, Duplicate)
    last_offset = verdict.last_offset
    return Appended(
        verdict.base_offset, last_offset, verdict.timestamp, log_start_offset, True, last_offset, batch
    )


def refuse(verdict: Verdict) -> None:
    """Raise the LogError of a rejection; do nothing for any other verdict."""
    if isinstance(verdict, Rejected):
        raise _REFUSALS[verdict.reason](verdict.message)
