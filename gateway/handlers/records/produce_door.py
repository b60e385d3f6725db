"""Checks a Produce as a whole, before any of its partitions.

Kafka reads the first batch of every partition to find out whether the request writes in a transaction. So a frame that can't be
read, or a transactional batch without a transactional id that the client may write with, refuses the request for all its
partitions.
Source: Kafka's KafkaApis.handleProduceRequest, RequestUtils.hasTransactionalRecords, ProduceRequest.validateRecords.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.protocol.produce_codec import ProduceRequest
from log import CorruptRecord
from log.format.batch_validation import check_frame, is_transactional_frame
from log.format.record_batch import LOG_OVERHEAD_BYTES, MAGIC, TRANSACTIONAL_FLAG

_BATCH_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22


def refusal_of_all(
    request: ProduceRequest, may_write_as: Callable[[str], bool] | None = None
) -> tuple[ErrorCode, str] | None:
    """Return the error and message that refuse a request for all its partitions, or None.

    `may_write_as` returns whether the client may write with a transactional id; None if it may write with all.
    """
    for _, entries in request.topics:
        for entry in entries:
            if entry.records is None:
                continue
            try:
                is_transactional = is_transactional_frame(entry.records)
            except CorruptRecord as error:
                return ErrorCode.corrupt_message, f"The batch for partition {entry.partition}: {error}"
            if is_transactional:
                return _refusal_of_id(request.transactional_id, entry.partition, may_write_as)
    return None


def has_transactional(request: ProduceRequest) -> bool:
    """Return whether a batch of the request seems to be transactional, so that `refusal_of_all` must look at the request."""
    for _, entries in request.topics:
        for entry in entries:
            records = entry.records
            if (
                records is not None
                and len(records) > _ATTRIBUTES_AT
                and records[_ATTRIBUTES_AT] & TRANSACTIONAL_FLAG
            ):
                return True
    return False


def _refusal_of_id(
    transactional_id: str | None, index: int, may_write_as: Callable[[str], bool] | None
) -> tuple[ErrorCode, str] | None:
    if transactional_id is None:
        return without_transactional_id(index)
    if may_write_as is None or may_write_as(transactional_id):
        return None
    message = f"The batch for partition {index} is transactional; it needs WRITE on its transactional id."
    return ErrorCode.transactional_id_authorization_failed, message


def without_transactional_id(index: int) -> tuple[ErrorCode, str]:
    """Return the error and message for a transactional batch in a request without a transactional id."""
    message = f"The batch for partition {index} is transactional; the request has no transactional id."
    return ErrorCode.transactional_id_authorization_failed, message


def check_one_batch(records: memoryview) -> None:
    """Check that a transactional entry of a header or more is one batch, before its partition joins the transaction.

    Raises CorruptRecord, MalformedBatch.
    """
    (batch_length,) = _BATCH_LENGTH.unpack_from(records, _LENGTH_AT)
    if batch_length + LOG_OVERHEAD_BYTES != len(records) or records[_MAGIC_AT] != MAGIC:
        check_frame(records)
