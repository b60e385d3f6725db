"""The markers that end a transaction, written into each of its partitions, here or by their leaders.

All markers are appended in one turn of the event loop and share a flush. `RemoteMarkers` asks other gateways
for the markers in partitions that they lead. A partition that can't be written delays only its own
transactions: the write is retried at growing intervals, and when the metadata changes, at the partition's
leader of that moment. A deleted partition needs no marker. Source: Kafka's `TransactionMarkerChannelManager`,
`TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.places import TopicPartition, by_topic
from seqgate.gateway.coordinator.transaction import rules
from seqgate.gateway.coordinator.transaction.records import PREPARE_COMMIT, Transaction
from seqgate.gateway.coordinator.transaction.rules import Producer
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.brokers import NO_LEADER, Brokers
from seqgate.log import InvalidProducerEpoch, LogError, TransactionCoordinatorFenced

logger = logging.getLogger(__name__)

_WRITE_TXN_MARKERS: Final = 27
FIRST_RETRY_S: Final = 0.05
LAST_RETRY_S: Final = 5.0

MarkerListener = Callable[[Partition, Producer, bool], None]
"""Called for each appended marker before it is durable: with partition, producer, and whether it commits."""


class TransactionMarkers:
    """Appends markers and waits until they are durable."""

    def __init__(
        self, clock: Clock, partitions: Partitions, image: MetadataImage, brokers: Brokers, peers: AsksPeers
    ) -> None:
        self._clock = clock
        self._partitions = partitions
        self._image = image
        self._brokers = brokers
        self._elsewhere = RemoteMarkers(peers)
        self._changed = asyncio.Event()
        """Set when the metadata changes, and replaced then."""
        self.listeners: list[MarkerListener] = []

    async def metadata_changed(self, records: Sequence[object]) -> None:  # noqa: ARG002 - a listener
        """Retry at once what waits for a leader."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def append(
        self,
        partition: Partition,
        producer: Producer,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> int:
        """Append one marker; return its offset. Raises LogError."""
        info = partition.append_end_marker(
            *producer,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._clock.now_ms(),
            transaction_version=transaction_version,
        )
        for listener in self.listeners:
            listener(partition, producer, commit)
        return info.last_offset

    async def write(self, decided: Transaction, coordinator_epoch: int) -> None:
        """Write the markers of a decided transaction; return when all are durable."""
        due = decided.partitions
        delay_s = FIRST_RETRY_S
        while True:
            try:
                due = await self._write_once(decided, due, coordinator_epoch)
            except Exception:  # nothing else would end the transaction until the next start
                logger.exception("the markers of producer %d can't be written", decided.producer_id)
            if not due:
                return
            logger.warning(
                "the end of a transaction of producer %d is not written to %d partitions yet, among them "
                "%s-%d",
                decided.producer_id,
                len(due),
                *min(due),
            )
            await self._pause(delay_s)
            delay_s = min(2 * delay_s, LAST_RETRY_S)

    async def _pause(self, delay_s: float) -> None:
        """Wait until the next attempt: FIRST_RETRY_S to `delay_s`, less when the metadata changes."""
        changed = self._changed
        await asyncio.sleep(FIRST_RETRY_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), delay_s - FIRST_RETRY_S)

    async def _write_once(
        self, decided: Transaction, due: Iterable[TopicPartition], coordinator_epoch: int
    ) -> frozenset[TopicPartition]:
        """Write all markers that can be written; return the partitions that must be retried."""
        written: list[tuple[TopicPartition, Partition, int]] = []
        left = set()
        elsewhere: dict[int, list[TopicPartition]] = {}
        for place in sorted(due):
            partition = self._partitions.get(*place)
            if partition is None or partition.closed:
                leader = self._leader_of(place)
                if leader in {NO_LEADER, self._brokers.node_id}:
                    left.add(place)
                elif leader is not None:
                    elsewhere.setdefault(leader, []).append(place)
                continue
            try:
                offset = self._append_unless_ended(partition, decided, coordinator_epoch)
            except LogError as error:
                logger.warning("the marker of a transaction could not be written to %s-%d: %s", *place, error)
                left.add(place)
                continue
            if offset is not None:
                written.append((place, partition, offset))
        asked = [
            asyncio.ensure_future(self._elsewhere.write(leader, decided, places, coordinator_epoch))
            for leader, places in elsewhere.items()
        ]
        try:
            for place, partition, offset in written:
                if not await partition.persisted(offset):
                    left.add(place)
            for answer in asked:
                left |= await answer
        finally:
            for answer in asked:
                answer.cancel()
        return frozenset(left)

    def _leader_of(self, place: TopicPartition) -> int | None:
        """Return the node id of a partition's leader, or NO_LEADER; None for an unknown partition."""
        partition = self._image.partition_named(*place)
        return None if partition is None else self._brokers.leader_of(partition)

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
            # The marker was written before a crash. Since then the producer has begun another transaction in
            # this partition.
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
                "no transaction marker is written to partition %s-%d, because it has a later marker of the "
                "producer: %s",
                partition.topic,
                partition.index,
                error,
            )
            return None


