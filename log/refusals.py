"""Answers for a batch that the log does not store: a duplicate's original offsets, or the error of a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from log.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    ProducerLimitReached,
    TransactionCoordinatorFenced,
)
from log.segments.regions import Appended
from seq_validator import Duplicate, Rejected, RejectionReason

if TYPE_CHECKING:
    from seq_validator import Verdict

_REFUSALS: Final = {
    RejectionReason.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    RejectionReason.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    RejectionReason.PRODUCER_LIMIT_REACHED: ProducerLimitReached,
    RejectionReason.INVALID_TXN_STATE: InvalidTxnState,
    RejectionReason.TRANSACTION_COORDINATOR_FENCED: TransactionCoordinatorFenced,
}


def not_stored(verdict: Verdict, log_start_offset: int) -> Appended:
    """Return the offsets of a duplicate's original. Raises LogError for a rejected batch."""
    refuse(verdict)
    assert isinstance(verdict, Duplicate)
    last_offset = verdict.last_offset
    return Appended(verdict.base_offset, last_offset, verdict.timestamp, log_start_offset, True, last_offset)


def refuse(verdict: Verdict) -> None:
    """Raise the LogError of a rejection; do nothing for any other verdict."""
    if isinstance(verdict, Rejected):
        raise _REFUSALS[verdict.reason](verdict.message)
