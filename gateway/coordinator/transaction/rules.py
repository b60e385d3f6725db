"""The rules that several APIs of the transaction coordinator share, and the state that all decide on. A rule
computes the next state of a transactional id, or refuses the request.

No rule changes state: the result is the value of a record, and the state changes when `TransactionShard`
replays that record. A rule that needs a fresh producer id raises `NeedsProducerId`, and is called again with
one.

The rules of single APIs stand beside these, such as `next_state` in
`handlers/transactions/init_producer_id.py`, and `decided_by` in `handlers/transactions/end_txn.py`.

Epochs: a producer that begins raises the epoch, which fences the previous producer. A fence, and each end by
a client of version 2, also raises the epoch and remembers the previous one, so that a retry is recognized
(KIP-360, KIP-890). Source: Kafka's `TransactionCoordinator`, `TransactionMetadata`.

`NewestConnections` tells late requests of version 1 of transactions. In version 1 an end does not change the
epoch, so a request names its producer, and not its transaction. An EndTxn that the network has held up, and
that the client has sent again over another connection since, would end the next transaction. The client has
given up the old connection, so the order of connections tells such a request. With version 2 the epoch tells
it (KIP-890).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction.records import (
    COMPLETED,
    DECIDED,
    IDLE,
    MAY_FOLLOW,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    Transaction,
    TransactionRecord,
    TransactionState,
)
from seqgate.seq_validator import TRANSACTION_VERSION_2

VERSION_2: Final = TRANSACTION_VERSION_2
MAX_EPOCH: Final = 2**15 - 1
LAST_EPOCH_TO_BUMP: Final = MAX_EPOCH - 1
"""At this epoch the next producer needs another producer id; the epoch above it is only used in a marker."""


class TransactionRefused(Exception):
    """A request is refused; `error_code` answers it."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


class NeedsProducerId(Exception):
    """The epochs are used up, or there is no producer yet. Call again with a fresh producer id."""


class TransactionLimits(msgspec.Struct, frozen=True):
    """The limits of transactions: `transaction.*`, `seqgate.transaction*` in `docs/configuration.md`."""

    max_timeout_ms: int = 900_000
    max_partitions: int = 10_000
    max_transactional_ids: int = 100_000


class Producer(NamedTuple):
    """The producer that a client claims to be."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_named(self) -> bool:
        """Whether the request names a producer id, so that the client claims to be a former producer."""
        return self != _NOBODY


_NOBODY: Final = Producer()


def fence(current: Transaction, now_ms: int) -> Transaction:
    """Abort an open transaction without its producer's request; the markers' epoch fences the producer."""
    return become(
        current,
        PREPARE_ABORT,
        producer_epoch=min(current.producer_epoch + 1, MAX_EPOCH),
        last_producer_epoch=current.producer_epoch,
        client_version=VERSION_2,
        last_update_ms=now_ms,
    )


def add_partitions(
    current: Transaction | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    client_version: int,
    max_partitions: int,
    now_ms: int,
) -> Transaction | None:
    """Add partitions to the transaction; return None when it has all of them. Raises TransactionRefused."""
    transaction = _checked(current, producer)
    begins = transaction.state in IDLE
    before = frozenset() if begins else transaction.partitions
    if not begins and partitions <= before:
        return None
    after = before | partitions
    if len(after) > max_partitions:
        raise TransactionRefused(ErrorCode.policy_violation)
    return become(
        transaction,
        ONGOING,
        partitions=after,
        start_ms=now_ms if begins else transaction.start_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def check_partition(current: Transaction | None, producer: Producer, partition: TopicPartition) -> None:
    """Check that a partition takes part in the producer's present transaction. Raises TransactionRefused."""
    if partition not in _checked(current, producer).partitions:
        raise TransactionRefused(ErrorCode.transaction_abortable)


def _checked(current: Transaction | None, producer: Producer) -> Transaction:
    if current is None:
        raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
    check_not_next(current, producer)
    if current.producer_id != producer.producer_id:
        raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
    if current.producer_epoch != producer.producer_epoch:
        raise TransactionRefused(ErrorCode.producer_fenced)
    if current.state in DECIDED:
        raise TransactionRefused(ErrorCode.concurrent_transactions)
    if current.producer_epoch == MAX_EPOCH:
        # An end that the client retried may have told it this epoch. A timeout could not fence it: its abort,
        # or InitProducerId, gets another producer id.
        raise TransactionRefused(ErrorCode.invalid_producer_epoch)
    return current