_WRITTEN: Final = int(ErrorCode.none)
_HAS_A_LATER_ONE: Final = frozenset(
    (int(ErrorCode.invalid_producer_epoch), int(ErrorCode.transaction_coordinator_fenced))
)
"""Errors that say: the partition has a later marker or transaction of the producer. Skip this marker."""


class RemoteMarkers:
    """Writes markers by requests. One request has all partitions of a transaction that one gateway leads."""

    def __init__(self, peers: AsksPeers) -> None:
        self._peers = peers

    async def write(
        self, node_id: int, decided: Transaction, places: Sequence[TopicPartition], coordinator_epoch: int
    ) -> frozenset[TopicPartition]:
        """Ask a gateway for the markers; return the partitions that must be retried, there or at their next
        leader. A marker may arrive twice: the partition ignores the second one, because it has the same
        producer epoch as the first.
        """
        request = marker_request(decided, places, coordinator_epoch)
        try:
            answer = await self._peers.ask(node_id, request)
        except PeerUnavailable as error:
            logger.warning(
                "the markers of producer %d for %d partitions are not written yet: %s",
                decided.producer_id,
                len(places),
                error,
            )
            return frozenset(places)
        codes = {
            (topic.name, row.partition_index): row.error_code
            for marker in answer.markers
            for topic in marker.topics
            for row in topic.partitions
        }
        return frozenset(place for place in places if _must_retry(node_id, decided, place, codes.get(place)))


def _must_retry(node_id: int, decided: Transaction, place: TopicPartition, code: int | None) -> bool:
    if code == _WRITTEN:
        return False
    name = "NO ANSWER" if code is None else ErrorCode(code).name.upper()
    if code in _HAS_A_LATER_ONE:
        logger.warning(
            "broker %d writes no marker of producer %d to %s-%d, because it has a later one: %s",
            node_id,
            decided.producer_id,
            *place,
            name,
        )
        return False
    logger.warning(
        "broker %d did not write a marker of producer %d to %s-%d: %s",
        node_id,
        decided.producer_id,
        *place,
        name,
    )
    return True


def marker_request(decided: Transaction, places: Sequence[TopicPartition], coordinator_epoch: int) -> Any:
    """Return the request for the markers of a decided transaction in these partitions."""
    topics = by_topic(places).items()
    marker = {
        "producer_id": decided.producer_id,
        "producer_epoch": decided.producer_epoch,
        "transaction_result": decided.state is PREPARE_COMMIT,
        "topics": [{"name": name, "partition_indexes": tuple(indexes)} for name, indexes in topics],
        "coordinator_epoch": coordinator_epoch,
        # With a raised epoch, the leader refuses a marker that comes after the next transaction of the
        # producer has begun.
        "transaction_version": rules.VERSION_2 if rules.raised_epoch(decided) else 0,
    }
    return build_request(_WRITE_TXN_MARKERS, 2, markers=[marker])
