"""A producer that pipelines one sequence over two connections, so that its batches overtake each other.

No library does this, but any client may. The gateway must refuse a batch that arrives too early, store a
batch that arrives twice only once, and hold all records in order in the end. The producer never gives up a
batch. At most five batches of a partition lie between the oldest unacknowledged one and the newest, as many
as a broker remembers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import ProducerBatch
from tests.simulation.clients.batch_sender import KEYS
from tests.simulation.clients.connection import Disconnected
from tests.simulation.clients.error_codes import MOVED
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import Acknowledged, GotProducerId, RecordName, Refused, Sent, TopicPartition

WINDOW = 5
RETRY_S = 0.05
PRODUCE_VERSION, INIT_VERSION = 9, 4
OLD_MS = 12 * 3_600_000
"""Timestamps lie so far in the past that no clock jump moves them into the future."""


@dataclass
class Lane:
    """One partition's sequence.

    `window` has the batches from the oldest unacknowledged one on, and which of them are still
    unacknowledged.
    """

    place: TopicPartition
    next_sequence: int = 0
    window: dict[int, bool] = field(default_factory=dict)
    is_known: bool = False
    """Whether a batch was acknowledged. The gateway accepts any sequence as the first of an unknown producer,
    as Kafka does.
    """

    @property
    def has_room(self) -> bool:
        return len(self.window) < (WINDOW if self.is_known else 1)

    def is_first(self, sequence: int) -> bool:
        return next(iter(self.window), None) == sequence

    def acknowledge(self, sequence: int) -> None:
        self.is_known = True
        self.window[sequence] = False
        while self.window and not self.window[next(iter(self.window))]:
            del self.window[next(iter(self.window))]


class HastyProducer:
    def __init__(self, surroundings: Surroundings, name: str, random: Random, pause_s: float) -> None:
        self._surroundings = surroundings
        self._name = name
        self._random = random
        self._pause_s = pause_s
        self._links = [link_of(surroundings, f"{name}-{number}", random) for number in range(2)]
        self._producer_id = -1
        self._producer_epoch = -1
        self._lanes: dict[TopicPartition, Lane] = {}

    async def run(self) -> None:
        await self._get_producer_id()
        deliveries = []
        while not self._surroundings.ending:
            place = self._random.choice(self._surroundings.partitions())
            lane = self._lanes.setdefault(place, Lane(place))
            if lane.has_room:
                deliveries.append(asyncio.create_task(self._deliver(lane, self._next_batch(lane))))
            await self._surroundings.pause(self._random, self._pause_s)
        for delivery in deliveries:
            await delivery
        for link in self._links:
            link.close()

    async def _get_producer_id(self) -> None:
        request = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1}
        while self._producer_id < 0:
            asked_at_ms = self._surroundings.at_ms()
            try:
                answer = await self._links[0].call(
                    "init_producer_id", INIT_VERSION, request | {"producer_epoch": -1}
                )
            except Disconnected:
                continue
            if answer.error_code is not ErrorCode.none:
                await asyncio.sleep(RETRY_S)
                continue
            self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
            got = GotProducerId(
                self._surroundings.at_ms(),
                self._name,
                1,
                self._producer_id,
                self._producer_epoch,
                asked_at_ms=asked_at_ms,
            )
            self._surroundings.history.add(got)

    def _next_batch(self, lane: Lane) -> ProducerBatch:
        count = self._random.randint(1, 3)
        keys = tuple(self._random.choice(KEYS) for _ in range(count))
        timestamp_ms = self._surroundings.wall_ms() - OLD_MS
        batch = ProducerBatch(lane.place, count, self._surroundings.now(), "none", timestamp_ms, keys)
        batch.take_place(self._producer_id, self._producer_epoch, lane.next_sequence)
        number = self._surroundings.number_of(lane.place)
        batch.names = tuple(
            RecordName(self._name, 1, 0, number, lane.next_sequence + index) for index in range(count)
        )
        lane.next_sequence += count
        lane.window[batch.base_sequence] = True
        at_ms = self._surroundings.at_ms()
        for name, key in zip(batch.names, keys, strict=True):
            self._surroundings.history.add(Sent(at_ms, name, lane.place, key or b""))
        return batch

    async def _deliver(self, lane: Lane, batch: ProducerBatch) -> None:
        """Send a batch over either connection until it is acknowledged."""
        rows = [{"index": lane.place.partition, "records": batch.encode()}]
        topic = {"name": lane.place.topic, "partition_data": rows}
        request = {"transactional_id": None, "acks": batch.acks, "timeout": 30_000, "topic_data": [topic]}
        while True:
            link = self._random.choice(self._links)
            try:
                leader = next(iter(await link.by_leader([lane.place])), lane.place)
                await link.connect(leader)
                was_first = lane.is_first(batch.base_sequence)
                answer = await link.call("produce", PRODUCE_VERSION, request, to=leader)
            except Disconnected:
                continue
            row = answer.responses[0].partition_responses[0]
            if row.error_code is ErrorCode.none:
                self._acknowledge(lane, batch, row)
                return
            if row.error_code in MOVED:
                link.moved(lane.place)
            self._note(lane, batch, row.error_code, was_first=was_first)
            await asyncio.sleep(RETRY_S * self._random.uniform(0.2, 2.0))

    def _acknowledge(self, lane: Lane, batch: ProducerBatch, row: Any) -> None:
        lane.acknowledge(batch.base_sequence)
        at_ms = self._surroundings.at_ms()
        for index, name in enumerate(batch.names):
            self._surroundings.history.add(Acknowledged(at_ms, name, lane.place, row.base_offset + index))

    def _note(self, lane: Lane, batch: ProducerBatch, error: ErrorCode, *, was_first: bool) -> None:
        """Record an answer.

        "Out of order" is explained only if the batch was sent before all earlier ones were acknowledged.
        """
        if error is ErrorCode.out_of_order_sequence_number:
            refused = Refused(
                self._surroundings.at_ms(),
                self._name,
                1,
                lane.place,
                self._producer_id,
                self._producer_epoch,
                batch.base_sequence,
                error.name,
                explained=not was_first,
                first=batch.names[0],
            )
            self._surroundings.history.add(refused)
        elif error not in self._surroundings.faults:
            self._surroundings.unexpected(self._name, f"Produce to {lane.place}: {error.name}")
