"""Maps refusals of the transaction coordinator to the error codes of a Produce answer.

Source: Kafka's AddPartitionsToTxnManager, ReplicaManager.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.transaction.rules import TransactionRefused
from gateway.runtime.operations.operations import Unavailable

FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_THAT_ADDS: Final = 12
"""First version of Produce in which a batch adds its partition to the transaction (KIP-890)."""


def produce_error_code(error: TransactionRefused | Unavailable, api_version: int) -> ErrorCode:
    """Return the code for a batch; which codes make a producer retry or abort differs by version."""
    code = error.error_code
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and api_version < FIRST_PRODUCE_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    is_busy = code is ErrorCode.concurrent_transactions and api_version < FIRST_PRODUCE_THAT_ADDS
    if is_busy or isinstance(error, Unavailable):
        return ErrorCode.not_enough_replicas
    return code
