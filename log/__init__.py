"""Partition logs in Kafka's segment format: append, read, flush, roll, recover, retain. Synchronous."""

from __future__ import annotations

from seqgate.log import cleaning, retention
from seqgate.log.config import LogConfig
from seqgate.log.directory.identity import OF_A_FILE_SYSTEM
from seqgate.log.directory.log_directory import DirectoryShare, LogDirectory
from seqgate.log.directory.stored_logs import PRODUCER_CLIENTS
from seqgate.log.durability.durability import CachedDurability, Durability, LocalDurability
from seqgate.log.durability.kept_writes import KeptWrites
from seqgate.log.durability.unflushed import FileRange, FlushTicket
from seqgate.log.environment import LogEnvironment
from seqgate.log.errors import (
    CorruptRecord,
    DecompressionLimitReached,
    DerivedProducer,
    DirectoryLocked,
    EarlierBatchRefused,
    IncompatibleFormat,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    LogError,
    MalformedBatch,
    NeedsRecovery,
    OffsetOutOfRange,
    RecordTooLarge,
    StorageFailed,
    TransactionCoordinatorFenced,
)
from seqgate.log.files.deletion_queue import DeletionTicket
from seqgate.log.files.file_names import parse_partition_directory
from seqgate.log.files.page_cache import NotCached, PageRange
from seqgate.log.files.storage import Storage
from seqgate.log.partition_log import PartitionLog
from seqgate.log.recovery.load import Recovery
from seqgate.log.retention import DeletedSegment, DeletionReason, RemovalTicket
from seqgate.log.segments.damage import CutBytes, DamagedRange
from seqgate.log.segments.scan import Appended, FileRegion, KeptRegion
from seqgate.log.state.delays import NEVER_DUE

__all__ = [
    "NEVER_DUE",
    "OF_A_FILE_SYSTEM",
    "PRODUCER_CLIENTS",
    "Appended",
    "CachedDurability",
    "CorruptRecord",
    "CutBytes",
    "DamagedRange",
    "DecompressionLimitReached",
    "DeletedSegment",
    "DeletionReason",
    "DeletionTicket",
    "DerivedProducer",
    "DirectoryLocked",
    "DirectoryShare",
    "Durability",
    "EarlierBatchRefused",
    "FileRange",
    "FileRegion",
    "FlushTicket",
    "IncompatibleFormat",
    "InvalidProducerEpoch",
    "InvalidRecord",
    "InvalidTimestamp",
    "KeptRegion",
    "KeptWrites",
    "LocalDurability",
    "LogConfig",
    "LogDirectory",
    "LogEnvironment",
    "LogError",
    "MalformedBatch",
    "NeedsRecovery",
    "NotCached",
    "OffsetOutOfRange",
    "PageRange",
    "PartitionLog",
    "RecordTooLarge",
    "Recovery",
    "RemovalTicket",
    "Storage",
    "StorageFailed",
    "TransactionCoordinatorFenced",
    "cleaning",
    "parse_partition_directory",
    "retention",
]
