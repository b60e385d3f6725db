"""The partitions of a gateway, as the uploads into its bucket see them."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.cluster.parts.keys import PartitionKey
from gateway.cluster.uploads.uploads import Partitions
from gateway.runtime.services import Services
from gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from log import NeedsRecovery, PartitionLog


def uploaded_partitions(services: Services) -> Partitions:
    """Return the port to the partitions of these services."""
    image, directory = services.topics.metadata_log.image, services.partitions.log_directory
    registry, flusher = services.partitions.registry, services.partitions.flusher
    recoveries = services.partitions.recoveries

    def every() -> Iterable[PartitionKey]:
        for log in directory.logs():
            if log.topic_id != METADATA_TOPIC_ID:  # the shared log in the bucket has the metadata
                yield PartitionKey(log.topic_id, log.partition)
        for topic in image.topics_by_id.values():
            for partition in topic.partitions:
                yield PartitionKey(topic.topic_id, partition)

    async def open_log(partition: PartitionKey) -> PartitionLog | None:
        topic = image.topics_by_id.get(partition.topic_id)
        if topic is not None:
            try:
                log = directory.get(topic.name, partition.partition)
            except NeedsRecovery:
                await recoveries.open(directory, (topic.name, partition.partition))
                log = directory.get(topic.name, partition.partition)
            return log if log is not None and log.topic_id == partition.topic_id else None
        return next((log for log in directory.logs() if (log.topic_id, log.partition) == partition), None)

    async def flushed(log: PartitionLog) -> None:
        await flusher.flushed(log, registry.serving(log))

    return Partitions(every, open_log, flushed)
