"""The model of a producer's queue knows which of its batches a broker may have forgotten."""

from __future__ import annotations

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.clients.partition_queue import PartitionQueue
from tests.simulation.history import TopicPartition

PLACE = TopicPartition("t", 0)


def test_batches_behind_one_are_counted_in_the_present_epoch() -> None:
    queue = PartitionQueue(PLACE)
    queue.start_at_beginning(7, 0)
    made = [ProducerBatch(PLACE, count, 0.0, "none", 0, (None,) * count) for count in (3, 1, 2)]
    for batch in made:
        queue.first_time(batch)
        queue.in_flight.append(batch)
    assert [batch.base_sequence for batch in made] == [0, 3, 4]
    assert [queue.sent_after(batch) for batch in made] == [2, 1, 0]
    queue.take_out(made[0])
    queue.start_at_beginning(7, 1)
    assert [batch.base_sequence for batch in made[1:]] == [0, 1]
    assert [queue.sent_after(batch) for batch in made[1:]] == [1, 0]
