"""The errors by which a partition log refuses a request, each with the Kafka error code of the answer.

The codes are those of `org.apache.kafka.common.protocol.Errors`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from seqgate.seq_validator import Rejected, RejectionReason, Verdict


class LogError(Exception):
    """A refusal by a partition log. The answer to the client carries `kafka_error_code`. `record_errors`
    lists (number in the batch, what is wrong) for single records that break a rule.
    """

    kafka_error_code: ClassVar[int] = -1

    def __init_subclass__(cls, code: int | None = None) -> None:
        """Take the Kafka error code of a kind of refusal; without one it has that of its base class."""
        if code is not None:
            cls.kafka_error_code = code

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class OffsetOutOfRange(LogError, code=1):
    """The offset is below log_start_offset or above log_end_offset."""


class CorruptRecord(LogError, code=2):
    """The bytes are no record batch: size, magic or CRC is wrong."""


class RecordTooLarge(LogError, code=10):
    """The batch is larger than `max.message.bytes`."""


class RecordBatchTooLarge(LogError, code=18):
    """The batch is larger than `segment.bytes`, so no segment can hold it."""


class InvalidTimestamp(LogError, code=32):
    """A timestamp is further from the clock than the topic allows."""


class DelayedLimitReached(LogError, code=19):
    """Too many records are delayed. Retriable: upon NOT_ENOUGH_REPLICAS every client sends them again."""


class NameUndecided(LogError, code=19):
    """An open transaction decides whether a name's records are new. Retriable (NOT_ENOUGH_REPLICAS)."""


class NamesNotReady(LogError, code=19):
    """The log is still being replayed for its producer names. Retriable (NOT_ENOUGH_REPLICAS)."""


class NameLimitReached(LogError, code=19):
    """The limit of tracked producer names is reached. Retriable (NOT_ENOUGH_REPLICAS)."""


class EarlierBatchRefused(LogError, code=19):
    """The producer must send an earlier batch again first. Retriable (NOT_ENOUGH_REPLICAS)."""


class EarlierBatchesUnknown(LogError, code=19):
    """A new leader may lack earlier batches of the producer. Retriable (NOT_ENOUGH_REPLICAS)."""


class OutOfOrderSequence(LogError, code=45):
    """The producer's sequence numbers leave a gap, overlap, or repeat an old batch."""


class InvalidProducerEpoch(LogError, code=47):
    """The producer_epoch is older than the newest one seen."""


class InvalidTxnState(LogError, code=48):
    """The batch does not fit the state of its producer's transaction in this partition."""


class TransactionCoordinatorFenced(LogError, code=52):
    """The marker comes from a transaction coordinator that a newer coordinator has replaced."""


class StorageFailed(LogError, code=56):
    """A write, read or flush of this partition's files failed; the partition is offline until recovery."""


class NeedsRecovery(StorageFailed):
    """The files changed after the log was stopped or recovered, so a thread must recover the log first."""


class UnsupportedCompressionType(LogError, code=76):
    """The batch names a codec that does not exist."""


class InvalidRecord(LogError, code=87):
    """The content of a well-formed batch breaks a rule."""


class DecompressionLimitReached(InvalidRecord):
    """The compressed records decompress to more bytes than allowed."""


class MalformedBatch(InvalidRecord):
    """The bytes are not exactly one batch of magic 2. Kafka refuses them before any log sees them."""


class DerivedProducer(InvalidRecord):
    """The batch or marker has a producer id with which only gateways write (FIRST_DERIVED_ID). So Kafka
    refuses control records of clients.
    """


class ProducerLimitReached(LogError, code=89):
    """The limit of tracked idempotent producers is reached. Retriable (THROTTLING_QUOTA_EXCEEDED)."""


class NameFenced(LogError, code=90):
    """The log knows a newer name epoch of the producer name. PRODUCER_FENCED ends a producer for good."""


class DirectoryLocked(Exception):
    """Another process uses the data directory."""


class IncompatibleFormat(Exception):
    """A file on disk was written by a newer release, or its content is not of the kind that its name says."""


_REFUSALS: Final = {
    RejectionReason.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
    RejectionReason.EARLIER_BATCH_REFUSED: EarlierBatchRefused,
    RejectionReason.EARLIER_BATCHES_UNKNOWN: EarlierBatchesUnknown,
    RejectionReason.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    RejectionReason.PRODUCER_LIMIT_REACHED: ProducerLimitReached,
    RejectionReason.INVALID_TXN_STATE: InvalidTxnState,
    RejectionReason.TRANSACTION_COORDINATOR_FENCED: TransactionCoordinatorFenced,
}


def refuse(verdict: Verdict) -> None:
    """Raise the LogError of a rejection; do nothing for any other verdict."""
    if isinstance(verdict, Rejected):
        raise _REFUSALS[verdict.reason](verdict.message)
