"""The sequence rule for a known producer, as a pure function.

The source is Kafka's `ProducerStateEntry.findDuplicateBatch` and `ProducerAppendInfo.checkProducerEpoch` and
`checkSequence` (4.3), seen as one decision:

| candidate                                        | verdict                  |
|--------------------------------------------------|--------------------------|
| same epoch, the next sequence                    | accepted                 |
| same epoch, range equal to a retained batch's    | duplicate                |
| same epoch, anything else                        | OUT_OF_ORDER_SEQUENCE    |
| older epoch                                      | INVALID_PRODUCER_EPOCH   |
| newer epoch, sequence 0                          | accepted                 |
| newer epoch, another sequence                    | OUT_OF_ORDER_SEQUENCE    |
| entry without an epoch (-1)                      | as Kafka: not in order is no error, a duplicate is still one |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seq_validator.entry import NO_PRODUCER_EPOCH
from seq_validator.verdict import ACCEPTED, Duplicate, Rejected, RejectionReason

if TYPE_CHECKING:
    from seq_validator.entry import ProducerBatch, ProducerEntry, RetainedBatch
    from seq_validator.verdict import Verdict


def judge_known(entry: ProducerEntry, batch: ProducerBatch) -> Verdict:
    """Decide whether `batch` may be appended after what `entry` remembers. Changes nothing.

    "Next in sequence" is asked before "duplicate". Both can only hold at once when the retained batches span all
    2**31 sequences, and then the batch is the newer one.
    """
    if batch.producer_epoch == entry.producer_epoch:
        if batch.base_sequence == entry.next_sequence:
            return ACCEPTED
        original = find_original(entry, batch)
        if original is not None:
            return Duplicate(original.base_offset, original.last_offset, original.timestamp)
        return ACCEPTED if entry.producer_epoch == NO_PRODUCER_EPOCH else _out_of_order(entry, batch)
    if batch.producer_epoch < entry.producer_epoch:
        return Rejected(
            RejectionReason.INVALID_PRODUCER_EPOCH,
            f"Producer {batch.producer_id} sent epoch {batch.producer_epoch}, but its current epoch in this partition "
            f"is {entry.producer_epoch}.",
        )
    if batch.base_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
        return Rejected(
            RejectionReason.OUT_OF_ORDER_SEQUENCE,
            f"Producer {batch.producer_id} began epoch {batch.producer_epoch} with sequence {batch.base_sequence}; "
            f"a new epoch begins with sequence 0 (current epoch: {entry.producer_epoch}).",
        )
    return ACCEPTED


def find_original(entry: ProducerEntry, batch: ProducerBatch) -> RetainedBatch | None:
    """Return the newest retained batch with exactly the sequence range of `batch`, a batch of the entry's epoch."""
    base_sequence = batch.base_sequence
    last_sequence = batch.last_sequence
    for retained in reversed(entry.batches):
        if retained.base_sequence == base_sequence and retained.last_sequence == last_sequence:
            return retained
    return None


def _out_of_order(entry: ProducerEntry, batch: ProducerBatch) -> Rejected:
    return Rejected(
        RejectionReason.OUT_OF_ORDER_SEQUENCE,
        f"Producer {batch.producer_id} (epoch {batch.producer_epoch}) sent sequences {batch.base_sequence} to "
        f"{batch.last_sequence}; expected {entry.next_sequence}, and none of the last {len(entry.batches)} batches "
        "has that range.",
    )
