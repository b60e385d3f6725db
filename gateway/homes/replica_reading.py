"""The reads of uploaded records at other gateways than the leader, as `replica.selector.class` says (KIP-392)."""

from __future__ import annotations

from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.reading.bucket_reads import BucketReads
from gateway.cluster.uploads.uploads import Uploads
from gateway.config import Config
from gateway.config.cluster import LEADER_SELECTOR
from gateway.runtime.services import Services
from gateway.runtime.topics.leader_starts import LeaderStarts
from gateway.runtime.topics.read_replicas import ReadReplicas


class ReplicaReading:
    """The reads here of what others lead, and the decisions where consumers read what this gateway leads."""

    def __init__(self, config: Config, services: Services, objects: ObjectStore, uploads: Uploads) -> None:
        """Let fetches use both from now on."""
        node, image = services.node, services.topics.metadata_log.image
        self._partitions = services.partitions
        self._starts = LeaderStarts(image, node.brokers, node.peers)
        self._reads = BucketReads(
            objects, self._starts.ask, cache_bytes=config.int("seqgate.cluster.reading.cache.bytes")
        )
        self._partitions.bucket_reads = self._reads
        self._partitions.replicas = ReadReplicas(
            config.str("replica.selector.class"),
            node.node_id,
            image,
            node.brokers,
            uploads.counting,
            node.loop.time,
        )

    async def stop(self) -> None:
        """Let only leaders serve; end what is being fetched."""
        self._partitions.replicas = self._partitions.bucket_reads = None
        await self._reads.stop()
        await self._starts.stop()


def replica_reading(
    config: Config, services: Services, objects: ObjectStore, uploads: Uploads
) -> ReplicaReading | None:
    """Begin the reads; None where only leaders serve."""
    selector = config.optional_str("replica.selector.class")
    if selector is None or selector == LEADER_SELECTOR:
        return None
    return ReplicaReading(config, services, objects, uploads)
