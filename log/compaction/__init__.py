"""Log compaction: only the newest value of each key stays.

`job` decides what to clean and why, `cleaner` cleans one log in a process of its own, and `swap` puts the
cleaned segments in place. Source: Kafka's `LogCleaner`, `LogCleanerManager`, `MemoryRecords.filterTo`.
"""

from __future__ import annotations

from seqgate.log.compaction.job import (
    Cleanable,
    CleanedSegment,
    CleaningFailed,
    CleaningFinished,
    CleaningJob,
    CleaningReport,
    JobLimits,
    decode_report,
    encode_job,
)
from seqgate.log.compaction.swap import delete_cleaned
from seqgate.log.files.checkpoints import read_cleaned_offsets, write_cleaned_offsets

__all__ = [
    "Cleanable",
    "CleanedSegment",
    "CleaningFailed",
    "CleaningFinished",
    "CleaningJob",
    "CleaningReport",
    "JobLimits",
    "decode_report",
    "delete_cleaned",
    "encode_job",
    "read_cleaned_offsets",
    "write_cleaned_offsets",
]
