"""What becomes of a batch that is not stored: the answer of a duplicate, the error of a refusal, the errors that pass."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from log.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    ProducerLimitReached,
    TransactionCoordinatorFenced,
)
from log.files.storage import NO_DESCRIPTORS
from log.segments.regions import Appended
from seq_validator import Duplicate, Rejected, RejectionReason

if TYPE_CHECKING:
    from seq_validator import Verdict

PASSING_SHORTAGES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, *NO_DESCRIPTORS})
"""Errors that end a write before anything is promised, and pass by themselves."""
_REFUSALS: Final = {
    RejectionReason.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    RejectionReason.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    RejectionReason.PRODUCER_LIMIT_REACHED: ProducerLimitReached,
    RejectionReason.INVALID_TXN_STATE: InvalidTxnState,
    RejectionReason.TRANSACTION_COORDINATOR_FENCED: TransactionCoordinatorFenced,
}


def not_stored(verdict: Verdict, log_start_offset: int) -> Appended:
    """Return where the original of a duplicate lies. Raises LogError for what was rejected."""
    refuse(verdict)
    assert isinstance(verdict, Duplicate)
    last_offset = verdict.last_offset
    return Appended(verdict.base_offset, last_offset, verdict.timestamp, log_start_offset, True, last_offset)


def refuse(verdict: Verdict) -> None:
    """Do nothing for a verdict that is no rejection. Raises the LogError of one that is."""
    if isinstance(verdict, Rejected):
        raise _REFUSALS[verdict.reason](verdict.message)


def is_passing_shortage(error: BaseException | None) -> bool:
    """Return whether only room, memory or file handles were missing."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in PASSING_SHORTAGES)
