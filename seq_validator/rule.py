"""The sequence rule for a known producer, and the rule of transaction markers, as pure functions.

The source is Kafka's `ProducerStateEntry.findDuplicateBatch` and `ProducerAppendInfo.checkProducerEpoch`,
`checkSequence` and `appendDataBatch` (4.3), written as one decision:

| candidate                                          | verdict                                  |
|----------------------------------------------------|------------------------------------------|
| same epoch, the next sequence                      | accepted                                 |
| same epoch, range equal to a retained batch's      | duplicate                                |
| same epoch, anything else                          | OUT_OF_ORDER_SEQUENCE                    |
| older epoch                                        | INVALID_PRODUCER_EPOCH                   |
| newer epoch, sequence 0                            | accepted                                 |
| newer epoch, another sequence                      | OUT_OF_ORDER_SEQUENCE                    |
| same epoch, the next sequence is unknown           | duplicate, or else OUT_OF_ORDER_SEQUENCE |
| entry without an epoch (-1)                        | duplicate, or else accepted, as in Kafka |
| batch without a sequence (a coordinator's)         | accepted, unless its epoch is older      |
| accepted by the lines above, but outside of the open transaction | INVALID_TXN_STATE          |

A marker is accepted unless its producer epoch or its coordinator epoch is older than the newest known one
(`ProducerAppendInfo.appendEndTxnMarker`). A marker of transaction version 2 that would end an open
transaction needs a newer producer epoch (`ProducerAppendInfo.checkProducerEpoch`).
"""

from __future__ import annotations

import enum
from typing import Final, final

import msgspec

from seqgate.seq_validator.entry import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    UNKNOWN_SEQUENCE,
    ProducerBatch,
    ProducerEntry,
    RetainedBatch,
)

TRANSACTION_VERSION_2: Final = 2
"""The first version of the transaction protocol in which every end raises the producer epoch (KIP-890)."""


@final
class Accepted:
    """The batch continues its producer's sequence and may be appended. The one instance is `ACCEPTED`."""

    __slots__ = ()


ACCEPTED: Final = Accepted()


@final
class Duplicate(msgspec.Struct, frozen=True):
    """The batch was appended before. The retry gets the answer of the original.

    `base_offset`, `last_offset` (inclusive) and `timestamp` are the original's. `timestamp` is the largest
    timestamp of its records in milliseconds, or the append time when the topic keeps LogAppendTime.
    """

    base_offset: int
    last_offset: int
    timestamp: int


class RejectionReason(enum.Enum):
    OUT_OF_ORDER_SEQUENCE = "out of order sequence"
    EARLIER_BATCH_REFUSED = "earlier batch refused"
    EARLIER_BATCHES_UNKNOWN = "earlier batches unknown"
    INVALID_PRODUCER_EPOCH = "invalid producer epoch"
    PRODUCER_LIMIT_REACHED = "producer limit reached"
    INVALID_TXN_STATE = "invalid transaction state"
    TRANSACTION_COORDINATOR_FENCED = "transaction coordinator fenced"


@final
class Rejected(msgspec.Struct, frozen=True):
    """The batch must not be appended. `message` is a sentence for the client and the log."""

    reason: RejectionReason
    message: str


Verdict = Accepted | Duplicate | Rejected


def judge_known(entry: ProducerEntry, batch: ProducerBatch) -> Verdict:
    """Decide whether `batch` may be appended, given the state in `entry`. Changes nothing."""
    verdict = _judge_sequence(entry, batch)
    if verdict is ACCEPTED and entry.has_open_transaction and not batch.is_transactional:
        return Rejected(
            RejectionReason.INVALID_TXN_STATE,
            f"Producer {batch.producer_id} has an open transaction from offset "
            f"{entry.current_transaction_first_offset} on, but sent a batch outside of the transaction.",
        )
    return verdict


