"""The rule for the batches behind a refused one: no later batch of its producer is stored before it.

A partition accepts any first sequence of a producer that it does not know (Kafka 4, KIP-360), because that
producer may have been forgotten. An idempotent producer has up to five requests in flight. So after a refusal
of its first batch the second one would be stored, and the first one, sent again, would be out of order for
ever. Apache Kafka has this gap up to 4.4. Seqgate closes it, once a batch of the producer and epoch was
refused on the connection:

| batch behind the refused one                   | verdict                               |
|------------------------------------------------|---------------------------------------|
| of an unknown producer                         | EARLIER_BATCH_REFUSED                 |
| of a known producer, with a gap before it      | EARLIER_BATCH_REFUSED                 |
| the refused one itself, or one from before it  | as for any batch of the producer      |

That error is retriable. Kafka answers the gap of a known producer with OUT_OF_ORDER_SEQUENCE. librdkafka then
begins a new epoch for all of its partitions, and sends again under that what another partition has stored and
not acknowledged yet, so that it is stored twice (`rd_kafka_idemp_drain_epoch_bump`).

Only a refused batch that its producer sends again is remembered: `refuse` is called for it, `give_up` for a
batch that the producer gives up, and `forget` for a stored one. Whoever connects anew sends its batches in
order again. So what is remembered belongs to one connection, and to the batches that came over it and still
wait when it closes.

A producer may give up a batch after retries, without telling the gateway. So `pass_over` counts the later
batches that were refused; after LATER_BATCHES of them nothing else was in flight, and the batch is forgotten.

Two kinds of refusals don't say whose batch they concern: those by the leader before, where a gateway has just
begun to lead a partition, and that of a batch whose checksum is wrong, because its producer may be the
damaged field (`refuse_unreadable`). Then a batch that is not the first of an unknown producer must come
twice: the first attempt is refused, and remembered like any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from seqgate.seq_validator.entry import MAX_SEQUENCE, ProducerBatch
from seqgate.seq_validator.rule import Rejected, RejectionReason

LATER_BATCHES: Final = 4
"""The later batches that are refused behind a refused one. An idempotent producer has at most five batches in
flight, the refused one among them (Kafka's `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`). After these the
refused batch is forgotten.
"""
_HALF_OF_SEQUENCES: Final = 2**30
_ANY_PRODUCER: Final = -1
"""Stands for the producer of a refused batch that can't be read."""


class RefusalLimit:
    """The number of refused batches that all connections of a gateway remember, and its maximum.

    At the maximum a connection forgets its oldest refused batch for a new one, and keeps at least one. So no
    connection can make another one forget.
    """

    __slots__ = ("max_remembered", "remembered")

    def __init__(self, max_remembered: int) -> None:
        """Begin without refused batches. Raises ValueError when the maximum is below 1."""
        if max_remembered < 1:
            raise ValueError(f"max_remembered must be at least 1, not {max_remembered}")
        self.max_remembered = max_remembered
        self.remembered = 0


class _Refused:
    """The earliest refused batch of a producer; `left` later batches may still be refused behind it."""

    __slots__ = ("base_sequence", "left", "producer_epoch")

    def __init__(self, producer_epoch: int, base_sequence: int) -> None:
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.left = LATER_BATCHES

    def is_before(self, batch: ProducerBatch) -> bool:
        """Return whether a batch of the same producer comes later in the same epoch."""
        return self.producer_epoch == batch.producer_epoch and _is_after(
            batch.base_sequence, self.base_sequence
        )

    def is_behind(self, batch: ProducerBatch) -> bool:
        """Return whether a batch of the same producer comes earlier in the same epoch."""
        return self.producer_epoch == batch.producer_epoch and _is_after(
            self.base_sequence, batch.base_sequence
        )


class RefusedBatches:
    """The refused batches of one connection that their producers send again, by partition and producer. A
    partition is named by any hashable value, the same one in all calls.
    """

    __slots__ = ("_limit", "_refused")

    def __init__(self, limit: RefusalLimit) -> None:
        """Begin without refused batches; they count towards `limit`."""
        self._limit = limit
        self._refused: OrderedDict[tuple[Hashable, int], _Refused] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, partition: Hashable, batch: ProducerBatch) -> None:
        """Remember a refused batch, unless an earlier one of its epoch, or a newer epoch's, is remembered."""
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return
        known = self._refused.get((partition, batch.producer_id))
        is_newer_known = known is not None and batch.producer_epoch < known.producer_epoch
        if is_newer_known or self.precedes(partition, batch):
            return
        self._remember((partition, batch.producer_id), _Refused(batch.producer_epoch, batch.base_sequence))

    def refuse_unreadable(self, partition: Hashable) -> None:
        """Remember a refused batch of an unknown producer, until a batch of the partition is stored."""
        self._remember((partition, _ANY_PRODUCER), _Refused(_ANY_PRODUCER, _ANY_PRODUCER))

    def has_unreadable(self, partition: Hashable) -> bool:
        """Return whether a batch of the partition was refused whose producer is not known."""
        return (partition, _ANY_PRODUCER) in self._refused

    def _remember(self, key: tuple[Hashable, int], refused: _Refused) -> None:
        if key in self._refused:
            self._drop(key)
        elif self._refused and self._limit.remembered >= self._limit.max_remembered:
            self._drop(next(iter(self._refused)))
        self._refused[key] = refused
        self._limit.remembered += 1

    def precedes(self, partition: Hashable, batch: ProducerBatch) -> bool:
        """Return whether an earlier batch of the same producer and epoch was refused."""
        known = self._refused.get((partition, batch.producer_id))
        return known is not None and known.is_before(batch)

    def was_refused(self, partition: Hashable, batch: ProducerBatch) -> bool:
        """Return whether the batch, or an earlier one of the same producer and epoch, was refused."""
        known = self._refused.get((partition, batch.producer_id))
        if known is None or known.producer_epoch != batch.producer_epoch:
            return False
        return not known.is_behind(batch)

    def pass_over(self, partition: Hashable, batch: ProducerBatch) -> None:
        """Count a later batch refused because of an earlier one, which is forgotten after LATER_BATCHES."""
        if self.precedes(partition, batch):
            key = partition, batch.producer_id
            self._refused[key].left -= 1
            if not self._refused[key].left:
                self._drop(key)

    def give_up(self, partition: Hashable, batch: ProducerBatch) -> None:
        """Forget a refused batch that its producer will not send again; keep an earlier one."""
        key = partition, batch.producer_id
        if key in self._refused and not self.precedes(partition, batch):
            self._drop(key)

    def forget(self, partition: Hashable, batch: ProducerBatch) -> None:
        """Forget the refused batch of the producer of `batch`, which was stored: it was that, or its producer
        goes on without it. One behind `batch` is still awaited. If a batch of the partition could not be
        read, this was it: also forget what its header seemed to say.
        """
        key = partition, batch.producer_id
        if self.has_unreadable(partition):
            for found in [found for found in self._refused if found[0] == partition]:
                self._drop(found)
        elif key in self._refused and not self._refused[key].is_behind(batch):
            self._drop(key)

    def close(self) -> None:
        """Count towards the limit no more: the connection is closed. Nothing is forgotten, because batches
        that came over it before may still wait, for a thread or for room.
        """
        self._limit.remembered -= len(self._refused)
        self._limit = RefusalLimit(self._limit.max_remembered)
        self._limit.remembered = len(self._refused)

    def _drop(self, key: tuple[Hashable, int]) -> None:
        del self._refused[key]
        self._limit.remembered -= 1


