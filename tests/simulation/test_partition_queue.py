"""The model of a producer's queue splits large batches, and knows which batches a broker may have forgotten."""

from __future__ import annotations

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.clients.partition_queue import PartitionQueue
from tests.simulation.history import RecordName, TopicPartition

PLACE = TopicPartition("t", 0)


def queue_of(*counts: int) -> PartitionQueue:
    """Return a queue whose batches of so many records are in flight."""
    queue = PartitionQueue(PLACE)
    queue.start_at_beginning(7, 0)
    for count in counts:
        batch = ProducerBatch(PLACE, count, 0.0, "none", 0, (None,) * count)
        queue.first_time(batch)
        batch.names = tuple(RecordName("p", 0, 0, 0, batch.base_sequence + index) for index in range(count))
        queue.in_flight.append(batch)
    return queue


def test_batches_behind_one_are_counted_in_the_present_epoch() -> None:
    queue = queue_of(3, 1, 2)
    made = list(queue.in_flight)
    assert [batch.base_sequence for batch in made] == [0, 3, 4]
    assert [queue.sent_after(batch) for batch in made] == [2, 1, 0]
    queue.take_out(made[0])
    queue.start_at_beginning(7, 1)
    assert [batch.base_sequence for batch in made[1:]] == [0, 1]
    assert [queue.sent_after(batch) for batch in made[1:]] == [1, 0]


def test_the_halves_of_a_batch_are_sent_in_its_place() -> None:
    queue = queue_of(5, 2)
    large, later = queue.in_flight
    queue.enqueue_again(later)
    queue.split(large)
    first, second, last = queue.in_flight
    assert list(queue.waiting) == [first, second, last] == [first, second, later]
    assert large.done
    assert [(half.base_sequence, half.record_count) for half in (first, second)] == [(0, 2), (2, 3)]
    assert first.names + second.names == large.names
    assert queue.sent_after(first) == 2
