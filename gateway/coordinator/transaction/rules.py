"""What follows a request: the transaction as it is becomes the transaction as it will be, or the request is refused.

Nothing here changes anything: the result is a value for a record, and what was replayed from records counts.
A fresh producer id is asked for with `NeedsProducerId` and given in a second call.

Epochs: a producer that begins raises the epoch, which fences the one before it. A fence, and each end of a client of
version 2, raises it too and remembers the one before, so that the same request asked again is known (KIP-360, KIP-890).
Source: Kafka's `TransactionCoordinator`, `TransactionMetadata`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transaction.records import (
    MAX_TRANSACTIONAL_ID_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    Transaction,
)
from gateway.coordinator.transaction.states import (
    ABORT,
    COMMIT,
    COMPLETED,
    DECIDED,
    EMPTY,
    END_V1,
    END_V2,
    END_V2_AGAIN,
    IDLE,
    MAY_FOLLOW,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    End,
    TransactionState,
)

VERSION_2: Final = 2
"""The client's protocol from which on the epoch rises with every end."""
MAX_EPOCH: Final = 2**15 - 1
LAST_EPOCH_TO_BUMP: Final = MAX_EPOCH - 1
"""From here on another producer id is needed; the epoch above it only ever stands in a marker."""


class TransactionRefused(Exception):
    """The error that answers a request."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(error_code.name)
        self.error_code = error_code


class NeedsProducerId(Exception):
    """The epochs are used up, or there is no producer yet: call again with a fresh producer id."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """See the settings `transaction.*` and `seqgate.transaction*` in `docs/configuration.md`."""

    max_timeout_ms: int = 900_000
    max_partitions: int = 10_000
    max_transactional_ids: int = 100_000


class Producer(NamedTuple):
    """Who a client says it is."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_named(self) -> bool:
        """Whether it says so at all."""
        return self != _NOBODY


_NOBODY: Final = Producer()


class EndRequest(NamedTuple):
    """An EndTxn."""

    producer: Producer
    commit: bool
    client_version: int


def check_begin(transactional_id: str, timeout_ms: int, limits: TransactionLimits) -> None:
    """What is wrong with an InitProducerId whoever asks. Raises TransactionRefused."""
    if not transactional_id or len(transactional_id.encode()) > MAX_TRANSACTIONAL_ID_BYTES:
        raise TransactionRefused(ErrorCode.invalid_request)
    if not 0 < timeout_ms <= limits.max_timeout_ms:
        raise TransactionRefused(ErrorCode.invalid_transaction_timeout)


def begin_producer(
    current: Transaction | None,
    timeout_ms: int,
    claimed: Producer,
    fresh_producer_id: int | None,
    now_ms: int,
) -> Transaction:
    """InitProducerId. In PREPARE_ABORT an open transaction must end first; then the same is to be asked again.

    `claimed` is who the client was before, where it says so. Raises TransactionRefused, NeedsProducerId.
    """
    if current is None:
        producer_id = _fresh(fresh_producer_id)
        return Transaction(producer_id, 0, timeout_ms, last_update_ms=now_ms)
    if claimed.is_named and not _is_or_was(current, claimed):
        raise TransactionRefused(ErrorCode.producer_fenced)
    if current.state in DECIDED:
        raise TransactionRefused(ErrorCode.concurrent_transactions)
    if current.state is ONGOING:
        if claimed.is_named and claimed.producer_epoch != current.producer_epoch:
            # Kafka aborts the transaction of whoever has the epoch now, and then refuses
            raise TransactionRefused(ErrorCode.producer_fenced)
        return fence(current, now_ms)
    changes: dict[str, Any] = {
        "timeout_ms": timeout_ms,
        "partitions": frozenset(),
        "start_ms": NO_TIME,
        "last_update_ms": now_ms,
        "next_producer_id": NO_PRODUCER_ID,
    }
    return _become(current, EMPTY, **changes, **_next_producer(current, claimed, fresh_producer_id))


def _is_or_was(current: Transaction, claimed: Producer) -> bool:
    """Whether the id is the present one, or the one before whose epochs were used up."""
    if claimed.producer_id == current.producer_id:
        return True
    return (
        claimed.producer_id == current.previous_producer_id and claimed.producer_epoch >= LAST_EPOCH_TO_BUMP
    )


def _next_producer(current: Transaction, claimed: Producer, fresh_producer_id: int | None) -> dict[str, int]:
    is_current = claimed.producer_epoch == current.producer_epoch
    if not claimed.is_named or is_current:
        last_producer_epoch = current.producer_epoch if claimed.is_named else NO_PRODUCER_EPOCH
        if current.producer_epoch >= LAST_EPOCH_TO_BUMP:
            return {
                "producer_id": _fresh(fresh_producer_id),
                "previous_producer_id": current.producer_id,
                "producer_epoch": 0,
                "last_producer_epoch": last_producer_epoch,
            }
        return {
            "producer_epoch": current.producer_epoch + 1,
            "last_producer_epoch": last_producer_epoch,
        }
    if claimed.producer_epoch == current.last_producer_epoch:
        return {}  # asked again: the answer was lost
    raise TransactionRefused(ErrorCode.producer_fenced)


