"""Writes the markers that end a transaction into each of its partitions.

All markers are appended in one turn of the event loop and share a flush. A partition that can't be written delays only its own
transactions: the write is retried at growing intervals. A deleted partition needs no marker.
Source: Kafka's `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transaction import rules
from gateway.coordinator.transaction.records import Transaction
from gateway.coordinator.transaction.rules import Producer
from gateway.coordinator.transaction.states import PREPARE_COMMIT
from gateway.metadata.image import MetadataImage
from gateway.runtime.loop.clock import Clock
from gateway.runtime.partitions.partition import Partition
from gateway.runtime.partitions.registry import Partitions
from log import InvalidProducerEpoch, LogError, TransactionCoordinatorFenced

logger = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 0.05
LAST_RETRY_S: Final = 5.0

MarkerListener = Callable[[Partition, Producer, bool], None]
"""Called for each appended marker, before the marker is durable: with its partition, its producer, and whether it
commits.
"""


class TransactionMarkers:
    """Appends markers and waits until they are durable."""

    def __init__(self, clock: Clock, partitions: Partitions, image: MetadataImage) -> None:
        self._clock = clock
        self._partitions = partitions
        self._image = image
        self.listeners: list[MarkerListener] = []

    def append(
        self, partition: Partition, producer: Producer, *, commit: bool, coordinator_epoch: int
    ) -> int:
        """Append one marker; return its offset. Raises LogError."""
        info = partition.append_end_marker(
            *producer, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=self._clock.now_ms()
        )
        for listener in self.listeners:
            listener(partition, producer, commit)
        return info.last_offset

    async def write(self, decided: Transaction, coordinator_epoch: int) -> None:
        """Write the markers of a decided transaction; return when all are durable."""
        due = decided.partitions
        delay_s = FIRST_RETRY_S
        while True:
            due = await self._write_once(decided, due, coordinator_epoch)
            if not due:
                return
            logger.warning(
                "the end of a transaction of producer %d is not written to %d partitions yet, among them %s-%d",
                decided.producer_id,
                len(due),
                *min(due),
            )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_RETRY_S)

    async def _write_once(
        self, decided: Transaction, due: Iterable[TopicPartition], coordinator_epoch: int
    ) -> frozenset[TopicPartition]:
        """Write all markers that can be written; return the partitions that must be retried."""
        written: list[tuple[TopicPartition, Partition, int]] = []
        left = set()
        for place in sorted(due):
            partition = self._partitions.get(*place)
            if partition is None or partition.closed:
                if self._exists(place):
                    left.add(place)
                continue
            try:
                offset = self._append_unless_ended(partition, decided, coordinator_epoch)
            except LogError as error:
                logger.warning("the marker of a transaction could not be written to %s-%d: %s", *place, error)
                left.add(place)
                continue
            if offset is not None:
                written.append((place, partition, offset))
        for place, partition, offset in written:
            if not await partition.persisted(offset):
                left.add(place)
        return frozenset(left)

    def _exists(self, place: TopicPartition) -> bool:
        topic = self._image.topics_by_name.get(place[0])
        return topic is not None and place[1] in topic.partitions

    def _append_unless_ended(
        self, partition: Partition, decided: Transaction, coordinator_epoch: int
    ) -> int | None:
        producer = Producer(decided.producer_id, decided.producer_epoch)
        found = partition.log.transactions.open_transaction(decided.producer_id)
        if (
            rules.raised_epoch(decided)
            and found is not None
            and found.producer_epoch == producer.producer_epoch
        ):
            # The marker was written before a crash. Since then the producer has begun another transaction in this partition.
            return None
        try:
            return self.append(
                partition,
                producer,
                commit=decided.state is PREPARE_COMMIT,
                coordinator_epoch=coordinator_epoch,
            )
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            logger.warning(
                "no transaction marker is written to partition %s-%d, because it has a later marker of the producer: %s",
                partition.topic,
                partition.index,
                error,
            )
            return None
