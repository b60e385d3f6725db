"""Asks other gateways for the markers of a transaction in the partitions that they lead.

Source: Kafka's TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TopicName
from kio.static.primitive import i8, i16, i32

from gateway.coordinator.places import TopicPartition
from gateway.coordinator.transaction import rules
from gateway.coordinator.transaction.records import PREPARE_COMMIT, Transaction, by_topic
from gateway.peer.asking import AsksPeers
from gateway.peer.errors import PeerUnavailable

if TYPE_CHECKING:
    from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

logger = logging.getLogger(__name__)

_WRITTEN: Final = int(ErrorCode.none)
_HAS_A_LATER_ONE: Final = frozenset(
    (int(ErrorCode.invalid_producer_epoch), int(ErrorCode.transaction_coordinator_fenced))
)
"""Errors that say: the partition has a later marker, or a later transaction of the producer. This marker is not needed."""


class RemoteMarkers:
    """Writes markers by requests. One request has all partitions of a transaction that one gateway leads."""

    def __init__(self, peers: AsksPeers) -> None:
        self._peers = peers

    async def write(
        self, node_id: int, decided: Transaction, places: Sequence[TopicPartition], coordinator_epoch: int
    ) -> frozenset[TopicPartition]:
        """Ask a gateway for the markers; return the partitions that must be retried, there or at their next leader.

        A marker may arrive twice: the partition ignores the second one, because it has the same producer epoch as the first.
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


def marker_request(
    decided: Transaction, places: Sequence[TopicPartition], coordinator_epoch: int
) -> WriteTxnMarkersRequest:
    """Return the request for the markers of a decided transaction in these partitions."""
    from kio.schema.write_txn_markers.v2 import request as v2  # noqa: PLC0415 - only a gateway of several asks

    topics = tuple(
        v2.WritableTxnMarkerTopic(
            name=TopicName(name), partition_indexes=tuple(i32(index) for index in sorted(indexes))
        )
        for name, indexes in by_topic(places).items()
    )
    marker = v2.WritableTxnMarker(
        producer_id=ProducerId(decided.producer_id),
        producer_epoch=i16(decided.producer_epoch),
        transaction_result=decided.state is PREPARE_COMMIT,
        topics=topics,
        coordinator_epoch=i32(coordinator_epoch),
        # With a raised epoch, the leader refuses a marker that comes after the next transaction of the producer has begun.
        transaction_version=i8(rules.VERSION_2 if rules.raised_epoch(decided) else 0),
    )
    return v2.WriteTxnMarkersRequest(markers=(marker,))
