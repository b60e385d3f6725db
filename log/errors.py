"""The errors by which a partition log refuses a request, each with the Kafka error code of the answer.

The codes are those of `org.apache.kafka.common.protocol.Errors`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from seqgate.seq_validator import Rejected, RejectionReason, Verdict


class LogError(Exception):
    """A refusal by a partition log. The answer to the client carries `kafka_error_code`.

    `record_errors` lists (number of the record in the batch, what is wrong) where single records break a rule
    and can be decoded.
    """

    kafka_error_code: ClassVar[int] = -1

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        """Take the message, and the errors of single records."""
        super().__init__(message)
        self.record_errors = record_errors


class OffsetOutOfRange(LogError):
    """The offset is below log_start_offset or above log_end_offset."""

    kafka_error_code = 1


class CorruptRecord(LogError):
    """The bytes are no record batch: size, magic or CRC is wrong."""

    kafka_error_code = 2


class RecordTooLarge(LogError):
    """The batch is larger than `max.message.bytes`."""

    kafka_error_code = 10


class RecordBatchTooLarge(LogError):
    """The batch is larger than `segment.bytes`, so no segment can hold it."""

    kafka_error_code = 18


class InvalidTimestamp(LogError):
    """A timestamp is further from the clock than the topic allows."""

    kafka_error_code = 32


class DelayedLimitReached(LogError):
    """The limit of delayed records is reached. Retriable: NOT_ENOUGH_REPLICAS, upon which every client sends
    the batch again.
    """

    kafka_error_code = 19


class NameUndecided(LogError):
    """An open transaction decides whether the records of a producer name are new. Retriable
    (NOT_ENOUGH_REPLICAS).
    """

    kafka_error_code = 19


class NamesNotReady(LogError):
    """The log is still being replayed for its producer names. Retriable (NOT_ENOUGH_REPLICAS)."""

    kafka_error_code = 19


class NameLimitReached(LogError):
    """The limit of remembered producer names is reached. Retriable (NOT_ENOUGH_REPLICAS)."""

    kafka_error_code = 19


class UnsupportedForMessageFormat(LogError):
    """The stored format lacks what the operation needs."""

    kafka_error_code = 43


class EarlierBatchesUnknown(LogError):
    """A new leader may lack earlier batches of the producer. Retriable (NOT_ENOUGH_REPLICAS)."""

    kafka_error_code = 19


class OutOfOrderSequence(LogError):
    """The producer's sequence numbers leave a gap, overlap, or repeat an old batch."""

    kafka_error_code = 45


class InvalidProducerEpoch(LogError):
    """The producer_epoch is older than the newest one seen."""

    kafka_error_code = 47


class InvalidTxnState(LogError):
    """The batch does not fit the state of its producer's transaction in this partition."""

    kafka_error_code = 48


class TransactionCoordinatorFenced(LogError):
    """The marker comes from a transaction coordinator that a newer coordinator has replaced."""

    kafka_error_code = 52


class StorageFailed(LogError):
    """A write, read or flush of this partition's files failed; the partition is offline until recovery."""

    kafka_error_code = 56


class NeedsRecovery(StorageFailed):
    """The files have changed since the log was stopped or recovered, so a thread must recover the log first."""


class UnsupportedCompressionType(LogError):
    """The batch names a codec that does not exist."""

    kafka_error_code = 76


class InvalidRecord(LogError):
    """The content of a well-formed batch breaks a rule."""

    kafka_error_code = 87


class DecompressionLimitReached(InvalidRecord):
    """The compressed records decompress to more bytes than allowed."""


class MalformedBatch(InvalidRecord):
    """The bytes are not exactly one batch of magic 2. Kafka refuses such a request before any log sees the
    bytes.
    """


class ProducerLimitReached(LogError):
    """The limit of remembered idempotent producers is reached. Retriable (THROTTLING_QUOTA_EXCEEDED)."""

    kafka_error_code = 89


class NameFenced(LogError):
    """The log knows a newer name epoch of the producer name. PRODUCER_FENCED ends a producer for good."""

    kafka_error_code = 90


class DirectoryLocked(Exception):
    """Another process uses the data directory."""


class IncompatibleFormat(Exception):
    """A file on disk was written by a newer release, or its content is not of the kind that its name says."""


_REFUSALS: Final = {
    RejectionReason.OUT_OF_ORDER_SEQUENCE: OutOfOrderSequence,
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
