"""The records of `__transaction_state`, in Kafka's formats, so that Kafka's own tools read them.

Values are written as v1, the compact encoding; v0 is read too. A null value deletes. Source: Kafka's
TransactionLogKey.json, TransactionLogValue.json.

The states of a transactional id, as a table.

    state            may follow                                      meaning
    Empty            Empty, CompleteCommit, CompleteAbort            a producer has begun, but no transaction
    Ongoing          Empty, Ongoing, CompleteCommit, CompleteAbort   partitions take part and are written
    PrepareCommit    Ongoing                                         decided, markers are being written
    PrepareAbort     Empty, Ongoing, CompleteCommit, CompleteAbort   decided, markers are being written
    CompleteCommit   PrepareCommit                                   every partition has its marker
    CompleteAbort    PrepareAbort                                    every partition has its marker

PrepareEpochFence and Dead have a number in Kafka's format and a name in ListTransactions, but Seqgate never
stores them: it fences a producer, and deletes an id, in one step. Source: Kafka's `TransactionState`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple

from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.rows import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    FieldReader,
    Row,
    Tag,
    partitions_of,
    structure,
)


class TransactionState(IntEnum):
    """The states; the numbers are those in Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name that DescribeTransactions and ListTransactions report."""
        return _NAMES[self]


_NAMES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
BY_NAME: Final = {name: state for state, name in _NAMES.items()}

EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

IDLE: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""The states without a transaction: the next one may begin, and the id may expire."""
DECIDED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The states in which the outcome is decided and can't change any more."""

MAY_FOLLOW: Final = {
    EMPTY: IDLE,
    ONGOING: IDLE | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: IDLE | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
}
COMPLETED: Final = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""The state that follows when all markers are written."""


COMMIT: Final = True
ABORT: Final = False

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIME: Final = -1

_NEVER_STORED: Final = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})
MAX_TRANSACTIONAL_ID_BYTES: Final = 2**15 - 1
"""Longest transactional id: the key stores its length as an int16."""


class Transaction(NamedTuple):
    """The state of a transactional id: its producer, and the transaction that it last began."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions that still need a marker; none once the transaction is complete."""
    last_update_ms: int = NO_TIME
    start_ms: int = NO_TIME
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The previous epoch. A request that carries it may be a retry (KIP-360, KIP-890)."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that follows when the present end is complete, because the epochs are used up."""
    client_version: int = 0
    """The client's transaction protocol: 0 or 1, or 2 when the epoch rises with every end (KIP-890)."""


class TransactionRecord(NamedTuple):
    """The state of a transactional id from this record on; None deletes the transactional id."""

    transactional_id: str
    value: Transaction | None


class UnreadableTransactionRecord(ValueError):
    """The bytes are no record of this topic, or the record has a newer version than this release reads."""


def _transaction(
    producer_id: int, producer_epoch: int, timeout_ms: int, number: int, *later: Any
) -> Transaction:
    state = TransactionState(number)
    if state in _NEVER_STORED or producer_id < 0 or producer_epoch < 0:
        raise ValueError(
            f"a transaction of producer {producer_id} and epoch {producer_epoch} in state {state.text}"
        )
    return Transaction(producer_id, producer_epoch, timeout_ms, state, *later)


_ROW: Final = Row(
    0,
    structure(
        _transaction,
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("timeout_ms", INT32),
        Field("state", INT8),
        Field(
            lambda value: None if value.state is EMPTY else value.partitions,
            partitions_of(STRING, lambda *place: place, nullable=True),
        ),
        Field("last_update_ms", INT64),
        Field("start_ms", INT64),
        # Seqgate's own tag: Kafka does not store this epoch, and its readers skip the tag
        Tag(10_000, "last_producer_epoch", INT16, NO_PRODUCER_EPOCH),
        Tag(0, "previous_producer_id", INT64, NO_PRODUCER_ID),
        Tag(1, "next_producer_id", INT64, NO_PRODUCER_ID),
        Tag(2, "client_version", INT16, 0),
    ),
    written=1,
    newest=1,
    first_compact=1,
)


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log."""
    return _ROW.encode((record.transactional_id,), record.value)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the record, or None for an unknown kind of key. Raises UnreadableTransactionRecord."""
    reader = FieldReader(key)
    try:
        if reader.number(Struct(">h")) != _ROW.kind:
            return None
        (name,), found = _ROW.decode(reader, value)
    except (struct.error, ValueError) as error:
        raise UnreadableTransactionRecord(f"a record of a transaction can't be read: {error}") from error
    return TransactionRecord(name, found)
