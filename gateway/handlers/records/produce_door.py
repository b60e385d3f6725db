"""Checks a Produce as a whole, before any of its partitions.

Kafka reads the first batch of every partition to find out whether the request writes in a transaction. So a frame that can't be
read, or a transactional batch without a transactional id, refuses the request for all its partitions.
Source: Kafka's KafkaApis.handleProduceRequest, RequestUtils.hasTransactionalRecords, ProduceRequest.validateRecords.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.protocol.produce_codec import ProduceRequest
from log import CorruptRecord
from log.format.batch_validation import check_frame, is_transactional_frame
from log.format.record_batch import LOG_OVERHEAD_BYTES, MAGIC

_BATCH_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16


def refusal_of_all(request: ProduceRequest) -> tuple[ErrorCode, str] | None:
    """Return the error and message that refuse a request for all its partitions, or None."""
    for _, entries in request.topics:
        for entry in entries:
            if entry.records is None:
                continue
            try:
                is_transactional = is_transactional_frame(entry.records)
            except CorruptRecord as error:
                return ErrorCode.corrupt_message, f"The batch for partition {entry.partition}: {error}"
            if is_transactional:
                if request.transactional_id is not None:
                    return None
                return (
                    ErrorCode.transactional_id_authorization_failed,
                    f"The batch for partition {entry.partition} is transactional; the request has no transactional id.",
                )
    return None


def check_one_batch(records: memoryview) -> None:
    """Check that a transactional entry of a header or more is one batch, before its partition joins the transaction.

    Raises CorruptRecord, MalformedBatch.
    """
    (batch_length,) = _BATCH_LENGTH.unpack_from(records, _LENGTH_AT)
    if batch_length + LOG_OVERHEAD_BYTES != len(records) or records[_MAGIC_AT] != MAGIC:
        check_frame(records)
