"""Topics that coordinators keep their own state in, created when they are first needed."""

from __future__ import annotations

import uuid

from gateway.metadata.decision import Decision
from gateway.metadata.image import MetadataImage
from gateway.metadata.topics import create_internal_topic
from gateway.runtime.metadata_log import MetadataLog
from gateway.runtime.partitions import Partitions


class InternalTopics:
    """Creates them, as Kafka's AutoTopicCreationManager does."""

    def __init__(self, metadata_log: MetadataLog, partitions: Partitions, node_id: int) -> None:
        self._metadata_log = metadata_log
        self._partitions = partitions
        self._node_id = node_id

    async def ensure(self, name: str, *, num_partitions: int, segment_bytes: int) -> None:
        """Create the topic unless it is there. Raises LogError."""
        if name in self._partitions.by_name:
            return
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(segment_bytes),
            "compression.type": "producer",
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
