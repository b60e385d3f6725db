"""The sequence rule of idempotent producers: is this batch the next one, a duplicate, or neither?

The package is pure: no files, clock, tasks, randomness. Times and batches come in, verdicts go out.
"""

from __future__ import annotations

from seqgate.seq_validator.entry import FIRST_DERIVED_ID, NO_TRANSACTION, ProducerEntry
from seqgate.seq_validator.refused import RefusalLimit, RefusedBatches, RefusedBefore
from seqgate.seq_validator.rule import (
    ACCEPTED,
    TRANSACTION_VERSION_2,
    Duplicate,
    Rejected,
    RejectionReason,
    Verdict,
)
from seqgate.seq_validator.snapshot import FIRST_VERSION as OLDEST_SNAPSHOT_VERSION
from seqgate.seq_validator.snapshot import VERSION as NEWEST_SNAPSHOT_VERSION
from seqgate.seq_validator.snapshot import CorruptSnapshot
from seqgate.seq_validator.snapshot import newer_version as newer_snapshot_version
from seqgate.seq_validator.table import ProducerLimit, ProducerTable

__all__ = [
    "ACCEPTED",
    "FIRST_DERIVED_ID",
    "NEWEST_SNAPSHOT_VERSION",
    "NO_TRANSACTION",
    "OLDEST_SNAPSHOT_VERSION",
    "TRANSACTION_VERSION_2",
    "CorruptSnapshot",
    "Duplicate",
    "ProducerEntry",
    "ProducerLimit",
    "ProducerTable",
    "RefusalLimit",
    "RefusedBatches",
    "RefusedBefore",
    "Rejected",
    "RejectionReason",
    "Verdict",
    "newer_snapshot_version",
]