def check_not_next(current: Transaction, producer: Producer) -> None:
    """Let the producer of the next transaction wait: the answer to the end may have told it its new id, and
    the state has this id once the end is complete. Raises TransactionRefused.
    """
    if producer.producer_id == current.next_producer_id != NO_PRODUCER_ID:
        raise TransactionRefused(ErrorCode.concurrent_transactions)


def complete(current: Transaction, now_ms: int) -> Transaction:
    """Return the transaction after all its markers are written."""
    changes: dict[str, Any] = {}
    if current.next_producer_id != NO_PRODUCER_ID:
        changes = {
            "producer_id": current.next_producer_id,
            "previous_producer_id": current.producer_id,
            "producer_epoch": 0,
            "next_producer_id": NO_PRODUCER_ID,
        }
    return become(current, COMPLETED[current.state], partitions=frozenset(), last_update_ms=now_ms, **changes)


def raised_epoch(decided: Transaction) -> bool:
    """Return whether the markers carry a newer epoch than the batches they end, so later ones differ."""
    return decided.client_version >= VERSION_2 and decided.last_producer_epoch < decided.producer_epoch


def is_overdue(transaction: Transaction, now_ms: int, grace_ms: int = 0) -> bool:
    """Return whether a transaction is open for longer than its timeout and `grace_ms`.

    A transaction whose start lies further in the future than this time is overdue too: the clock was set
    back. Otherwise readers of committed records would wait until the clock has caught up.
    """
    allowed_ms = transaction.timeout_ms + grace_ms
    return transaction.state is ONGOING and abs(now_ms - transaction.start_ms) > allowed_ms


def is_expired(transaction: Transaction, expiration_ms: int, now_ms: int) -> bool:
    """Return whether a transactional id was unused for so long that it expires."""
    return transaction.state in IDLE and transaction.last_update_ms + expiration_ms <= now_ms


def become(current: Transaction, state: TransactionState, **changes: Any) -> Transaction:
    """Return the transaction in a state that may follow its present one, with these changes."""
    if current.state not in MAY_FOLLOW[state]:
        raise AssertionError(f"state {state.text} can't follow state {current.state.text}")
    return current._replace(state=state, **changes)


PRODUCERS_KEPT: Final = 10_000
"""Producers whose newest connection is known. Beyond that the longest silent one is forgotten: its late
requests are carried out, as in Kafka.
"""


class NewestConnections:
    """Notes the connections of requests, numbered in the order in which they were accepted."""

    def __init__(self) -> None:
        self._newest: OrderedDict[Producer, int] = OrderedDict()

    def is_late(self, producer: Producer, connection: int) -> bool:
        """Note the connection of a request; return whether its producer has used a newer connection."""
        newest = self._newest.get(producer, connection)
        if connection < newest:
            return True
        self._newest[producer] = connection
        self._newest.move_to_end(producer)
        if len(self._newest) > PRODUCERS_KEPT:
            self._newest.popitem(last=False)
        return False


class TransactionShard:
    """The transactions by transactional id, and the transactional ids by their present producer id."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.open: set[str] = set()
        """The transactional ids whose transaction is not decided."""
        self.decided: set[str] = set()
        """The transactional ids whose transaction is decided and still needs markers."""
        self.by_producer_id: dict[int, str] = {}

    def replay(self, record: TransactionRecord, now_ms: int) -> None:
        """Replay a record. Nothing else changes the state of this shard."""
        del now_ms  # replay does not depend on the time
        transactional_id, value = record
        before = self.transactions.get(transactional_id)
        if before is not None and (value is None or before.producer_id != value.producer_id):
            self.by_producer_id.pop(before.producer_id, None)
        self.open.discard(transactional_id)
        self.decided.discard(transactional_id)
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = value
        self.by_producer_id[value.producer_id] = transactional_id
        if value.state is ONGOING:
            self.open.add(transactional_id)
        elif value.state in DECIDED:
            self.decided.add(transactional_id)

    def stored_keys(self) -> Iterator[str]:
        """Yield the key of every record that the log must hold."""
        yield from self.transactions

    def records_of(self, key: str) -> list[TransactionRecord]:
        """Return the record of a key as it would be written now; none when the key no longer exists."""
        found = self.transactions.get(key)
        return [] if found is None else [TransactionRecord(key, found)]

    def overdue(self, now_ms: int) -> list[str]:
        """Return the transactional ids whose transaction has timed out and must be aborted."""
        return [name for name in self.open if is_overdue(self.transactions[name], now_ms)]

    def expired(self, expiration_ms: int, now_ms: int) -> list[str]:
        """Return the transactional ids that were unused for so long that they expire."""
        return [
            name
            for name, transaction in self.transactions.items()
            if is_expired(transaction, expiration_ms, now_ms)
        ]
