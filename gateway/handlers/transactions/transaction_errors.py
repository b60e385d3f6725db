"""Maps refusals of the transaction coordinator to the error codes that clients of each version understand.

Source: Kafka's KafkaApis.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.transaction.rules import TransactionRefused
from gateway.runtime.operations.operations import Unavailable

FIRST_OFFSETS_WITH_ABORTABLE: Final = 4
FIRST_OFFSETS_THAT_ADD: Final = 5
"""First version of TxnOffsetCommit in which the commit adds its partition to the transaction."""


def error_code_for(
    error: TransactionRefused | Unavailable, api_version: int, first_with_fenced: int
) -> ErrorCode:
    """Return the code for a version; before `first_with_fenced`, INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED."""
    if error.error_code is ErrorCode.producer_fenced and api_version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return error.error_code


def offset_commit_error_code(error: TransactionRefused, api_version: int) -> ErrorCode:
    """Return the code for offsets of a transaction.

    COORDINATOR_NOT_AVAILABLE takes the place of NOT_ENOUGH_REPLICAS.
    """
    code = error.error_code
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and api_version < FIRST_OFFSETS_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    if code is ErrorCode.concurrent_transactions and api_version < FIRST_OFFSETS_THAT_ADD:
        return ErrorCode.coordinator_not_available
    return code
