"""Partition logs in Kafka's segment format: append, read, flush, roll, recover, retain. Synchronous."""

from __future__ import annotations

from log import cleaning, retention
from log.config import LogConfig
from log.directory.known_damage import DirectoryShare, known_cut_bytes, known_damage
from log.directory.log_directory import LogDirectory
from log.durability.durability import CachedDurability, Durability, FileRange, FlushTicket, LocalDurability
from log.durability.kept_writes import KeptWrites
from log.environment import LogEnvironment
from log.errors import (
    CorruptRecord,
    DecompressionLimitReached,
    DelayedLimitReached,
    DirectoryLocked,
    IncompatibleFormat,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    LogError,
    MalformedBatch,
    NameLimitReached,
    NamesNotReady,
    NameUndecided,
    NeedsRecovery,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerLimitReached,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageFailed,
    TransactionCoordinatorFenced,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from log.files.data_file import NotCached, Place
from log.files.deletion_queue import DeletionTicket
from log.files.file_names import parse_partition_directory
from log.files.storage import Storage
from log.partition_log import PartitionLog
from log.recovery.recovering import Recovery
from log.removal.retention_rules import NOT_HELD, DeletedSegment, DeletionReason
from log.retention import RemovalTicket
from log.segments.damage import CutBytes, DamagedRange
from log.segments.scan import (
    Appended,
    FileRegion,
    KeptRegion,
    ReadResult,
    TimestampAndOffset,
)
from log.state.delays import NEVER_DUE
from log.state.transactions import OpenTransaction

__all__ = [
    "NEVER_DUE",
    "NOT_HELD",
    "Appended",
    "CachedDurability",
    "CorruptRecord",
    "CutBytes",
    "DamagedRange",
    "DecompressionLimitReached",
    "DelayedLimitReached",
    "DeletedSegment",
    "DeletionReason",
    "DeletionTicket",
    "DirectoryLocked",
    "DirectoryShare",
    "Durability",
    "FileRange",
    "FileRegion",
    "FlushTicket",
    "IncompatibleFormat",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidTimestamp",
    "InvalidTxnState",
    "KeptRegion",
    "KeptWrites",
    "LocalDurability",
    "LogConfig",
    "LogDirectory",
    "LogEnvironment",
    "LogError",
    "MalformedBatch",
    "NameLimitReached",
    "NameUndecided",
    "NamesNotReady",
    "NeedsRecovery",
    "NotCached",
    "OffsetOutOfRange",
    "OpenTransaction",
    "OutOfOrderSequence",
    "PartitionLog",
    "Place",
    "ProducerLimitReached",
    "ReadResult",
    "RecordBatchTooLarge",
    "RecordTooLarge",
    "Recovery",
    "RemovalTicket",
    "Storage",
    "StorageFailed",
    "TimestampAndOffset",
    "TransactionCoordinatorFenced",
    "UnsupportedCompressionType",
    "UnsupportedForMessageFormat",
    "cleaning",
    "known_cut_bytes",
    "known_damage",
    "parse_partition_directory",
    "retention",
]
