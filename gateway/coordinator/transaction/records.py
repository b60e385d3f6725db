"""The records of `__transaction_state`, in Kafka's formats, so that Kafka's own tools read them.

    key        int16 0 | transactional_id
    value v0   int16 0 | int64 producer_id | int16 producer_epoch | int32 timeout | int8 state |
               topics?[topic, int32 partitions[]] | int64 last_update | int64 start
    value v1   int16 1 | the same with compact lengths and tags
    tags       0 int64 previous_producer_id | 1 int64 next_producer_id | 2 int16 client_version |
                      10000 int16 last_producer_epoch (Seqgate's own tag: Kafka does not store this epoch, and
                      its readers skip the tag)

Values are written as v1. A null value deletes. Source: Kafka's TransactionLogKey.json,
TransactionLogValue.json.

The states of a transactional id, and the outcome of an EndTxn in each, as tables.

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
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum
from struct import Struct
from typing import Final, NamedTuple

from seqgate.gateway.coordinator.places import TopicPartition, by_topic
from seqgate.gateway.coordinator.stored_versions import NewerVersion
from seqgate.gateway.protocol.frames import MalformedRequest, read_unsigned_varint, skip_tagged_fields
from seqgate.gateway.protocol.primitives import compact_string, string, unsigned_varint


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


class End(Enum):
    """The outcome of an EndTxn."""

    PREPARE = "the end is decided now"
    DONE = "the transaction has already ended in this way"
    BUSY = "the transaction is ending in this way; try again"
    INVALID = "there is no transaction that can end in this way"


COMMIT: Final = True
ABORT: Final = False
_SAME_END: Final = {
    (PREPARE_COMMIT, COMMIT): End.BUSY,
    (PREPARE_ABORT, ABORT): End.BUSY,
    (COMPLETE_COMMIT, COMMIT): End.DONE,
    (COMPLETE_ABORT, ABORT): End.DONE,
}
_ONGOING_ENDS: Final = {(ONGOING, COMMIT): End.PREPARE, (ONGOING, ABORT): End.PREPARE}

END_V1: Final = {**_ONGOING_ENDS, **_SAME_END}
"""The outcomes for a client whose epoch stays: a retry can't be recognized. Missing entries are INVALID."""
END_V2: Final = {**_ONGOING_ENDS, **{(state, ABORT): End.PREPARE for state in IDLE}}
"""The outcomes for a client whose epoch rises with every end (KIP-890): an abort may end an empty
transaction.
"""
END_V2_AGAIN: Final = _SAME_END
"""The outcomes for a client whose epoch rises with every end, when its epoch shows that the request is a
retry.
"""


NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIME: Final = -1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_HEAD: Final = Struct(">hqhib")
_TIMES: Final = Struct(">qq")
_NEWEST_READ: Final = 1
_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2
_LAST_PRODUCER_EPOCH: Final = 10_000
_TAGS: Final = {
    _PREVIOUS_PRODUCER_ID: _INT64,
    _NEXT_PRODUCER_ID: _INT64,
    _CLIENT_VERSION: _INT16,
    _LAST_PRODUCER_EPOCH: _INT16,
}
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
    """The next producer id, which follows when the present end is complete, because the epochs are used up.
    """
    client_version: int = 0
    """The client's transaction protocol: 0 or 1, or 2 when the epoch rises with every end (KIP-890)."""


class TransactionRecord(NamedTuple):
    """The state of a transactional id from this record on; None deletes the transactional id."""

    transactional_id: str
    value: Transaction | None


class UnreadableTransactionRecord(ValueError):
    """The bytes are no record of this topic, or the record has a newer version than this release reads."""


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log."""
    key = _INT16.pack(0) + string(record.transactional_id)
    value = record.value
    if value is None:
        return key, None
    return key, b"".join(
        (
            _HEAD.pack(1, value.producer_id, value.producer_epoch, value.timeout_ms, value.state),
            _partitions(value),
            _TIMES.pack(value.last_update_ms, value.start_ms),
            _tags(value),
        )
    )


def _partitions(value: Transaction) -> bytes:
    if value.state is EMPTY:
        return unsigned_varint(0)
    topics = by_topic(value.partitions)
    parts = [unsigned_varint(len(topics) + 1)]
    for topic, indexes in topics.items():
        parts += compact_string(topic), unsigned_varint(len(indexes) + 1)
        parts += struct.pack(f">{len(indexes)}i", *indexes), b"\0"
    return b"".join(parts)


def _tags(value: Transaction) -> bytes:
    held = (
        (_PREVIOUS_PRODUCER_ID, value.previous_producer_id, NO_PRODUCER_ID),
        (_NEXT_PRODUCER_ID, value.next_producer_id, NO_PRODUCER_ID),
        (_CLIENT_VERSION, value.client_version, 0),
        (_LAST_PRODUCER_EPOCH, value.last_producer_epoch, NO_PRODUCER_EPOCH),
    )
    encoded = [
        unsigned_varint(tag) + unsigned_varint(_TAGS[tag].size) + _TAGS[tag].pack(number)
        for tag, number, default in held
        if number != default
    ]
    return unsigned_varint(len(encoded)) + b"".join(encoded)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Return the record, or None for an unknown kind of key. Raises UnreadableTransactionRecord."""
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind != 0:
            return None
        transactional_id, _ = _read_string(memoryview(key), 2)
        if value is None:
            return TransactionRecord(transactional_id, None)
        return TransactionRecord(transactional_id, _read_value(memoryview(value)))
    except (struct.error, MalformedRequest, UnicodeDecodeError, IndexError, NewerVersion) as error:
        raise UnreadableTransactionRecord(f"a record of a transaction can't be read: {error}") from error


