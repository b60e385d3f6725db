"""The transactional ids in a data directory that no gateway has open, read without a lock and without a
change.

The offsets that only open partition logs know are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqgate.gateway.admin.operation import StoppedGateway
from seqgate.gateway.admin.request import ControlError, in_words
from seqgate.gateway.admin.stored import metadata_directory, partition_directories
from seqgate.gateway.admin.transactions.answers import described, rows_of_ids
from seqgate.gateway.admin.transactions.live import in_order, pending_offset
from seqgate.gateway.admin.transactions.messages import (
    DescribeTransactionRequest,
    ListTransactionsRequest,
    PendingOffset,
    TransactionDescription,
    TransactionPage,
    TransactionPartition,
)
from seqgate.gateway.coordinator.group import records as group_records
from seqgate.gateway.coordinator.group.offsets import GroupOffsets, OffsetRecord
from seqgate.gateway.coordinator.transaction import records as transaction_records
from seqgate.gateway.coordinator.transaction.records import Transaction
from seqgate.gateway.coordinator.transaction.shard import TransactionShard
from seqgate.gateway.metadata.image import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.coordinators.shards import Codec, decoded
from seqgate.log import IncompatibleFormat, LogError, Storage
from seqgate.log.stopped import stored_batches


def list_transactions(gateway: StoppedGateway, request: ListTransactionsRequest) -> TransactionPage:
    """Return all requested transactional ids, in order. Raises ControlError."""
    found = _transactions(gateway.data_dir)
    rows, complete = rows_of_ids(found.items(), request, gateway.now_ms)
    return TransactionPage(rows, complete, [])


def describe_transaction(
    gateway: StoppedGateway, request: DescribeTransactionRequest
) -> TransactionDescription:
    """Return a transactional id with all its partitions, and the offsets that it holds. Raises ControlError."""
    name = request.transactional_id
    transaction = _transactions(gateway.data_dir).get(name)
    if transaction is None:
        raise ControlError(f"there is no transactional id {name}")
    return described(
        name,
        transaction,
        [TransactionPartition(*place, None, None, None) for place in sorted(transaction.partitions)],
        _pending(gateway.data_dir, name, transaction.producer_id),
        gateway.now_ms,
        complete=True,
    )


def _transactions(data_dir: Path) -> dict[str, Transaction]:
    metadata_directory(data_dir)
    shard = TransactionShard()
    for directory in partition_directories(data_dir, TRANSACTION_STATE_TOPIC):
        for record in _records(directory, transaction_records):
            if isinstance(record, transaction_records.TransactionRecord):
                shard.replay(record, 0)
    return shard.transactions


def _pending(data_dir: Path, transactional_id: str, producer_id: int) -> list[PendingOffset]:
    pending: list[PendingOffset] = []
    for directory in partition_directories(data_dir, OFFSETS_TOPIC):
        offsets = _offsets(directory)
        pending += (
            pending_offset(held, transactional_id) for held in offsets.pending.of_producer(producer_id)
        )
    return in_order(pending)


def _offsets(directory: Path) -> GroupOffsets:
    offsets = GroupOffsets()
    for record in _records(directory, group_records):
        if isinstance(record, OffsetRecord):
            offsets.replay(record)
    return offsets


def _records(directory: Path, codec: Codec) -> Iterator[Any]:
    try:
        for header, batch in stored_batches(Storage(), directory):
            yield from decoded(codec, header, batch, directory.name)
    except (LogError, IncompatibleFormat, OSError) as error:
        raise ControlError(f"{directory} can't be read: {in_words(error)}") from error
