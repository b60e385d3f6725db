"""The partitions of a gateway, as the uploads into its bucket see them."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.cluster.parts.keys import PartitionKey
from gateway.cluster.uploads.ports import Partitions
from gateway.metadata.topic_names import METADATA_TOPIC
from gateway.runtime.services import Services
from gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from log import NeedsRecovery, PartitionLog


def uploaded_partitions(services: Services) -> Partitions:
    """Return the port to the partitions of these services."""
    image, directory = services.topics.metadata_log.image, services.partitions.log_directory
    registry, flusher = services.partitions.registry, services.partitions.flusher
    recoveries, lifecycle = services.partitions.recoveries, services.topics.lifecycle

    def led() -> Iterable[PartitionKey]:
        if directory.opened(METADATA_TOPIC, 0) is not None:
            yield PartitionKey(METADATA_TOPIC_ID, 0)
        for topic in image.topics_by_id.values():
            for index in topic.partitions:
                if lifecycle.leads(topic.name, index):
                    yield PartitionKey(topic.topic_id, index)

    def exists(partition: PartitionKey) -> bool:
        topic = image.topics_by_id.get(partition.topic_id)
        is_known = topic is not None and partition.partition in topic.partitions
        return is_known or partition == PartitionKey(METADATA_TOPIC_ID, 0)

    async def open_log(partition: PartitionKey) -> PartitionLog | None:
        if partition == PartitionKey(METADATA_TOPIC_ID, 0):
            return directory.opened(METADATA_TOPIC, 0)
        topic, index = image.topics_by_id.get(partition.topic_id), partition.partition
        if topic is None or not lifecycle.leads(topic.name, index):
            return None
        try:
            log = directory.get(topic.name, index)
        except NeedsRecovery:
            await recoveries.open(directory, (topic.name, index))
            log = directory.get(topic.name, index)
        if log is None or log.topic_id != partition.topic_id or not lifecycle.leads(topic.name, index):
            return None
        # A manifest names the leader epoch that the log has begun, which an open partition sees to.
        served = registry.get(topic.name, index)
        if served is not None and served.log is log:
            log.begin_leader_epoch(served.leader_epoch)
        return log

    async def flushed(log: PartitionLog) -> None:
        await flusher.flushed(log, registry.serving(log))

    return Partitions(led, open_log, flushed, exists)