def fence(current: Transaction, now_ms: int) -> Transaction:
    """Abort an open transaction over the head of its producer, who is fenced by the epoch of the markers."""
    return _become(
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
    """Have partitions take part; None when they do already. Raises TransactionRefused."""
    transaction = _checked(current, producer)
    begins = transaction.state in IDLE
    before = frozenset() if begins else transaction.partitions
    if not begins and partitions <= before:
        return None
    after = before | partitions
    if len(after) > max_partitions:
        raise TransactionRefused(ErrorCode.policy_violation)
    return _become(
        transaction,
        ONGOING,
        partitions=after,
        start_ms=now_ms if begins else transaction.start_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def check_partition(current: Transaction | None, producer: Producer, partition: TopicPartition) -> None:
    """Whether a partition takes part in the producer's present transaction. Raises TransactionRefused."""
    if partition not in _checked(current, producer).partitions:
        raise TransactionRefused(ErrorCode.transaction_abortable)


def _checked(current: Transaction | None, producer: Producer) -> Transaction:
    if current is None or current.producer_id != producer.producer_id:
        raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
    if current.producer_epoch != producer.producer_epoch:
        raise TransactionRefused(ErrorCode.producer_fenced)
    if current.state in DECIDED:
        raise TransactionRefused(ErrorCode.concurrent_transactions)
    return current


def end(
    current: Transaction | None, request: EndRequest, fresh_producer_id: int | None, now_ms: int
) -> Transaction | None:
    """EndTxn: the decided transaction, or None when it has ended so already.

    Raises TransactionRefused, NeedsProducerId.
    """
    if current is None:
        raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
    table = _end_table(current, request)
    outcome = table.get((current.state, request.commit), End.INVALID)
    if outcome is End.DONE:
        return None
    if outcome is End.BUSY:
        raise TransactionRefused(ErrorCode.concurrent_transactions)
    if outcome is End.INVALID:
        raise TransactionRefused(ErrorCode.invalid_txn_state)
    changes: dict[str, Any] = {"client_version": request.client_version, "last_update_ms": now_ms}
    if request.client_version >= VERSION_2:
        if current.producer_epoch >= LAST_EPOCH_TO_BUMP:
            changes["next_producer_id"] = _fresh(fresh_producer_id)
        changes["producer_epoch"] = min(current.producer_epoch + 1, MAX_EPOCH)
        changes["last_producer_epoch"] = current.producer_epoch
    if current.state is not ONGOING:  # nobody knows when one that wrote nothing began
        changes |= {"start_ms": now_ms, "partitions": frozenset()}
    return _become(current, PREPARE_COMMIT if request.commit is COMMIT else PREPARE_ABORT, **changes)


def _end_table(current: Transaction, request: EndRequest) -> dict[tuple[TransactionState, bool], End]:
    """What the end means, by whether it is asked for the first time. Raises TransactionRefused for a strange producer."""
    claimed = request.producer
    is_same_epoch = claimed.producer_epoch == current.producer_epoch
    if request.client_version < VERSION_2:
        if claimed.producer_id != current.producer_id:
            raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
        if not is_same_epoch:
            raise TransactionRefused(ErrorCode.producer_fenced)
        return END_V1
    is_after_overflow = (
        claimed.producer_id == current.previous_producer_id
        and claimed.producer_epoch == LAST_EPOCH_TO_BUMP
        and current.producer_epoch == 0
    )
    if claimed.producer_id != current.producer_id and not is_after_overflow:
        raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
    is_after_bump = claimed.producer_epoch + 1 == current.producer_epoch
    if is_after_bump and current.state not in {EMPTY, ONGOING}:
        return END_V2_AGAIN
    if is_after_overflow and current.state in COMPLETED.values():
        return END_V2_AGAIN
    if is_same_epoch and current.state not in DECIDED:
        return END_V2
    raise TransactionRefused(ErrorCode.producer_fenced)


def complete(current: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    changes: dict[str, Any] = {}
    if current.next_producer_id != NO_PRODUCER_ID:
        changes = {
            "producer_id": current.next_producer_id,
            "previous_producer_id": current.producer_id,
            "producer_epoch": 0,
            "next_producer_id": NO_PRODUCER_ID,
        }
    return _become(
        current, COMPLETED[current.state], partitions=frozenset(), last_update_ms=now_ms, **changes
    )


def raised_epoch(decided: Transaction) -> bool:
    """Whether the markers carry a newer epoch than what they end, so that what follows them can be told from it."""
    return decided.client_version >= VERSION_2 and decided.last_producer_epoch < decided.producer_epoch


def is_overdue(transaction: Transaction, now_ms: int, grace_ms: int = 0) -> bool:
    """Whether a transaction is open for longer than its producer asked for, and than `grace_ms` beyond that.

    One that begins in the future by more than that is overdue too: the clock was set back, and readers of committed
    records would wait for it until the clock has caught up.
    """
    allowed_ms = transaction.timeout_ms + grace_ms
    return transaction.state is ONGOING and abs(now_ms - transaction.start_ms) > allowed_ms


def is_expired(transaction: Transaction, expiration_ms: int, now_ms: int) -> bool:
    """Whether nobody has used a transactional id for so long that it is to be forgotten."""
    return transaction.state in IDLE and transaction.last_update_ms + expiration_ms <= now_ms


def _fresh(producer_id: int | None) -> int:
    if producer_id is None:
        raise NeedsProducerId
    return producer_id


def _become(current: Transaction, state: TransactionState, **changes: Any) -> Transaction:
    if current.state not in MAY_FOLLOW[state]:
        raise AssertionError(f"{state.text} can't follow {current.state.text}")
    return current._replace(state=state, **changes)


__all__ = [
    "ABORT",
    "COMMIT",
    "VERSION_2",
    "EndRequest",
    "NeedsProducerId",
    "Producer",
    "TransactionLimits",
    "TransactionRefused",
    "add_partitions",
    "begin_producer",
    "check_begin",
    "check_partition",
    "complete",
    "end",
    "fence",
    "is_expired",
    "is_overdue",
    "raised_epoch",
]
