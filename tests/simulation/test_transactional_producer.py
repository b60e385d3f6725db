"""The model of a transactional producer aborts where Apache Kafka's producer does."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from tests.simulation.clients import transactional_producer
from tests.simulation.clients.surroundings import Surroundings, Topic
from tests.simulation.clients.transactional_producer import TransactionalProducer, TransactionHabits
from tests.simulation.history import Acknowledged, History, TransactionEnding

HABITS = TransactionHabits(
    pause_s=0.001, max_batches=1, commit_chance=1.0, death_chance=0.0, offsets_chance=0.0
)
DONE = SimpleNamespace(error_code=ErrorCode.none, producer_id=7, producer_epoch=0)
ADDED = SimpleNamespace(partition_error_code=ErrorCode.none)
ANSWERS = {
    "add_partitions_to_txn": SimpleNamespace(
        results_by_topic_v3_and_below=(SimpleNamespace(results_by_partition=(ADDED,)),)
    )
}


class CoordinatorOnly:
    """A link that reaches the coordinator, and no leader: batches stay unsent. The run is over with the first
    end.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    async def connect(self, to: object = None) -> None:
        return

    async def call(self, api: str, *_: object, **__: object) -> SimpleNamespace:
        if api == "end_txn":
            self._surroundings.end_at = self._surroundings.now()
        return ANSWERS.get(api, DONE)

    def lanes(self, *_: object) -> list[object]:
        return []

    def close(self) -> None:
        return


@pytest.mark.parametrize("seed", [0, 1])  # one of these speaks the second part of KIP-890
async def test_a_transaction_whose_batch_expired_unsent_is_aborted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.get_running_loop().time() + 3600
    surroundings = Surroundings("nowhere", 9092, History(), lambda: 0, end_at=never)
    surroundings.topics["t"] = Topic("t", "", partitions=1)
    monkeypatch.setattr(transactional_producer, "link_of", lambda where, *_: CoordinatorOnly(where))
    producer = TransactionalProducer(surroundings, "p", Random(seed), "id", HABITS)
    producer.sender.delivery_timeout_s = 0.01

    await producer.run()

    ends = [event for event in surroundings.history.events if isinstance(event, TransactionEnding)]
    assert [end.commit for end in ends] == [False]
    assert not any(isinstance(event, Acknowledged) for event in surroundings.history.events)
