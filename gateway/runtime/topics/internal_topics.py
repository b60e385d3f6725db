"""Creates the topics in which coordinators store their state, when they are first needed."""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Final

from gateway.metadata.image import TRANSACTION_STATE_TOPIC, MetadataImage
from gateway.metadata.java_hash_map import string_hash
from gateway.metadata.topics import create_internal_topic
from gateway.metadata.users import Decision
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.topics.brokers import NO_LEADER, Brokers
from gateway.runtime.topics.metadata_log import MetadataLog

HASHES_IN_CACHE: Final = 4096
"""Group ids and transactional ids whose hash is kept; the least recently used one makes room for the next."""


java_hash = lru_cache(maxsize=HASHES_IN_CACHE)(string_hash)
"""Java's String.hashCode, by which Kafka spreads groups and transactional ids over partitions."""


class InternalTopics:
    """Creates internal topics, as Kafka's AutoTopicCreationManager does."""

    def __init__(
        self, metadata_log: MetadataLog, partitions: Partitions, brokers: Brokers, node_id: int
    ) -> None:
        self._metadata_log = metadata_log
        self._partitions = partitions
        self._brokers = brokers
        self._node_id = node_id
        self._spread: dict[str, tuple[uuid.UUID, int]] = {}

    def index_for(self, name: str, text: str) -> int | None:
        """Return the partition of a topic that stores the state of the group or id `text`; None while there is no such topic.

        The number of partitions is taken from the metadata at the first call. Partitions added later do not count.
        Otherwise state would be looked up in other partitions than those that store it.
        """
        topic = self._metadata_log.image.topics_by_name.get(name)
        if topic is None or not topic.partitions:
            return None
        known = self._spread.get(name)
        if known is None or (known[0] is not topic.topic_id and known[0] != topic.topic_id):
            known = self._spread[name] = topic.topic_id, len(topic.partitions)
        return (java_hash(text) & 0x7FFFFFFF) % known[1]

    def leader_for(self, name: str, text: str) -> int:
        """Return the node id of the gateway that stores the state of the group or id `text`; -1 while there is none."""
        index = self.index_for(name, text)
        if index is None:
            return NO_LEADER
        return self._brokers.leader_of(self._metadata_log.image.topics_by_name[name].partitions[index])

    def is_elsewhere(self, name: str, text: str) -> bool:
        """Return whether another gateway stores the state of the group or id `text`; False while no live gateway does."""
        if self._brokers.is_alone:
            return False
        return self.leader_for(name, text) not in {self._node_id, NO_LEADER}

    def leads_all(self, name: str) -> bool:
        """Return whether this gateway leads every partition of a topic; True while there is no such topic."""
        topic = self._metadata_log.image.topics_by_name.get(name)
        if topic is None or self._brokers.is_alone:
            return True
        return all(self._brokers.leads(partition) for partition in topic.partitions.values())

    async def ensure(self, name: str, *, num_partitions: int, segment_bytes: int) -> None:
        """Create the topic unless it exists. Raises LogError."""
        if name in self._partitions.by_name:
            return
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(segment_bytes),
            # as in Kafka; the coordinators compress nothing
            "compression.type": "uncompressed" if name == TRANSACTION_STATE_TOPIC else "producer",
        }

        def decide(image: MetadataImage) -> Decision[None]:
            return create_internal_topic(
                image,
                name,
                num_partitions=num_partitions,
                configs=configs,
                fresh_id=uuid.uuid4(),
                node_id=self._node_id,
            )

        await self._metadata_log.commit(decide)
