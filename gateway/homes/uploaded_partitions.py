"""The partitions of a gateway, as the uploads into its bucket see them."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.cluster.parts.manifest import PartitionKey
from gateway.cluster.uploads.partition_uploads import Partitions
from gateway.runtime.services import Services
from log import NeedsRecovery, PartitionLog


def uploaded_partitions(services: Services) -> Partitions:
    """Return the port to the partitions of these services."""
    found = _Uploaded(services)
    return Partitions(
        found.led, found.open_log, found.flushed, found.exists, services.topics.metadata_log.catch_up
    )


class _Uploaded:
    """The partitions that this gateway leads, and the metadata."""

    def __init__(self, services: Services) -> None:
        self._partitions = services.partitions
        self._directory = services.partitions.log_directory
        self._lifecycle = services.topics.lifecycle
        self._image = services.topics.metadata_log.image

    def led(self) -> Iterable[PartitionKey]:
        for topic in self._image.topics_by_id.values():
            for index in topic.partitions:
                if self._lifecycle.leads(topic.name, index):
                    yield PartitionKey(topic.topic_id, index)

    def exists(self, partition: PartitionKey) -> bool:
        topic = self._image.topics_by_id.get(partition.topic_id)
        return topic is not None and partition.partition in topic.partitions

    async def open_log(self, partition: PartitionKey) -> PartitionLog | None:
        topic, index = self._image.topics_by_id.get(partition.topic_id), partition.partition
        if topic is None or not self._lifecycle.leads(topic.name, index):
            return None
        try:
            log = self._directory.get(topic.name, index)
        except NeedsRecovery:
            await self._partitions.recoveries.open(self._directory, (topic.name, index))
            log = self._directory.get(topic.name, index)
        if log is None or log.topic_id != partition.topic_id or not self._lifecycle.leads(topic.name, index):
            return None
        # The manifest names the leader epoch that the log has begun, and an open partition begins it.
        served = self._partitions.registry.get(topic.name, index)
        if served is not None and served.log is log:
            log.begin_leader_epoch(served.leader_epoch)
        return log

    async def flushed(self, log: PartitionLog) -> None:
        await self._partitions.flusher.flushed(log, self._partitions.registry.serving(log))