def _read_value(value: memoryview) -> Transaction:
    version, producer_id, producer_epoch, timeout_ms, number = _HEAD.unpack_from(value)
    if version > _NEWEST_READ:
        raise NewerVersion(version, _NEWEST_READ)
    if version < 0:
        raise UnreadableTransactionRecord(f"the version {version} is negative")
    try:
        state = TransactionState(number)
    except ValueError as error:
        raise UnreadableTransactionRecord(str(error)) from error
    if state in _NEVER_STORED or producer_id < 0 or producer_epoch < 0:
        raise UnreadableTransactionRecord(
            f"a transaction of producer {producer_id} and epoch {producer_epoch} in state {state.text}"
        )
    is_compact = version == 1
    partitions, position = _read_partitions(value, _HEAD.size, is_compact)
    last_update_ms, start_ms = _TIMES.unpack_from(value, position)
    tags = _read_tags(value, position + _TIMES.size) if is_compact else {}
    return Transaction(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions,
        last_update_ms,
        start_ms,
        tags.get(_LAST_PRODUCER_EPOCH, NO_PRODUCER_EPOCH),
        tags.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        tags.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        tags.get(_CLIENT_VERSION, 0),
    )


def _read_partitions(
    value: memoryview, position: int, is_compact: bool
) -> tuple[frozenset[TopicPartition], int]:
    read_count, read_text = (
        (_read_compact_count, _read_compact_string) if is_compact else (_read_count, _read_string)
    )
    found = set()
    count, position = read_count(value, position)
    for _ in range(count):
        topic, position = read_text(value, position)
        indexes, position = _read_indexes(value, position, read_count)
        found |= {(topic, index) for index in indexes}
        if is_compact:
            position = skip_tagged_fields(value, position)
    return frozenset(found), position


def _read_indexes(
    value: memoryview, position: int, read_count: Callable[[memoryview, int], tuple[int, int]]
) -> tuple[Iterator[int], int]:
    count, position = read_count(value, position)
    end = position + count * _INT32.size
    if end > len(value):
        raise UnreadableTransactionRecord(
            f"a list of {count} partitions does not fit into {len(value)} bytes"
        )
    return (index for (index,) in _INT32.iter_unpack(value[position:end])), end


def _read_count(value: memoryview, position: int) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(value, position)
    return max(count, 0), position + _INT32.size


def _read_compact_count(value: memoryview, position: int) -> tuple[int, int]:
    count, position = read_unsigned_varint(value, position)
    return max(count - 1, 0), position


def _read_string(value: memoryview, position: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(value, position)
    return _text(value, position + _INT16.size, size)


def _read_compact_string(value: memoryview, position: int) -> tuple[str, int]:
    size, position = read_unsigned_varint(value, position)
    return _text(value, position, size - 1)


def _text(value: memoryview, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > len(value):
        raise UnreadableTransactionRecord(f"a name of {size} bytes does not fit into {len(value)} bytes")
    return str(value[position:end], "utf-8"), end


def _read_tags(value: memoryview, position: int) -> dict[int, int]:
    count, position = read_unsigned_varint(value, position)
    found = {}
    for _ in range(count):
        tag, position = read_unsigned_varint(value, position)
        size, position = read_unsigned_varint(value, position)
        if position + size > len(value):
            raise UnreadableTransactionRecord(f"a tag of {size} bytes does not fit into {len(value)} bytes")
        layout = _TAGS.get(tag)
        if layout is not None and layout.size == size:
            (found[tag],) = layout.unpack_from(value, position)
        position += size
    return found
