"""The transactional ids in a data directory that no gateway has open: looked at without a lock, and without a change.

Tells what `gateway.control.transactions` tells, but for what only open partition logs know. Raises ControlError.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.control.errors import ControlError
from gateway.control.messages import ListTransactionsRequest
from gateway.control.results import PendingOffset
from gateway.control.stopped import metadata_directory
from gateway.control.stored_batches import partition_directories, stored_batches
from gateway.control.transaction_results import (
    TransactionDescription,
    TransactionPartition,
    TransactionRow,
)
from gateway.control.transaction_views import (
    describe,
    in_order,
    list_all,
    pending_offset,
)
from gateway.coordinator.group import records as group_records
from gateway.coordinator.group.offsets import GroupOffsets, OffsetRecord
from gateway.coordinator.transaction import records as transaction_records
from gateway.coordinator.transaction.records import Transaction
from gateway.coordinator.transaction.shard import TransactionShard
from gateway.metadata.topic_names import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from gateway.runtime.coordinators.shard import Codec, decoded
from log import IncompatibleFormat, LogError


def list_transactions(data_dir: Path, request: ListTransactionsRequest, now_ms: int) -> list[TransactionRow]:
    """All transactional ids asked for, in order."""
    return list_all(_transactions(data_dir).items(), request, now_ms)


def describe_transaction(data_dir: Path, transactional_id: str, now_ms: int) -> TransactionDescription:
    """A transactional id with all its partitions, and the offsets that it holds."""
    transaction = _transactions(data_dir).get(transactional_id)
    if transaction is None:
        raise ControlError(f"there is no transactional id {transactional_id}")
    return describe(
        transactional_id,
        transaction,
        [TransactionPartition(*place, None, None, None) for place in sorted(transaction.partitions)],
        _pending(data_dir, transactional_id, transaction.producer_id),
        now_ms,
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
        for header, batch in stored_batches(directory):
            yield from decoded(codec, header, batch, directory.name)
    except (LogError, IncompatibleFormat, OSError) as error:
        raise ControlError(f"{directory} can't be read: {error}") from error