class RefusedBefore(NamedTuple):
    """The earlier refused batches when a candidate is judged; `refused` is None if there are none."""

    partition: Hashable
    refused: RefusedBatches | None
    must_come_twice: bool = False
    """Whether a batch that is not the first of an unknown producer is refused at the first attempt."""

    def rejection_behind(self, batch: ProducerBatch) -> Rejected | None:
        """Return why a batch that leaves a gap must wait for an earlier one; None if none was refused."""
        if self.refused is None or not self.refused.precedes(self.partition, batch):
            return None
        return Rejected(
            RejectionReason.EARLIER_BATCH_REFUSED,
            f"Producer {batch.producer_id} sent sequence {batch.base_sequence} behind an earlier batch "
            "that was refused; it must send the earlier batch again first.",
        )

    def rejection(self, batch: ProducerBatch) -> Rejected | None:
        """Return why a batch of an unknown producer must not be stored; None if it may be."""
        refused = self.refused
        behind = self.rejection_behind(batch)
        if behind is not None:
            return behind
        must_come_twice = self.must_come_twice or (
            refused is not None and refused.has_unreadable(self.partition)
        )
        if not must_come_twice or batch.base_sequence <= 0:
            return None
        if refused is not None and refused.was_refused(self.partition, batch):
            return None
        return Rejected(
            RejectionReason.EARLIER_BATCHES_UNKNOWN,
            f"Batches of producer {batch.producer_id} before sequence {batch.base_sequence} may have been "
            "refused by an earlier leader, or with a wrong checksum. Send the batch again.",
        )


def _is_after(sequence: int, other: int) -> bool:
    """Return whether a sequence follows another one; sequences wrap from 2**31 - 1 to 0."""
    return 0 < (sequence - other) & MAX_SEQUENCE < _HALF_OF_SEQUENCES
