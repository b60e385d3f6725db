"""The sequence rule of idempotent producers: is this batch the next one, a duplicate, or neither?

The package is pure: no files, clock, tasks, randomness. Times and batches come in, verdicts go out.
"""

from __future__ import annotations

from seqgate.seq_validator.entry import MAX_SEQUENCE, NO_TRANSACTION, ProducerEntry, following, last_of
from seqgate.seq_validator.refused import LATER_BATCHES, RefusalLimit, RefusedBatches, RefusedBefore
from seqgate.seq_validator.rule import (
    ACCEPTED,
    Accepted,
    Duplicate,
    Rejected,
    RejectionReason,
    Verdict,
    judge_known,
)
from seqgate.seq_validator.snapshot import FIRST_VERSION as OLDEST_SNAPSHOT_VERSION
from seqgate.seq_validator.snapshot import VERSION as NEWEST_SNAPSHOT_VERSION
from seqgate.seq_validator.snapshot import CorruptSnapshot
from seqgate.seq_validator.snapshot import newer_version as newer_snapshot_version
from seqgate.seq_validator.table import ProducerLimit, ProducerTable

__all__ = [
    "ACCEPTED",
    "LATER_BATCHES",
    "MAX_SEQUENCE",
    "NEWEST_SNAPSHOT_VERSION",
    "NO_TRANSACTION",
    "OLDEST_SNAPSHOT_VERSION",
    "Accepted",
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
    "following",
    "judge_known",
    "last_of",
    "newer_snapshot_version",
]
