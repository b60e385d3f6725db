"""The model of a producer's sender knows which refusals of a batch have a reason."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch_sender import BatchSender
from tests.simulation.clients.surroundings import ClusterOfGateways, Surroundings
from tests.simulation.history import History, Refused, TopicPartition

PLACE = TopicPartition("t", 0)
GATEWAYS = ClusterOfGateways((), lambda: False, 0.0, lambda _: None)
OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number


def sender_of(cluster: ClusterOfGateways | None) -> BatchSender:
    surroundings = Surroundings("nowhere", 9092, History(), lambda: 0, end_at=0.0, cluster=cluster)
    sender = BatchSender(surroundings, "p", Random(1), lambda *_: True)
    sender.become(7, 0)
    return sender


def refused(sender: BatchSender) -> list[bool]:
    """Return which of the refusals are explained."""
    events = sender._surroundings.history.events
    return [event.explained for event in events if isinstance(event, Refused)]


@pytest.mark.parametrize(("cluster", "explained"), [(GATEWAYS, True), (None, False)])
async def test_the_refusal_of_an_old_leader_may_come_after_the_new_one_has_the_batch_before(
    cluster: ClusterOfGateways | None, explained: bool
) -> None:
    sender = sender_of(cluster)
    for _ in range(2):
        sender.enqueue(PLACE, 3)
    (first,), (second,) = sender._drain([PLACE]), sender._drain([PLACE])

    sender._complete(first, SimpleNamespace(error_code=ErrorCode.none, base_offset=0))
    sender._complete(second, SimpleNamespace(error_code=OUT_OF_ORDER))

    assert refused(sender) == [explained]


async def test_a_batch_that_was_sent_behind_acknowledged_ones_must_be_taken() -> None:
    sender = sender_of(GATEWAYS)
    for _ in range(2):
        sender.enqueue(PLACE, 3)
        (batch,) = sender._drain([PLACE])
        sender._complete(batch, SimpleNamespace(error_code=ErrorCode.none, base_offset=0))
    sender.enqueue(PLACE, 3)
    (batch,) = sender._drain([PLACE])

    sender._complete(batch, SimpleNamespace(error_code=OUT_OF_ORDER))

    assert refused(sender) == [False]
