"""How refusals of the transaction coordinator are told to clients of each version.

Source: Kafka's KafkaApis, AddPartitionsToTxnManager, ReplicaManager.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.transaction.rules import TransactionRefused
from gateway.runtime.coordinators.shards import Unavailable

FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_THAT_ADDS: Final = 12
"""From here on a batch adds its partition to the transaction (KIP-890)."""
FIRST_OFFSETS_WITH_ABORTABLE: Final = 4
FIRST_OFFSETS_THAT_ADD: Final = 5
"""As with batches, for TxnOffsetCommit."""


def error_code_for(
    error: TransactionRefused | Unavailable, api_version: int, first_with_fenced: int
) -> ErrorCode:
    """The code for a version; before `first_with_fenced` clients know PRODUCER_FENCED as INVALID_PRODUCER_EPOCH."""
    if error.error_code is ErrorCode.producer_fenced and api_version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return error.error_code


def produce_error_code(error: TransactionRefused | Unavailable, api_version: int) -> ErrorCode:
    """The code for a batch: what a producer takes for a reason to try again, or to abort, differs by version."""
    code = error.error_code
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and api_version < FIRST_PRODUCE_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    is_busy = code is ErrorCode.concurrent_transactions and api_version < FIRST_PRODUCE_THAT_ADDS
    if is_busy or isinstance(error, Unavailable):
        return ErrorCode.not_enough_replicas
    return code


def offset_commit_error_code(error: TransactionRefused, api_version: int) -> ErrorCode:
    """The code for offsets of a transaction; a group coordinator tells NOT_ENOUGH_REPLICAS in its own words."""
    code = error.error_code
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and api_version < FIRST_OFFSETS_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    if code is ErrorCode.concurrent_transactions and api_version < FIRST_OFFSETS_THAT_ADD:
        return ErrorCode.coordinator_not_available
    return code
