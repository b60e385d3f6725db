"""The high watermarks of partitions, also of those that other gateways lead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.brokers import NO_LEADER, Brokers

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S: Final = 5.0
"""Time for the answer of one gateway; the offsets that it leads stay unknown after it."""
PARTITIONS_PER_REQUEST: Final = 1_000
"""Partitions in one request to another gateway; the rest go with the next one."""
_LIST_OFFSETS: Final = 2
_VERSION: Final = 7
_LATEST: Final = -1
_NO_REPLICA: Final = -1
_READ_UNCOMMITTED: Final = 0


class LatestOffsets:
    def __init__(
        self, partitions: Partitions, image: MetadataImage, brokers: Brokers, peers: AsksPeers
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._brokers = brokers
        self._peers = peers

    async def of(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermarks of partitions that can be opened here, or whose leader answers."""
        found: dict[TopicPartition, int] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for place in places:
            partition = self._partitions.get(*place)
            if partition is not None:
                found[place] = partition.log.high_watermark
            elif (leader := self._leader_elsewhere(place)) is not None:
                elsewhere.setdefault(leader, []).append(place)
        if elsewhere:
            asked = [
                self._ask(leader, of_leader[start : start + PARTITIONS_PER_REQUEST])
                for leader, of_leader in elsewhere.items()
                for start in range(0, len(of_leader), PARTITIONS_PER_REQUEST)
            ]
            for some in await asyncio.gather(*asked):
                found |= some
        return found

    def _leader_elsewhere(self, place: TopicPartition) -> int | None:
        partition = self._image.partition_named(*place)
        if partition is None or self._brokers.leads(partition):
            return None
        leader = self._brokers.leader_of(partition)
        return None if leader == NO_LEADER else leader

    async def _ask(self, leader: int, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            request = list_offsets_request(((place, -1) for place in places), _LATEST)
            answer = await self._peers.ask(leader, request, timeout_s=ASK_TIMEOUT_S)
        except PeerUnavailable as error:
            logger.warning("the ends of %d partitions are unknown: %s", len(places), error)
            return {}
        return {
            (topic.name, row.partition_index): row.offset
            for topic in answer.topics
            for row in topic.partitions
            if not int(row.error_code) and row.offset >= 0
        }


def list_offsets_request(places: Iterable[tuple[TopicPartition, int]], timestamp: int) -> Any:
    """Return a ListOffsets for partitions, each with the leader epoch that its leader must have (-1: any)."""
    by_topic: dict[str, list[Any]] = {}
    for (name, index), leader_epoch in places:
        row = {"partition_index": index, "current_leader_epoch": leader_epoch, "timestamp": timestamp}
        by_topic.setdefault(name, []).append(row)
    return build_request(
        _LIST_OFFSETS,
        _VERSION,
        replica_id=_NO_REPLICA,
        isolation_level=_READ_UNCOMMITTED,
        topics=[{"name": name, "partitions": rows} for name, rows in by_topic.items()],
    )
