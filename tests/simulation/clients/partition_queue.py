"""One producer's batches of one partition, and its place in the sequence (TxnPartitionEntry and a deque of
RecordAccumulator).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.history import TopicPartition

NOTHING_ACKNOWLEDGED = -1


@dataclass
class PartitionQueue:
    """The batches of a partition.

    `waiting`: batches to send, retries first. `in_flight`: batches with a sequence and no final answer, in
    sequence order.
    """

    partition: TopicPartition
    producer_id: int = -1
    producer_epoch: int = -1
    next_sequence: int = 0
    last_acked_sequence: int = NOTHING_ACKNOWLEDGED
    unresolved_sequence: int | None = None
    bump_wanted: bool = False
    next_number: int = 0
    waiting: deque[ProducerBatch] = field(default_factory=deque)
    in_flight: list[ProducerBatch] = field(default_factory=list)
    sent_sequences: list[int] = field(default_factory=list)
    """The first sequences of all batches of the present producer epoch."""

    @property
    def is_settled(self) -> bool:
        return not self.waiting and not self.in_flight

    @property
    def is_answered(self) -> bool:
        """Return whether all requests with a batch of this partition are answered or can no longer be
        answered.
        """
        return not any(batch.in_request for batch in self.in_flight)

    def is_next(self, sequence: int) -> bool:
        return sequence - self.last_acked_sequence == 1

    def first_time(self, batch: ProducerBatch) -> None:
        """Give a batch its sequence."""
        batch.take_place(self.producer_id, self.producer_epoch, self.next_sequence)
        self.sent_sequences.append(self.next_sequence)
        self.next_sequence += batch.record_count

    def sent_after(self, batch: ProducerBatch) -> int:
        """Return how many batches were sent behind this one."""
        return len(self.sent_sequences) - bisect_right(self.sent_sequences, batch.base_sequence)

    def start_at_beginning(self, producer_id: int, producer_epoch: int) -> None:
        """Give the in-flight batches, in their order, the first sequences of the new producer epoch."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.last_acked_sequence = NOTHING_ACKNOWLEDGED
        self.unresolved_sequence = None
        self.bump_wanted = False
        self.next_sequence = 0
        self.sent_sequences.clear()
        for batch in self.in_flight:
            self.first_time(batch)
            batch.sequence_was_reset = True

    def enqueue_again(self, batch: ProducerBatch) -> None:
        """Queue a batch again, in sequence order, ahead of all batches without a sequence."""
        earlier = []
        while self.waiting and self.waiting[0].has_sequence:
            if self.waiting[0].base_sequence > batch.base_sequence:
                break
            earlier.append(self.waiting.popleft())
        self.waiting.appendleft(batch)
        self.waiting.extendleft(reversed(earlier))

    def split(self, batch: ProducerBatch) -> None:
        """Queue the halves of a batch in its place (RecordAccumulator.splitAndReenqueue)."""
        halves = batch.halves()
        place = self.in_flight.index(batch)
        self.in_flight[place : place + 1] = halves
        batch.done = True
        insort(self.sent_sequences, halves[1].base_sequence)
        for half in halves:
            self.enqueue_again(half)

    def take_out(self, batch: ProducerBatch) -> None:
        batch.done = True
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        if batch in self.waiting:
            self.waiting.remove(batch)

    def mark_unresolved(self, batch: ProducerBatch) -> None:
        following = batch.last_sequence + 1
        self.unresolved_sequence = max(self.unresolved_sequence or 0, following)

    def next_to_send(self, producer_id: int, producer_epoch: int, now: float) -> ProducerBatch | None:
        """Return the batch that may be sent now, if any
        (RecordAccumulator.shouldStopDrainBatchesForPartition).
        """
        if not self.waiting or self.bump_wanted:
            return None
        first = self.waiting[0]
        if first.retry_at > now:
            return None
        if first.has_sequence:
            return first if first is self.in_flight[0] else None
        stale = (self.producer_id, self.producer_epoch) != (producer_id, producer_epoch)
        if (self.in_flight and stale) or self.unresolved_sequence is not None:
            return None
        return first