def judge_marker(
    entry: ProducerEntry, producer_epoch: int, coordinator_epoch: int, transaction_version: int = 0
) -> Accepted | Rejected:
    """Decide whether a marker with these epochs may end the open transaction of `entry`. Changes nothing.

    The coordinator raises the epoch before it writes a marker of version 2. So such a marker with the epoch
    of an open transaction is a late one of the transaction before; without an open one it is repeated.
    """
    if producer_epoch < entry.producer_epoch:
        return _stale_epoch(entry, producer_epoch)
    is_late = entry.has_open_transaction and producer_epoch == entry.producer_epoch
    if is_late and transaction_version >= TRANSACTION_VERSION_2:
        return Rejected(
            RejectionReason.INVALID_PRODUCER_EPOCH,
            f"The marker for producer {entry.producer_id} has producer epoch {producer_epoch}, as the open "
            f"transaction in this partition has; with transaction version {transaction_version} the marker's "
            "epoch must be newer.",
        )
    if coordinator_epoch < entry.coordinator_epoch:
        return Rejected(
            RejectionReason.TRANSACTION_COORDINATOR_FENCED,
            f"The marker for producer {entry.producer_id} has coordinator epoch {coordinator_epoch}; the "
            f"newest coordinator epoch in this partition is {entry.coordinator_epoch}.",
        )
    return ACCEPTED


def _judge_sequence(entry: ProducerEntry, batch: ProducerBatch) -> Verdict:
    """Decide by producer epoch and sequence alone.

    Check "next in sequence" before "duplicate". Both can be true only when the retained batches span all
    2**31 sequences, and then the candidate is a new batch.
    """
    if batch.base_sequence == NO_SEQUENCE and batch.producer_epoch >= entry.producer_epoch:
        return ACCEPTED
    if batch.producer_epoch == entry.producer_epoch:
        if batch.base_sequence == entry.next_sequence:
            return ACCEPTED
        original = find_original(entry, batch)
        if original is not None:
            return Duplicate(original.base_offset, original.last_offset, original.timestamp)
        return ACCEPTED if entry.producer_epoch == NO_PRODUCER_EPOCH else _out_of_order(entry, batch)
    if batch.producer_epoch < entry.producer_epoch:
        return _stale_epoch(entry, batch.producer_epoch)
    if batch.base_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
        return Rejected(
            RejectionReason.OUT_OF_ORDER_SEQUENCE,
            f"Producer {batch.producer_id} began epoch {batch.producer_epoch} with sequence "
            f"{batch.base_sequence}; a new epoch must begin with sequence 0 "
            f"(current epoch: {entry.producer_epoch}).",
        )
    return ACCEPTED


def find_original(entry: ProducerEntry, batch: ProducerBatch) -> RetainedBatch | None:
    """Return the newest retained batch with exactly the sequences of `batch`, of the same epoch."""
    base_sequence = batch.base_sequence
    last_sequence = batch.last_sequence
    for retained in reversed(entry.batches):
        if retained.base_sequence == base_sequence and retained.last_sequence == last_sequence:
            return retained
    return None


def _stale_epoch(entry: ProducerEntry, producer_epoch: int) -> Rejected:
    return Rejected(
        RejectionReason.INVALID_PRODUCER_EPOCH,
        f"Producer {entry.producer_id} sent producer epoch {producer_epoch}, but its newest one in this "
        f"partition is {entry.producer_epoch}.",
    )


def _out_of_order(entry: ProducerEntry, batch: ProducerBatch) -> Rejected:
    if entry.next_sequence == UNKNOWN_SEQUENCE:
        return Rejected(
            RejectionReason.OUT_OF_ORDER_SEQUENCE,
            f"Producer {batch.producer_id} (epoch {batch.producer_epoch}) sent sequences "
            f"{batch.base_sequence} to {batch.last_sequence}; the next sequence is unknown, because a "
            "damaged batch of the partition may belong to this producer. Begin a new epoch with sequence 0.",
        )
    return Rejected(
        RejectionReason.OUT_OF_ORDER_SEQUENCE,
        f"Producer {batch.producer_id} (epoch {batch.producer_epoch}) sent sequences {batch.base_sequence} "
        f"to {batch.last_sequence}; expected sequence {entry.next_sequence}, and none of the last "
        f"{len(entry.batches)} batches has that range.",
    )
